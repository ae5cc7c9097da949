//! Replies coming in. DATA for a transfer is handed on piece by piece, as it arrives; any other
//! reply is taken when it is whole.

use fullbore_base::Instant;

use super::bulk::{Blocks, BulkId, Direction, Handle};
use super::config::{
    PIECE_LEN_MIN, REPLY_BYTES_MAX, REPLY_LEN_MAX, REQUEST_LEN_MIN, STATUS_TEXT_MAX,
};
use super::error::{BulkError, Error, Misbehaviour};
use super::server_info::ServerInfo;
use super::table::{Expect, Purpose};
use super::{Client, Event, ReplyMessage, RequestId};
use crate::InvalidMessage;
use crate::proto::{
    Code, DATA_HEADER_LEN, LEN_WORD, Limits, Packet, Reply, Request, Version, ext, fxp, next_packet,
};

/// Where in a message the input stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Inbound {
    /// At the start of one.
    #[default]
    Start,
    /// Inside the payload of a DATA reply to a transfer's READ.
    Data {
        id: u32,
        /// File offset of the next payload byte.
        offset: u64,
        /// Payload bytes to come.
        payload_left: u32,
        /// Bytes behind the payload, to be ignored.
        trailer: u32,
        /// Length of the whole payload.
        payload_len: u32,
    },
    /// Bytes to be ignored.
    Skip { left: u32 },
}

impl Client {
    /// Takes replies from the front of `view`, the contiguous bytes that the channel holds, and
    /// returns how many bytes it took; 0 if it needs to see more, or if replies wait to be taken
    /// ([`Client::take_reply`]). The view must be able to grow to [`REPLY_LEN_MAX`] and 4 bytes.
    ///
    /// # Errors
    /// What ended the session, now or earlier.
    pub fn handle_input(
        &mut self,
        now: Instant,
        view: &[u8],
        blocks: &mut dyn Blocks,
    ) -> Result<usize, Error> {
        self.check()?;
        let mut taken = 0;
        while taken < view.len() && self.replies_bytes < REPLY_BYTES_MAX {
            match self.step(now, &view[taken..], blocks) {
                Ok(0) => break,
                Ok(n) => taken += n,
                Err(error) => {
                    self.fail(error.clone());
                    return Err(error);
                }
            }
        }
        // What must wait for more of its message is a sign of life, too.
        if taken > 0 || view.len() > self.view_left {
            self.quiet_since = now;
        }
        self.view_left = view.len() - taken;
        Ok(taken)
    }

    fn step(&mut self, now: Instant, view: &[u8], blocks: &mut dyn Blocks) -> Result<usize, Error> {
        match self.inbound {
            Inbound::Start => match self.data_start(now, view)? {
                Some(taken) => Ok(taken),
                None => self.whole_message(now, view),
            },
            Inbound::Data { .. } => Ok(self.data_piece(now, view, blocks)),
            Inbound::Skip { left } => {
                let n = (left as usize).min(view.len());
                let left = left - n as u32;
                self.inbound = if left == 0 {
                    Inbound::Start
                } else {
                    Inbound::Skip { left }
                };
                Ok(n)
            }
        }
    }

    /// Takes the header of a DATA reply to a transfer's READ, if that is what comes next. `None`
    /// if it is something else.
    fn data_start(&mut self, now: Instant, view: &[u8]) -> Result<Option<usize>, Error> {
        let word = |at: usize| -> Option<u32> {
            let bytes = view.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().expect("4 bytes")))
        };
        let (Some(len), Some(&kind), Some(id)) = (word(0), view.get(4), word(5)) else {
            return Ok(None);
        };
        if kind != fxp::SSH_FXP_DATA {
            return Ok(None);
        }
        let Some(Purpose::Read {
            offset, len: asked, ..
        }) = self.table.purpose(id)
        else {
            return Ok(None);
        };
        let around = (DATA_HEADER_LEN - LEN_WORD) as u32;
        if len > REPLY_LEN_MAX.max(asked + around) {
            return Err(too_long(len));
        }
        let Some(payload_len) = word(9) else {
            return Ok(None);
        };
        if payload_len > asked {
            let claimed = payload_len;
            return Err(Misbehaviour::DataTooLong { asked, claimed }.into());
        }
        let trailer = len
            .checked_sub(around + payload_len)
            .ok_or(Error::InvalidMessage(InvalidMessage::Truncated("data")))?;
        self.inbound = Inbound::Data {
            id,
            offset,
            payload_left: payload_len,
            trailer,
            payload_len,
        };
        if payload_len == 0 {
            self.data_end(now, id, 0, trailer);
        }
        Ok(Some(DATA_HEADER_LEN))
    }

    /// Hands on what is here of a DATA payload; 0 if too little to be worth a write.
    fn data_piece(&mut self, now: Instant, view: &[u8], blocks: &mut dyn Blocks) -> usize {
        let Inbound::Data {
            id,
            offset,
            payload_left,
            trailer,
            payload_len,
        } = self.inbound
        else {
            return 0;
        };
        let n = view.len().min(payload_left as usize);
        if n < PIECE_LEN_MIN && n < payload_left as usize {
            return 0;
        }
        if let Some(Purpose::Read { bulk, .. }) = self.table.purpose(id) {
            self.store(bulk, offset, &view[..n], blocks);
        }
        let payload_left = payload_left - n as u32;
        if payload_left == 0 {
            self.data_end(now, id, payload_len, trailer);
        } else {
            self.inbound = Inbound::Data {
                id,
                offset: offset + n as u64,
                payload_left,
                trailer,
                payload_len,
            };
        }
        n
    }

    fn store(&mut self, id: BulkId, offset: u64, bytes: &[u8], blocks: &mut dyn Blocks) {
        let Some(bulk) = self.bulks.get_mut(id) else {
            return;
        };
        if bulk.error.is_some() {
            return;
        }
        match blocks.write_at(id, offset, bytes) {
            Ok(()) => {
                bulk.bytes += bytes.len() as u64;
                self.note_progress(id);
            }
            Err(error) => bulk.fail(BulkError::Local { offset, error }),
        }
    }

    /// The READ `id` has been answered with `n` bytes.
    fn data_end(&mut self, now: Instant, id: u32, n: u32, trailer: u32) {
        self.inbound = if trailer > 0 {
            Inbound::Skip { left: trailer }
        } else {
            Inbound::Start
        };
        self.stats.replies += 1;
        let Some(Purpose::Read { bulk, offset, len }) = self.table.purpose(id) else {
            return;
        };
        self.end_request(now, id, len);
        self.note_length(bulk, offset, len, n);
        let Some(state) = self.bulks.get_mut(bulk) else {
            return;
        };
        state.outstanding -= 1;
        if state.error.is_none()
            && let Direction::Get(get) = &mut state.direction
        {
            match get.on_data(offset, n) {
                Ok(None) => {}
                Ok(Some(len)) => {
                    state.request_len = state.request_len.min(len);
                    self.note_cut(bulk, len);
                }
                Err(error) => state.fail(error),
            }
        }
        self.settle(bulk);
    }

    /// What the answer to a READ says of its length.
    fn note_length(&mut self, bulk: BulkId, offset: u64, len: u32, n: u32) {
        let inside = match self.bulks.get(bulk).map(|bulk| &bulk.direction) {
            Some(Direction::Get(get)) => !get.is_past_hint(offset, n),
            Some(Direction::Put(_)) | None => false,
        };
        if n >= len {
            self.read_len.on_full(len);
            self.write_len.allow(self.read_len.len());
        } else if inside && n >= REQUEST_LEN_MIN {
            self.stats.short_replies += 1;
            self.read_len.on_cut(len, n);
        } else {
            self.stats.short_replies += u64::from(inside);
            self.read_len.on_answered(len);
        }
    }

    /// The READs of one transfer are cut to `n`: if those of another were, too, it is the server.
    fn note_cut(&mut self, bulk: BulkId, n: u32) {
        if self
            .cut
            .is_some_and(|(other, len)| other != bulk && len == n)
        {
            self.read_len.on_shown(n);
        }
        self.cut = Some((bulk, n));
    }

    /// Takes one whole message that is no DATA of a transfer.
    fn whole_message(&mut self, now: Instant, view: &[u8]) -> Result<usize, Error> {
        let Some(packet) = next_packet(view, REPLY_LEN_MAX)? else {
            return Ok(0);
        };
        if packet.kind == fxp::SSH_FXP_VERSION || self.server.is_none() {
            self.on_version(now, packet)?;
            return Ok(packet.total_len);
        }
        let (id, reply) = Reply::parse(packet)?;
        let purpose = self.table.purpose(id).ok_or(Misbehaviour::UnknownId(id))?;
        self.stats.replies += 1;
        match purpose {
            Purpose::Call { expect, .. } => {
                check_answers(expect, packet.kind, &reply)?;
                self.end_call(now, id);
                self.replies_bytes += packet.total_len;
                let message = ReplyMessage::new(packet);
                self.replies.insert(RequestId(id), message);
                self.events.push_back(Event::Reply(RequestId(id)));
            }
            Purpose::Forgotten { expect, .. } => {
                check_answers(expect, packet.kind, &reply)?;
                self.end_call(now, id);
                self.close_unwanted(now, &reply);
            }
            Purpose::Limits => {
                check_answers(Expect::Extended, packet.kind, &reply)?;
                self.end_call(now, id);
                self.on_limits(&reply);
            }
            Purpose::Read { bulk, offset, len } => {
                let (code, text) = status_of(packet.kind, &reply)?;
                self.end_request(now, id, len);
                self.on_read_status(bulk, offset, len, code, text)?;
            }
            Purpose::Write { bulk, offset, len } => {
                let (code, text) = status_of(packet.kind, &reply)?;
                self.end_request(now, id, len);
                self.on_write_status(bulk, offset, len, code, text);
            }
        }
        Ok(packet.total_len)
    }

    /// The READ or WRITE `id` of `len` bytes is answered.
    fn end_request(&mut self, now: Instant, id: u32, len: u32) {
        if let Some(sent) = self.table.sent(id) {
            self.pipeline.on_reply(now, sent);
            let timeout = self.config.reply_timeout;
            self.overdue.on_answer(now, sent, timeout);
        }
        self.table.remove(id);
        self.pipeline.on_answered(now, len);
    }

    /// A request of another kind is answered.
    fn end_call(&mut self, now: Instant, id: u32) {
        if let Some(sent) = self.table.sent(id) {
            self.pipeline.on_reply(now, sent);
            let timeout = self.config.reply_timeout;
            self.overdue.on_answer(now, sent, timeout);
        }
        self.table.remove(id);
    }

    fn on_version(&mut self, now: Instant, packet: Packet<'_>) -> Result<(), Error> {
        if self.server.is_some() || !self.is_started || packet.kind != fxp::SSH_FXP_VERSION {
            return Err(Misbehaviour::VersionOutOfPlace.into());
        }
        let info = ServerInfo::new(Version::parse(packet)?)?;
        let has_limits = info.has_extension(ext::LIMITS);
        self.server = Some(info);
        self.events.push_back(Event::Ready);
        if has_limits {
            // In front of what was held back: its answer costs no round trip.
            self.submit(now, Purpose::Limits, &Request::Limits)?;
        }
        let moved = self.queue.push(self.held.as_slice());
        debug_assert_eq!(
            moved,
            self.held.len(),
            "the queue's limit is twice that of `held`"
        );
        self.held.consume(moved);
        Ok(())
    }

    /// A refusal or nonsense leaves the limits unknown.
    fn on_limits(&mut self, reply: &Reply<'_>) {
        if let Reply::Extended(payload) = reply
            && let Ok(limits) = Limits::parse(payload)
            && let Some(server) = &mut self.server
        {
            server.set_limits(limits);
            self.adopt_limits();
        }
    }

    fn on_read_status(
        &mut self,
        id: BulkId,
        offset: u64,
        len: u32,
        code: Code,
        text: &[u8],
    ) -> Result<(), Error> {
        if code == Code::Ok {
            return Err(Misbehaviour::WrongReply {
                kind: fxp::SSH_FXP_STATUS,
            }
            .into());
        }
        let is_too_long = code != Code::Eof && self.read_len.on_refused(len);
        self.read_len.on_answered(len);
        if let Some(bulk) = self.bulks.get_mut(id) {
            bulk.outstanding -= 1;
            match &mut bulk.direction {
                Direction::Get(get) if code == Code::Eof => get.on_eof(offset),
                Direction::Get(get) if is_too_long => get.on_refused(offset),
                Direction::Get(_) | Direction::Put(_) => bulk.fail(refusal(code, text, offset)),
            }
        }
        self.settle(id);
        Ok(())
    }

    fn on_write_status(&mut self, id: BulkId, offset: u64, len: u32, code: Code, text: &[u8]) {
        let is_too_long = code != Code::Ok && self.write_len.on_refused(len);
        if code == Code::Ok {
            self.write_len.on_full(len);
        }
        if let Some(bulk) = self.bulks.get_mut(id) {
            bulk.outstanding -= 1;
            match &mut bulk.direction {
                Direction::Put(put) if code == Code::Ok => {
                    put.on_ok(offset);
                    bulk.bytes += u64::from(len);
                    self.note_progress(id);
                }
                Direction::Put(put) if is_too_long => put.on_refused(offset),
                Direction::Put(_) | Direction::Get(_) => bulk.fail(refusal(code, text, offset)),
            }
        }
        self.settle(id);
    }
}

fn too_long(len: u32) -> Error {
    let len_max = REPLY_LEN_MAX;
    Error::InvalidMessage(InvalidMessage::TooLong { len, len_max })
}

fn refusal(code: Code, text: &[u8], offset: u64) -> BulkError {
    let text = text[..text.len().min(STATUS_TEXT_MAX)].to_vec();
    BulkError::Status { code, text, offset }
}

/// The status that answers a READ or a WRITE of a transfer.
fn status_of<'a>(kind: u8, reply: &Reply<'a>) -> Result<(Code, &'a [u8]), Error> {
    match *reply {
        Reply::Status { code, message } => Ok((code, message)),
        Reply::Handle(_)
        | Reply::Data(_)
        | Reply::Name(_)
        | Reply::Attrs(_)
        | Reply::Extended(_) => Err(Misbehaviour::WrongReply { kind }.into()),
    }
}

/// Whether `reply` may answer a request that expects `expect`.
fn check_answers(expect: Expect, kind: u8, reply: &Reply<'_>) -> Result<(), Error> {
    let fits = match reply {
        Reply::Status { code, .. } => *code != Code::Ok || expect.is_ok_enough(),
        Reply::Handle(handle) => {
            Handle::new(handle)?;
            expect == Expect::Handle
        }
        Reply::Data(data) => match expect {
            Expect::Data { len } if data.len() > len as usize => {
                let claimed = data.len() as u32;
                return Err(Misbehaviour::DataTooLong {
                    asked: len,
                    claimed,
                }
                .into());
            }
            Expect::Data { .. } => true,
            Expect::Status
            | Expect::Handle
            | Expect::Name
            | Expect::Attrs
            | Expect::Extended
            | Expect::ExtendedOrOk => false,
        },
        Reply::Name(_) => expect == Expect::Name,
        Reply::Attrs(_) => expect == Expect::Attrs,
        Reply::Extended(_) => matches!(expect, Expect::Extended | Expect::ExtendedOrOk),
    };
    if fits {
        Ok(())
    } else {
        Err(Misbehaviour::WrongReply { kind }.into())
    }
}
