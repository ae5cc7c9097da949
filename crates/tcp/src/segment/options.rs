//! The options of a header.
//!
//! MSS (RFC 9293 3.2), window scale and timestamps (RFC 7323), SACK (RFC 2018), user timeout (RFC
//! 5482). Options of other kinds are skipped. What is emitted stands in the order and with the
//! padding that Linux uses, since middleboxes and test scripts know that one best.

use crate::error::InvalidMessage;
use crate::segment::Flags;
use crate::seq::Seq;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const USER_TIMEOUT: u8 = 28;

/// SACK blocks that fit into the 40 bytes of options.
pub const SACK_BLOCKS_MAX: usize = 4;

/// SACK blocks that fit beside timestamps.
pub const SACK_BLOCKS_WITH_TIMESTAMPS_MAX: usize = 3;

/// A window scale above this counts as this (RFC 7323 section 2.3).
pub const WINDOW_SCALE_MAX: u8 = 14;

/// The timestamps option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// The sender's clock: TSval.
    pub value: u32,
    /// The clock of the receiver as the sender last saw it: TSecr.
    pub echo: u32,
}

/// One block of a SACK option: `start` up to and without `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// First number held.
    pub start: Seq,
    /// First number behind it that is not.
    pub end: Seq,
}

/// The blocks of a SACK option, in the order they stand in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [SackBlock; SACK_BLOCKS_MAX],
    count: u8,
}

impl SackBlocks {
    /// Appends a block; false when there is no room for it.
    pub fn push(&mut self, block: SackBlock) -> bool {
        let count = usize::from(self.count);
        if count == SACK_BLOCKS_MAX {
            return false;
        }
        self.blocks[count] = block;
        self.count += 1;
        true
    }

    /// The blocks.
    #[must_use]
    pub fn as_slice(&self) -> &[SackBlock] {
        &self.blocks[..usize::from(self.count)]
    }
}

/// What the options of one segment say. A second option of one kind replaces the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The largest segment that the sender takes; on a SYN.
    pub mss: Option<u16>,
    /// By how many bits windows are shifted; on a SYN. May exceed [`WINDOW_SCALE_MAX`].
    pub window_scale: Option<u8>,
    /// The sender takes SACK options; on a SYN.
    pub is_sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// SACK blocks.
    pub sack: SackBlocks,
    /// How long the sender keeps unacknowledged data: bit 15 set for minutes, else seconds.
    pub user_timeout: Option<u16>,
}

impl Options {
    /// Reads the bytes between the fixed header and the payload. O(bytes).
    ///
    /// # Errors
    /// A length that cannot be.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, InvalidMessage> {
        let mut options = Self::default();
        while let Some((&kind, rest)) = bytes.split_first() {
            match kind {
                END => break,
                NOP => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            let len = rest.first().copied().unwrap_or(0);
            let body_end = usize::from(len).checked_sub(2);
            let body = body_end
                .and_then(|n| rest.get(1..=n))
                .ok_or(InvalidMessage::OptionLength { kind, len })?;
            options
                .take(kind, body)
                .ok_or(InvalidMessage::OptionSize { kind, len })?;
            bytes = &bytes[usize::from(len)..];
        }
        Ok(options)
    }

    /// Takes note of one option; `None` when a known one has the wrong size.
    fn take(&mut self, kind: u8, body: &[u8]) -> Option<()> {
        match kind {
            MSS => self.mss = Some(u16::from_be_bytes(body.try_into().ok()?)),
            WINDOW_SCALE => {
                let [shift] = body.try_into().ok()?;
                self.window_scale = Some(shift);
            }
            SACK_PERMITTED => {
                let [] = body.try_into().ok()?;
                self.is_sack_permitted = true;
            }
            SACK => self.sack = parse_sack(body)?,
            TIMESTAMPS => {
                let (&[value, echo], []) = u32s(body) else {
                    return None;
                };
                self.timestamps = Some(Timestamps {
                    value: u32::from_be_bytes(value),
                    echo: u32::from_be_bytes(echo),
                });
            }
            USER_TIMEOUT => self.user_timeout = Some(u16::from_be_bytes(body.try_into().ok()?)),
            // RFC 9293 MUST-6: an option that we do not know is skipped.
            _ => {}
        }
        Some(())
    }

    /// Bytes that they take in a header with `flags`: a multiple of four.
    #[must_use]
    pub fn len(&self, flags: Flags) -> usize {
        let mut counter = Writer {
            out: &mut [],
            len: 0,
        };
        self.write(flags, &mut counter);
        counter.len
    }

    /// Whether they take no room in a header with `flags`.
    #[must_use]
    pub fn is_empty(&self, flags: Flags) -> bool {
        self.len(flags) == 0
    }

    /// Writes them to `out`, which has the length that [`Options::len`] says.
    pub(super) fn emit(&self, flags: Flags, out: &mut [u8]) {
        let mut writer = Writer { out, len: 0 };
        self.write(flags, &mut writer);
    }

    /// The layout. With a SYN: MSS; SACK-permitted in front of the timestamps, or padded to four;
    /// window scale. Else: timestamps and SACK, each behind two NOPs.
    fn write(&self, flags: Flags, to: &mut Writer<'_>) {
        let is_syn = flags.has(Flags::SYN);
        if let (true, Some(mss)) = (is_syn, self.mss) {
            let [high, low] = mss.to_be_bytes();
            to.put(&[MSS, 4, high, low]);
        }
        let is_sack_permitted = is_syn && self.is_sack_permitted;
        match (self.timestamps, is_sack_permitted) {
            (Some(_), true) => to.put(&[SACK_PERMITTED, 2]),
            (None, true) => to.put(&[NOP, NOP, SACK_PERMITTED, 2]),
            (Some(_), false) => to.put(&[NOP, NOP]),
            (None, false) => {}
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            to.put(&[TIMESTAMPS, 10]);
            to.put(&value.to_be_bytes());
            to.put(&echo.to_be_bytes());
        }
        if let (true, Some(shift)) = (is_syn, self.window_scale) {
            to.put(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        if let Some(timeout) = self.user_timeout {
            let [high, low] = timeout.to_be_bytes();
            to.put(&[USER_TIMEOUT, 4, high, low]);
        }
        let blocks = self.sack.as_slice();
        if !blocks.is_empty() {
            to.put(&[NOP, NOP, SACK, 2 + 8 * self.sack.count]);
            for block in blocks {
                to.put(&block.start.value().to_be_bytes());
                to.put(&block.end.value().to_be_bytes());
            }
        }
    }
}

fn u32s(body: &[u8]) -> (&[[u8; 4]], &[u8]) {
    body.as_chunks()
}

fn parse_sack(body: &[u8]) -> Option<SackBlocks> {
    let (blocks, []) = body.as_chunks::<8>() else {
        return None;
    };
    let mut sack = SackBlocks::default();
    for &[a, b, c, d, e, f, g, h] in blocks {
        let block = SackBlock {
            start: Seq::new(u32::from_be_bytes([a, b, c, d])),
            end: Seq::new(u32::from_be_bytes([e, f, g, h])),
        };
        if !sack.push(block) {
            return None;
        }
    }
    (!blocks.is_empty()).then_some(sack)
}

/// Writes, or only counts while `out` is empty.
struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(room) = self.out.get_mut(self.len..end) {
            room.copy_from_slice(bytes);
        }
        self.len = end;
    }
}
