//! The agent, reached without blocking the connections of the thread: it may wait for a touch.

use std::io;
use std::path::Path;
use std::time::Duration;

use fullbore_ssh::agent::{Identity, Reply, Request, message_len};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// An agent that does not list its keys within this is passed over. Chosen: they are in its memory.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// A conversation with an agent.
#[derive(Debug)]
pub(super) struct Agent {
    stream: UnixStream,
}

impl Agent {
    /// Connects, and asks which keys the agent holds.
    pub(super) async fn connect(socket: &Path) -> io::Result<(Self, Vec<Identity>)> {
        let listing = async {
            let stream = UnixStream::connect(socket).await?;
            let mut agent = Self { stream };
            match agent.ask(&Request::Identities).await? {
                Reply::Identities(identities) => Ok((agent, identities)),
                Reply::Failure | Reply::Success | Reply::Signature(_) => {
                    Err(io::Error::other("the agent does not list its keys"))
                }
            }
        };
        tokio::time::timeout(LIST_TIMEOUT, listing).await?
    }

    /// Has `data` signed. Takes as long as the person behind it does.
    pub(super) async fn sign(
        &mut self,
        key_blob: &[u8],
        data: &[u8],
        flags: u32,
    ) -> io::Result<Vec<u8>> {
        let request = Request::Sign {
            key_blob,
            data,
            flags,
        };
        match self.ask(&request).await? {
            Reply::Signature(signature) => Ok(signature),
            Reply::Failure | Reply::Success | Reply::Identities(_) => {
                Err(io::Error::other("the agent refused to sign"))
            }
        }
    }

    async fn ask(&mut self, request: &Request<'_>) -> io::Result<Reply> {
        self.stream.write_all(&request.to_bytes()).await?;
        let mut received = vec![0; 4];
        self.stream.read_exact(&mut received).await?;
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        // Checked against the longest message before memory is taken for it.
        let len = message_len(&received).map_err(invalid)?.unwrap_or(4);
        received.resize(len, 0);
        self.stream.read_exact(&mut received[4..]).await?;
        Reply::from_bytes(&received).map_err(invalid)
    }
}
