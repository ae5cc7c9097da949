//! What a server tells a client over an SSH connection that is logged in, so that the two can meet
//! over UDP: one line of words.
//!
//! ```text
//! fullbore-udp 1 port=40123 id=0123456789abcdef secret=<64 hex digits> token=<64 hex digits> key=<base64>
//! ```
//!
//! `secret` is what datagrams are sealed with; `token` is a password for one login, and `key` the host key
//! of the SSH server behind that port. Words that are not known are passed over, so that later versions
//! may say more; another number is another protocol.

use std::fmt;

use base64ct::{Base64, Encoding};
use fullbore_ssh::provider::SecureRandom;
use zeroize::Zeroizing;

use super::datagram::PathId;
use super::keys::{SECRET_BYTES, Secret};

/// The command that makes an offer, on a server of ours and on a host that has the program.
pub const COMMAND: &str = "fullbore udp-server";

/// The longest offer that is read: host keys are short.
pub const LINE_BYTES_MAX: usize = 8192;

const FIRST_WORDS: [&str; 2] = ["fullbore-udp", "1"];

/// An offer.
#[derive(Clone, PartialEq, Eq)]
pub struct Offer {
    /// The UDP port of the host that was logged in to.
    pub port: u16,
    /// The connection's name.
    pub id: PathId,
    /// What datagrams are sealed with.
    pub secret: Secret,
    /// The password of the login.
    pub token: Secret,
    /// The host key that the server proves to have, as on the wire.
    pub host_key: Vec<u8>,
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer")
            .field("port", &self.port)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Why a line is no offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoOffer {
    /// It does not begin as one.
    Other,
    /// It is one of another version.
    Version,
    /// A word is missing, or is not what it should be.
    Word(&'static str),
}

impl fmt::Display for NoOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("something else was answered"),
            Self::Version => f.write_str("it speaks another version"),
            Self::Word(word) => write!(f, "its answer has no usable \"{word}\""),
        }
    }
}

impl std::error::Error for NoOffer {}

impl Offer {
    /// A fresh one.
    pub fn new(port: u16, host_key: Vec<u8>, random: &mut dyn SecureRandom) -> Self {
        let mut id = [0; 8];
        random.fill(&mut id);
        Self {
            port,
            id: PathId::new(u64::from_be_bytes(id)),
            secret: Secret::new(random),
            token: Secret::new(random),
            host_key,
        }
    }

    /// As a line, with its end.
    #[must_use]
    pub fn to_line(&self) -> Zeroizing<String> {
        let [name, version] = FIRST_WORDS;
        Zeroizing::new(format!(
            "{name} {version} port={} id={} secret={} token={} key={}\n",
            self.port,
            self.id,
            *hex(&self.secret),
            *self.password(),
            Base64::encode_string(&self.host_key),
        ))
    }

    /// The password of the login: the token's hexadecimal digits.
    #[must_use]
    pub fn password(&self) -> Zeroizing<String> {
        hex(&self.token)
    }

    /// Reads a line.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(line: &str) -> Result<Self, NoOffer> {
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some(FIRST_WORDS[0]) {
            return Err(NoOffer::Other);
        }
        if words.next() != Some(FIRST_WORDS[1]) {
            return Err(NoOffer::Version);
        }
        let value = |name: &'static str| {
            let of_name = |word: &str| {
                let (key, value) = word.split_once('=')?;
                (key == name).then(|| value.to_owned())
            };
            let found = words.clone().find_map(of_name);
            found.map(Zeroizing::new).ok_or(NoOffer::Word(name))
        };
        let port = value("port")?.parse().ok().filter(|&port: &u16| port > 0);
        let id = unhex::<8>(&value("id")?).map(u64::from_be_bytes);
        Ok(Self {
            port: port.ok_or(NoOffer::Word("port"))?,
            id: PathId::new(id.ok_or(NoOffer::Word("id"))?),
            secret: secret(&value("secret")?).ok_or(NoOffer::Word("secret"))?,
            token: secret(&value("token")?).ok_or(NoOffer::Word("token"))?,
            host_key: Base64::decode_vec(&value("key")?).map_err(|_| NoOffer::Word("key"))?,
        })
    }
}

fn secret(digits: &str) -> Option<Secret> {
    unhex::<SECRET_BYTES>(digits).map(Secret::from_bytes)
}

fn hex(secret: &Secret) -> Zeroizing<String> {
    let digits = secret.expose().iter().flat_map(|byte| {
        [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).expect("below 16"))
    });
    Zeroizing::new(digits.collect())
}

fn unhex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().as_chunks::<2>().0) {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        *byte = u8::try_from(high? << 4 | low?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::random::SystemRandom;

    fn offer() -> Offer {
        Offer::new(40123, vec![1, 2, 250], &mut SystemRandom::new())
    }

    #[test]
    fn what_is_written_is_read() {
        let offer = offer();
        let line = offer.to_line();
        assert!(line.len() < LINE_BYTES_MAX && line.ends_with('\n'));
        assert_eq!(Offer::parse(&line), Ok(offer.clone()));
        let later = line.replace(" port", " more=1 port");
        assert_eq!(Offer::parse(&later), Ok(offer));
    }

    #[test]
    fn what_is_no_offer_is_told_apart() {
        let line = offer().to_line();
        assert_eq!(
            Offer::parse("bash: fullbore: not found"),
            Err(NoOffer::Other)
        );
        assert_eq!(
            Offer::parse(&line.replace("-udp 1", "-udp 2")),
            Err(NoOffer::Version)
        );
        for word in ["port", "id", "secret", "token", "key"] {
            let without = line.replace(&format!("{word}="), "x=");
            assert_eq!(Offer::parse(&without), Err(NoOffer::Word(word)));
            let broken = line.replace(&format!("{word}="), &format!("{word}=%"));
            assert_eq!(Offer::parse(&broken), Err(NoOffer::Word(word)));
        }
        assert_eq!(
            Offer::parse(&line.replace("port=40123", "port=0")),
            Err(NoOffer::Word("port"))
        );
    }

    #[test]
    fn secrets_are_not_shown() {
        let offer = offer();
        let shown = format!("{offer:?}");
        assert!(!shown.contains(offer.password().as_str()), "{shown}");
    }
}
