//! The payload of the current packet, taken out of the transport while packets are sealed.

use super::Transport;
use fullbore_base::RxBuf;
use std::ops::Range;

/// What [`Transport::lend_payload`] took out.
#[derive(Debug)]
pub(crate) enum PayloadLoan {
    /// The receive buffer, and where the payload lies in it.
    InPlace(RxBuf, Range<usize>),
    /// What was decompressed, copied: it is small beside the work of decompressing it.
    Inflated(Vec<u8>),
}

impl PayloadLoan {
    /// The payload.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::InPlace(rx, range) => &rx.bytes()[range.clone()],
            Self::Inflated(bytes) => bytes,
        }
    }
}

impl Transport {
    /// Takes the current payload out, to be given back before anything arrives. O(1) but for
    /// compressed packets.
    pub(crate) fn lend_payload(&mut self) -> PayloadLoan {
        let in_place = self
            .current
            .as_ref()
            .and_then(|packet| packet.payload.clone());
        match in_place {
            Some(range) => {
                let rx = std::mem::replace(&mut self.rx, RxBuf::new(0));
                PayloadLoan::InPlace(rx, range)
            }
            None => PayloadLoan::Inflated(self.payload().to_vec()),
        }
    }

    /// Puts back what [`Transport::lend_payload`] took out.
    pub(crate) fn return_payload(&mut self, loan: PayloadLoan) {
        if let PayloadLoan::InPlace(rx, _) = loan {
            self.rx = rx;
        }
    }
}
