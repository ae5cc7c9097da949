//! The version lines. RFC 4253 section 4.2.

use crate::config::{BANNER_LINE_BYTES_MAX, BANNER_LINES_MAX, VERSION_LINE_BYTES_MAX};
use crate::error::{Error, InvalidMessage, PeerMisbehaved};

/// The word in a version line by which one of us knows another.
const OUR_SOFTWARE: &[u8] = b"fullbore";

/// Whether a version line names one of us.
pub(crate) fn is_fullbore(version: &[u8]) -> bool {
    version
        .windows(OUR_SOFTWARE.len())
        .any(|word| word == OUR_SOFTWARE)
}

/// What this side sends and what it has seen of the peer's.
#[derive(Debug)]
pub(super) struct Versions {
    /// Without CR LF.
    local: Vec<u8>,
    /// Without CR LF; empty until it came.
    remote: Vec<u8>,
    /// Only a server may send lines before its version.
    banner_allowed: bool,
    banner_line_count: usize,
    is_sent: bool,
}

impl Versions {
    pub(super) fn new(software_version: &str, banner_allowed: bool) -> Self {
        Self {
            local: format!("SSH-2.0-{software_version}").into_bytes(),
            remote: Vec::new(),
            banner_allowed,
            banner_line_count: 0,
            is_sent: false,
        }
    }

    pub(super) fn local(&self) -> &[u8] {
        &self.local
    }

    pub(super) fn remote(&self) -> &[u8] {
        &self.remote
    }

    pub(super) fn is_known(&self) -> bool {
        !self.remote.is_empty()
    }

    /// The line to send, once.
    pub(super) fn to_send(&self) -> Option<Vec<u8>> {
        (!self.is_sent).then(|| [&self.local, &b"\r\n"[..]].concat())
    }

    pub(super) fn on_sent(&mut self) {
        self.is_sent = true;
    }

    /// Takes one line from the front of `input`, if it is complete; returns its length.
    pub(super) fn handle_line(&mut self, input: &[u8]) -> Result<Option<usize>, Error> {
        let is_version = input.starts_with(b"SSH-");
        if !is_version && !b"SSH-".starts_with(&input[..input.len().min(4)]) {
            self.check_banner_allowed()?;
        }
        let len_max = if is_version {
            VERSION_LINE_BYTES_MAX
        } else {
            BANNER_LINE_BYTES_MAX
        };
        let window = &input[..input.len().min(len_max)];
        let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
            if window.len() == len_max {
                return Err(PeerMisbehaved::LineTooLong.into());
            }
            return Ok(None);
        };
        // RFC 4253 4.2 wants CR LF; LF alone is tolerated, as it says for old peers.
        let line = window[..end].strip_suffix(b"\r").unwrap_or(&window[..end]);
        if is_version {
            self.handle_version(line)?;
        } else {
            self.check_banner_allowed()?;
            self.banner_line_count += 1;
        }
        Ok(Some(end + 1))
    }

    fn check_banner_allowed(&self) -> Result<(), Error> {
        if !self.banner_allowed {
            return Err(InvalidMessage::VersionLine.into());
        }
        if self.banner_line_count >= BANNER_LINES_MAX {
            return Err(PeerMisbehaved::TooManyBannerLines.into());
        }
        Ok(())
    }

    fn handle_version(&mut self, line: &[u8]) -> Result<(), Error> {
        if line.iter().any(u8::is_ascii_control) {
            return Err(InvalidMessage::VersionLine.into());
        }
        let rest = &line[b"SSH-".len()..];
        let minus = rest
            .iter()
            .position(|byte| *byte == b'-')
            .ok_or(InvalidMessage::VersionLine)?;
        // RFC 4253 5.1: 1.99 is a server that speaks 2.0 as well as older versions.
        if !matches!(&rest[..minus], b"2.0" | b"1.99") {
            return Err(PeerMisbehaved::ProtocolVersion.into());
        }
        self.remote = line.to_vec();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Versions {
        Versions::new("test", true)
    }

    fn read(versions: &mut Versions, mut input: &[u8]) -> Result<usize, Error> {
        let all = input.len();
        while !versions.is_known() {
            match versions.handle_line(input)? {
                Some(n) => input = &input[n..],
                None => break,
            }
        }
        Ok(all - input.len())
    }

    #[test]
    fn a_version_line_ends_with_or_without_cr_and_stops_at_its_end() {
        for (input, version) in [
            (
                &b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\nrest"[..],
                &b"SSH-2.0-OpenSSH_9.2p1 Debian-2"[..],
            ),
            (b"SSH-2.0-x\nrest", b"SSH-2.0-x"),
            (b"SSH-1.99-Cisco-1.25\nrest", b"SSH-1.99-Cisco-1.25"),
        ] {
            for mut versions in [client(), Versions::new("test", false)] {
                assert_eq!(read(&mut versions, input), Ok(input.len() - 4));
                assert_eq!(versions.remote(), version);
            }
        }
    }

    #[test]
    fn other_protocol_versions_and_malformed_lines_are_refused_by_name() {
        for (line, error) in [
            (
                &b"SSH-1.5-old\n"[..],
                Error::from(PeerMisbehaved::ProtocolVersion),
            ),
            (b"SSH-2.1-new\n", PeerMisbehaved::ProtocolVersion.into()),
            (b"SSH-2.0\n", InvalidMessage::VersionLine.into()),
            (b"SSH-2.0-a\0b\n", InvalidMessage::VersionLine.into()),
            (b"SSH-2.0-a\rb\n", InvalidMessage::VersionLine.into()),
        ] {
            assert_eq!(read(&mut client(), line), Err(error));
        }
    }

    #[test]
    fn the_version_line_may_have_255_bytes_and_not_256() {
        let line = |len: usize| {
            let mut line = b"SSH-2.0-".to_vec();
            line.resize(len - 2, b'x');
            line.extend(b"\r\n");
            line
        };
        assert_eq!(read(&mut client(), &line(255)), Ok(255));
        let error = Err(PeerMisbehaved::LineTooLong.into());
        assert_eq!(read(&mut client(), &line(256)), error);
        // Found without waiting for the end of the line.
        assert_eq!(read(&mut client(), &line(300)[..255]), error);
        assert_eq!(read(&mut client(), &line(300)[..254]), Ok(0));
    }

    #[test]
    fn a_server_may_send_lines_first_and_a_client_may_not() {
        let input = b"Welcome\r\n\nSSH is fine here\nSSH-2.0-x\r\n";
        assert_eq!(read(&mut client(), input), Ok(input.len()));
        let mut server = Versions::new("test", false);
        assert_eq!(
            read(&mut server, b"GE"),
            Err(InvalidMessage::VersionLine.into())
        );
        assert_eq!(read(&mut server, b"SS"), Ok(0));
        assert_eq!(
            read(&mut server, b"SSX"),
            Err(InvalidMessage::VersionLine.into())
        );
    }

    #[test]
    fn banner_lines_are_counted_and_measured() {
        let mut input = b"x\n".repeat(BANNER_LINES_MAX);
        input.extend(b"SSH-2.0-x\n");
        assert_eq!(read(&mut client(), &input), Ok(input.len()));
        let input = b"x\n".repeat(BANNER_LINES_MAX + 1);
        assert_eq!(
            read(&mut client(), &input),
            Err(PeerMisbehaved::TooManyBannerLines.into())
        );
        let mut long = vec![b'x'; BANNER_LINE_BYTES_MAX - 1];
        long.push(b'\n');
        assert_eq!(read(&mut client(), &long), Ok(BANNER_LINE_BYTES_MAX));
        long.insert(0, b'x');
        assert_eq!(
            read(&mut client(), &long),
            Err(PeerMisbehaved::LineTooLong.into())
        );
    }

    #[test]
    fn lines_arrive_in_any_pieces() {
        let input = b"hello\r\nSSH-2.0-x\r\n";
        for cut in 0..input.len() {
            let mut versions = client();
            let taken = read(&mut versions, &input[..cut]).expect("valid so far");
            assert_eq!(
                read(&mut versions, &input[taken..]),
                Ok(input.len() - taken)
            );
            assert!(versions.is_known());
        }
    }
}
