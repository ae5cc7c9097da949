//! Requests going out: the caller's first, then READs and WRITEs of the transfers, one of each
//! transfer in turn.

use std::io::IoSliceMut;

use fullbore_base::{Instant, Outlet, gather};

use super::Client;
use super::bulk::{Blocks, Bulk, BulkId, Direction};
use super::config::READ_BATCH_BYTES;
use super::error::BulkError;
use super::table::Purpose;
use crate::proto::{Request, VERSION, WriteHead, encode_init, write_header, write_header_len};
use crate::wire::SliceSink;

/// What became of an attempt to send one WRITE.
enum Sent {
    Yes,
    /// The source had no more, or failed.
    Ended,
    /// The outlet has no room.
    Blocked,
}

impl Client {
    /// Writes what may be sent now into `out`; returns whether it wrote anything. Call again when
    /// the outlet has room again, or after [`Client::handle_input`] or a new request. A source that
    /// turns out to be at its end makes an event and nothing to send: poll events afterwards.
    #[must_use = "what was written waits in the outlet for the transport to move"]
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        out: &mut dyn Outlet,
        blocks: &mut dyn Blocks,
    ) -> bool {
        if self.error.is_some() {
            return false;
        }
        if !self.is_started {
            self.start_session(now);
        }
        let mut has_sent = false;
        loop {
            let mut moved = self.flush(out);
            if self.server.is_some() && self.queue.is_empty() {
                moved |= self.next_bulk_requests(now, out, blocks);
            }
            if !moved {
                return has_sent;
            }
            has_sent = true;
        }
    }

    fn start_session(&mut self, now: Instant) {
        self.is_started = true;
        self.on_busy(now);
        let mut init = Vec::with_capacity(9);
        encode_init(&mut init, VERSION);
        // In front of requests that are to be pipelined behind it.
        init.extend_from_slice(self.queue.as_slice());
        self.queue.consume(self.queue.len());
        let taken = self.queue.push(&init);
        debug_assert_eq!(
            taken,
            init.len(),
            "the queue's limit is above what requests may use"
        );
    }

    /// Moves queued requests to the outlet: many in one message, possibly ending inside one.
    fn flush(&mut self, out: &mut dyn Outlet) -> bool {
        let len = self.queue.len().min(out.room());
        if len == 0 {
            return false;
        }
        let bytes = &self.queue.as_slice()[..len];
        let is_emitted = out.emit(len, &mut |slices| {
            fullbore_base::scatter(slices, 0, bytes);
            len
        });
        if is_emitted {
            self.queue.consume(len);
        }
        is_emitted
    }

    /// Makes READs, up to a batch of them in the queue, or one WRITE; false if nothing can be
    /// sent now.
    fn next_bulk_requests(
        &mut self,
        now: Instant,
        out: &mut dyn Outlet,
        blocks: &mut dyn Blocks,
    ) -> bool {
        let mut moved = false;
        while self.queue.len() < READ_BATCH_BYTES
            && let Some(&id) = self.ready.front()
        {
            let Some(bulk) = self.bulks.get(id).filter(|bulk| bulk.wants()) else {
                self.end_turn(id);
                continue;
            };
            let is_put = matches!(bulk.direction, Direction::Put(_));
            if !self.may_send_more(now) {
                return moved;
            }
            if !is_put {
                self.send_read(now, id);
            } else if !self.queue.is_empty() {
                // The READs made before go first.
                break;
            } else {
                match self.send_write(now, id, out, blocks) {
                    Sent::Yes => {}
                    Sent::Ended => {
                        self.end_turn(id);
                        self.settle(id);
                        continue;
                    }
                    Sent::Blocked => break,
                }
            }
            moved = true;
            let holds_turn = |bulk: &Bulk| bulk.holds_turn && bulk.wants();
            if !self.bulks.get(id).is_some_and(holds_turn) {
                self.end_turn(id);
                self.note_ready(id);
            }
        }
        if self.ready.is_empty() {
            self.pipeline.on_content(now);
        }
        moved
    }

    fn may_send_more(&mut self, now: Instant) -> bool {
        let max = if self.has_bulk_slot() {
            self.config.outstanding_bytes_max
        } else {
            0
        };
        let is_free = self.pipeline.admits(now, max) && self.has_bulk_slot();
        self.stats.outstanding_limited += u64::from(!is_free);
        is_free
    }

    /// Takes `id` from the front of those that may send.
    fn end_turn(&mut self, id: BulkId) {
        let front = self.ready.pop_front();
        debug_assert_eq!(front, Some(id));
        if let Some(bulk) = self.bulks.get_mut(id) {
            bulk.in_ready = false;
        }
    }

    fn send_read(&mut self, now: Instant, id: BulkId) {
        let bulk = self.bulks.get_mut(id).expect("the caller has looked it up");
        let Direction::Get(get) = &mut bulk.direction else {
            return;
        };
        let size = self.read_len.next().min(bulk.request_len);
        let Some((offset, len)) = get.next_read(size) else {
            return;
        };
        let request_id = self
            .table
            .insert(
                now,
                Purpose::Read {
                    bulk: id,
                    offset,
                    len,
                },
            )
            .expect("has_bulk_slot() was asked");
        self.scratch.clear();
        let handle = bulk.handle.as_bytes();
        Request::Read {
            handle,
            offset,
            len,
        }
        .encode(request_id, &mut self.scratch);
        let taken = self.queue.push(&self.scratch);
        debug_assert_eq!(
            taken,
            self.scratch.len(),
            "a batch is far below the queue's limit"
        );
        bulk.outstanding += 1;
        self.read_len.on_sent(len);
        self.pipeline.on_sent(now, len);
        self.stats.requests += 1;
    }

    fn send_write(
        &mut self,
        now: Instant,
        id: BulkId,
        out: &mut dyn Outlet,
        blocks: &mut dyn Blocks,
    ) -> Sent {
        let bulk = self.bulks.get_mut(id).expect("the caller has looked it up");
        let Direction::Put(put) = &mut bulk.direction else {
            return Sent::Ended;
        };
        let offset = put.next();
        let head_len = write_header_len(bulk.handle.as_bytes().len());
        let len = self.write_len.next().min(bulk.request_len);
        let len_max = u64::from(len).min(put.room()) as usize;
        if len_max == 0 {
            bulk.fail(BulkError::TooLong);
            return Sent::Ended;
        }
        if out.room() < head_len + len_max {
            return Sent::Blocked;
        }
        let purpose = |len| Purpose::Write {
            bulk: id,
            offset,
            len,
        };
        let request_id = self
            .table
            .insert(now, purpose(0))
            .expect("has_bulk_slot() was asked");
        let head = WriteHead {
            handle: bulk.handle.as_bytes(),
            offset,
        };
        let mut outcome = Ok(0);
        let is_emitted = out.emit(head_len + len_max, &mut |slices| {
            outcome = gather(slices, head_len, |body| read_full(id, offset, body, blocks));
            let Ok(n @ 1..) = outcome else { return 0 };
            write_header(&mut SliceSink::new(slices), request_id, head, n);
            head_len + n
        });
        let n = match outcome {
            Ok(n @ 1..) if is_emitted => n as u32,
            Ok(0) if is_emitted => {
                put.end();
                self.table.remove(request_id);
                return Sent::Ended;
            }
            Err(error) => {
                bulk.fail(BulkError::Local { offset, error });
                self.table.remove(request_id);
                return Sent::Ended;
            }
            Ok(_) => {
                self.table.remove(request_id);
                return Sent::Blocked;
            }
        };
        put.on_sent(n);
        self.write_len.on_sent(n);
        bulk.outstanding += 1;
        self.table.set_purpose(request_id, purpose(n));
        self.pipeline.on_sent(now, n);
        self.stats.requests += 1;
        Sent::Yes
    }
}

/// One block. Sources that give less than asked (a pipe, a slow file system) cost a shorter WRITE,
/// nothing else.
fn read_full(
    id: BulkId,
    offset: u64,
    body: &mut [IoSliceMut<'_>],
    blocks: &mut dyn Blocks,
) -> Result<usize, super::BlockError> {
    let room: usize = body.iter().map(|slice| slice.len()).sum();
    let n = blocks.read_at(id, offset, body)?;
    if n > room {
        return Err(super::BlockError::other(
            "the source claims more than was asked",
        ));
    }
    Ok(n)
}
