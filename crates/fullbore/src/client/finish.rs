//! Several requests in one flight, for short files: round trips are what they cost.

use fullbore_sftp::client::{Handle, ReplyMessage};
use fullbore_sftp::proto::{Attrs, Request};

use super::error::Error;
use super::sftp::{Sftp, as_attrs, as_status};
use crate::transfer::{Finished, Whole};

impl Sftp {
    /// Closes a handle through which nothing was written: what comes of that is not waited for.
    pub async fn release(&self, handle: &Handle) -> Result<(), Error> {
        let handle = handle.as_bytes();
        self.lane.tell(&Request::Close { handle }).await
    }

    /// Whether the server is known to serve requests in the order in which they come.
    #[must_use]
    pub fn serves_in_order(&self) -> bool {
        self.quirks(|quirks| quirks.serves_in_order)
    }

    /// Writes a short file's whole content, gives it attributes, brings it to stable storage, asks
    /// for its size and closes it, in one flight: for servers that serve in order. What each step
    /// came to is in the result; the handle is closed in any case.
    ///
    /// # Errors
    /// The end of the session.
    pub async fn finish(
        &self,
        handle: &Handle,
        whole: &Whole<'_>,
    ) -> Result<Finished<Error>, Error> {
        let handle = handle.as_bytes();
        let write = Request::Write {
            handle,
            offset: 0,
            data: whole.bytes,
        };
        let attrs = whole.attrs;
        let [written, attributes, synced, size, closed] = self
            .lane
            .calls([
                (!whole.bytes.is_empty()).then_some(write),
                (attrs != Attrs::EMPTY).then_some(Request::Fsetstat { handle, attrs }),
                whole.fsync.then_some(Request::Fsync { handle }),
                Some(Request::Fstat { handle }),
                Some(Request::Close { handle }),
            ])
            .await?;
        let status = |reply: Option<ReplyMessage>| reply.map_or(Ok(()), |r| as_status(&r));
        Ok(Finished {
            written: status(written),
            attributes: status(attributes),
            synced: status(synced),
            size: size.map_or(Ok(Attrs::EMPTY), |reply| as_attrs(&reply)),
            closed: status(closed),
        })
    }
}
