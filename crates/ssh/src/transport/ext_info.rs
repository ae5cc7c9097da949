//! EXT_INFO: what each side says about itself behind the first NEWKEYS. RFC 8308.

use super::PeerExtensions;
use crate::config::EXTENSIONS_MAX;
use crate::error::{Error, PeerMisbehaved};
use crate::key::Algorithm;
use crate::msg::SSH_MSG_EXT_INFO;
use crate::wire::{NameList, Put, Reader};

const SERVER_SIG_ALGS: &str = "server-sig-algs";
/// OpenSSH PROTOCOL 1.9 and 1.12.
const PING: &str = "ping@openssh.com";
const PUBLICKEY_HOSTBOUND: &str = "publickey-hostbound@openssh.com";

/// A server's message.
pub(super) fn server_message() -> Vec<u8> {
    let mut list = Vec::new();
    list.put_name_list(Algorithm::ALL.iter().map(|a| a.name()));
    let mut message = vec![SSH_MSG_EXT_INFO];
    message.put_u32(3);
    message.put_string(SERVER_SIG_ALGS.as_bytes());
    message.put_raw(&list);
    for extension in [PUBLICKEY_HOSTBOUND, PING] {
        message.put_string(extension.as_bytes());
        message.put_string(b"0");
    }
    message
}

/// A client's message: a server may measure the path with pings.
pub(super) fn client_message() -> Vec<u8> {
    let mut message = vec![SSH_MSG_EXT_INFO];
    message.put_u32(1);
    message.put_string(PING.as_bytes());
    message.put_string(b"0");
    message
}

/// Takes over what a message of the peer says. Extensions that are not known are passed over.
pub(super) fn parse(payload: &[u8], into: &mut PeerExtensions) -> Result<(), Error> {
    let mut fields = Reader::new(&payload[1..]);
    let count = fields.u32()?;
    if count as usize > EXTENSIONS_MAX {
        return Err(PeerMisbehaved::TooManyExtensions.into());
    }
    for _ in 0..count {
        let name = fields.string()?;
        let value = fields.string()?;
        if name == SERVER_SIG_ALGS.as_bytes() {
            let names = NameList::new(value)?.iter().take(EXTENSIONS_MAX);
            into.server_sig_algs = Some(names.map(str::to_owned).collect());
        } else if name == PING.as_bytes() {
            into.ping = value == b"0";
        } else if name == PUBLICKEY_HOSTBOUND.as_bytes() {
            into.publickey_hostbound = value == b"0";
        }
    }
    fields.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(extensions: &[(&str, &str)]) -> Vec<u8> {
        let mut message = vec![SSH_MSG_EXT_INFO];
        message.put_u32(u32::try_from(extensions.len()).expect("few"));
        for (name, value) in extensions {
            message.put_string(name.as_bytes());
            message.put_string(value.as_bytes());
        }
        message
    }

    #[test]
    fn what_a_server_says_is_understood() {
        let mut seen = PeerExtensions::default();
        parse(&server_message(), &mut seen).expect("well-formed");
        assert!(seen.ping && seen.publickey_hostbound);
        let algorithms = seen.server_sig_algs.expect("sent");
        assert!(algorithms.iter().any(|a| a == "rsa-sha2-512"));
        assert!(!algorithms.iter().any(|a| a == "ssh-rsa"));
    }

    #[test]
    fn unknown_extensions_and_versions_are_passed_over() {
        let mut seen = PeerExtensions::default();
        let message = message(&[("no-flow-control", "p"), (PING, "1"), ("x", "\0")]);
        parse(&message, &mut seen).expect("well-formed");
        assert_eq!(seen, PeerExtensions::default());
    }

    #[test]
    fn extensions_are_taken_up_to_the_limit_and_counts_are_not_believed() {
        let mut seen = PeerExtensions::default();
        assert!(parse(&message(&vec![("x", ""); EXTENSIONS_MAX]), &mut seen).is_ok());
        assert_eq!(
            parse(&message(&vec![("x", ""); EXTENSIONS_MAX + 1]), &mut seen),
            Err(PeerMisbehaved::TooManyExtensions.into())
        );
        assert!(parse(&[SSH_MSG_EXT_INFO, 0, 0, 0, 9], &mut seen).is_err());
    }
}
