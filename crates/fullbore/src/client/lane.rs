//! One SFTP session of a connection: calls and transfers that wait for the server.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use fullbore_sftp::client::{self as sftp, BulkId, Client, Handle, ReplyMessage, RequestId};
use fullbore_sftp::proto::Request;
use fullbore_ssh::ChannelId;

use super::ahead::{AHEAD_MAX, Ahead, changes_nothing};
use super::connection::Connection;
use super::error::Error;
use super::waiting::{BulkState, wait};
use crate::transfer::{FileIo, Span};

/// A lane; closed when dropped.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) connection: Connection,
    ch: ChannelId,
    /// What was asked ahead, as encoded, and is not yet claimed by a call.
    ahead: RefCell<Vec<(Vec<u8>, RequestId)>>,
}

/// What of a file is transferred.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// All that is left of it, in turn with other transfers of the session.
    Rest(Span),
    /// One of several parts that follow each other: they are asked for one after the other.
    Unit(Span),
}

impl Part {
    const fn span(self) -> Span {
        match self {
            Self::Rest(span) | Self::Unit(span) => span,
        }
    }

    fn order(self, client: &mut Client, id: BulkId) {
        match self {
            Self::Rest(_) => {}
            Self::Unit(_) => client.hold_turn(id),
        }
    }
}

/// How far a transfer is, and how it ended.
#[derive(Clone, Debug)]
pub struct Transferred {
    /// File bytes that arrived, or were confirmed by the server.
    pub bytes: u64,
    /// Everything from the start offset to here was transferred, without a hole: the end of the
    /// file if there was no error, else where a resumed transfer may start.
    pub end: u64,
    /// Why it ended early.
    pub error: Option<Error>,
}

/// Progress of a transfer, as told while it runs.
pub use fullbore_sftp::client::Progress;

impl Lane {
    pub(super) fn open(connection: &Connection, config: sftp::Config) -> Result<Self, Error> {
        let core = &connection.core;
        let ch = core.change(|state, now| match state.closed() {
            Some(error) => Err(error.clone()),
            None => state
                .session
                .open_lane(now, config)
                .map_err(|error| Error::Closed(error.to_string().into())),
        })?;
        Ok(Self {
            connection: connection.clone(),
            ch,
            ahead: RefCell::default(),
        })
    }

    /// Sends requests whose answers nobody waits for yet: the first call that asks the same gets them,
    /// unless something was changed meanwhile. What is asked already, and what there is no room for,
    /// is left out.
    pub(super) fn ask_ahead(&self, questions: &[Ahead]) -> Result<(), Error> {
        for question in questions {
            let request = question.request();
            let asked = encoded(&request);
            if self.ahead.borrow().iter().any(|(bytes, _)| *bytes == asked) {
                continue;
            }
            if self.ahead.borrow().len() >= AHEAD_MAX || !self.with(Client::has_room) {
                break;
            }
            let id = self.submit(&request)?;
            self.ahead.borrow_mut().push((asked, id));
        }
        Ok(())
    }

    /// The request that was sent ahead for `request`, if one was.
    fn claim(&self, request: &Request<'_>) -> Option<RequestId> {
        let mut ahead = self.ahead.borrow_mut();
        if ahead.is_empty() {
            return None;
        }
        if changes_nothing(request) {
            let wanted = encoded(request);
            let at = ahead.iter().position(|(asked, _)| *asked == wanted)?;
            return Some(ahead.swap_remove(at).1);
        }
        for (_, id) in ahead.drain(..) {
            self.forget(id);
        }
        None
    }

    fn forget(&self, id: RequestId) {
        self.connection.core.change(|state, _| {
            state.lanes.of(self.ch).calls.remove(&id);
            if let Some(client) = state.session.lane_mut(self.ch) {
                client.forget(id);
            }
        });
    }

    /// Waits until the server has answered the greeting.
    pub(super) async fn ready(&self) -> Result<(), Error> {
        let core = &self.connection.core;
        poll_fn(|cx| {
            core.note(|state| {
                if let Some(error) = state.lane_error(self.ch) {
                    return Poll::Ready(Err(error));
                }
                let client = state.session.lane(self.ch);
                if client.is_some_and(|client| client.server_info().is_some()) {
                    return Poll::Ready(Ok(()));
                }
                state.lanes.of(self.ch).ready.push(cx.waker().clone());
                Poll::Pending
            })
        })
        .await
    }

    /// Looks at the SFTP client.
    pub(super) fn with<R>(&self, body: impl FnOnce(&Client) -> R) -> R {
        let core = &self.connection.core;
        core.look(|state| body(state.session.lane(self.ch).expect("this lane is open")))
    }

    /// Changes the SFTP client.
    pub(super) fn change<R>(&self, body: impl FnOnce(&mut Client) -> R) -> R {
        let core = &self.connection.core;
        core.change(|state, _| body(state.session.lane_mut(self.ch).expect("this lane is open")))
    }

    /// Asks, and waits for the reply. When dropped, the reply is not waited for.
    pub(super) async fn call(&self, request: &Request<'_>) -> Result<ReplyMessage, Error> {
        self.room(Client::has_room).await?;
        let mut call = self.ask(request)?;
        poll_fn(|cx| call.poll(cx)).await
    }

    /// Asks several things one directly behind the other, and waits for all replies.
    pub(super) async fn calls<const N: usize>(
        &self,
        requests: [Option<Request<'_>>; N],
    ) -> Result<[Option<ReplyMessage>; N], Error> {
        self.room(|client| client.has_room_for(N)).await?;
        let mut calls = Vec::with_capacity(N);
        // Nothing comes between them: no other task runs before this is awaited.
        for request in &requests {
            calls.push(request.as_ref().map(|r| self.ask(r)).transpose()?);
        }
        let mut replies = [const { None }; N];
        for (reply, call) in replies.iter_mut().zip(&mut calls) {
            if let Some(call) = call {
                *reply = Some(poll_fn(|cx| call.poll(cx)).await?);
            }
        }
        Ok(replies)
    }

    /// Asks, and does not want to know what came of it.
    pub(super) async fn tell(&self, request: &Request<'_>) -> Result<(), Error> {
        self.room(Client::has_room).await?;
        drop(self.ask(request)?);
        Ok(())
    }

    fn ask(&self, request: &Request<'_>) -> Result<Call<'_>, Error> {
        let id = match self.claim(request) {
            Some(id) => id,
            None => self.submit(request)?,
        };
        Ok(Call {
            lane: self,
            id: Some(id),
        })
    }

    fn submit(&self, request: &Request<'_>) -> Result<RequestId, Error> {
        self.connection.core.change(|state, now| {
            let client = state.session.lane_mut(self.ch).expect("this lane is open");
            let id = client.request(now, request)?;
            state.lanes.of(self.ch).calls.insert(id, None);
            Ok(id)
        })
    }

    /// Reads a span of a file into `file`.
    pub(super) async fn get(
        &self,
        handle: &Handle,
        file: Rc<dyn FileIo>,
        part: Part,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Transferred, Error> {
        let handle = handle.clone();
        let span = part.span();
        let start = |client: &mut Client, now| {
            let id = match span.end_max {
                None => client.start_get(now, handle, span.offset, span.size_hint),
                Some(end) => client.start_get_range(now, handle, span.offset..end),
            }?;
            part.order(client, id);
            Ok(id)
        };
        self.transfer(file, span, start, progress).await
    }

    /// Writes a span of `file` to a file.
    pub(super) async fn put(
        &self,
        handle: &Handle,
        file: Rc<dyn FileIo>,
        part: Part,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Transferred, Error> {
        let handle = handle.clone();
        let span = part.span();
        let start = |client: &mut Client, now| {
            let id = match span.end_max {
                None => client.start_put(now, handle, span.offset),
                Some(end) => client.start_put_range(now, handle, span.offset..end),
            }?;
            part.order(client, id);
            Ok(id)
        };
        self.transfer(file, span, start, progress).await
    }

    /// The channel's id and the connection's state, for counters.
    pub(super) fn look<R>(&self, body: impl FnOnce(&super::core::State, ChannelId) -> R) -> R {
        self.connection.core.look(|state| body(state, self.ch))
    }

    async fn transfer(
        &self,
        file: Rc<dyn FileIo>,
        span: Span,
        start: impl FnOnce(&mut Client, fullbore_base::Instant) -> Result<BulkId, sftp::Error>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Transferred, Error> {
        self.room(Client::has_bulk_room).await?;
        let core = &self.connection.core;
        let id = core.change(|state, now| {
            let client = state.session.lane_mut(self.ch).expect("this lane is open");
            let id = start(client, now)?;
            let lane = state.lanes.of(self.ch);
            lane.files.0.insert(id, file);
            lane.bulks.insert(id, BulkState::default());
            Ok::<_, Error>(id)
        })?;
        let mut bulk = Bulk {
            lane: self,
            id: Some(id),
            told: 0,
            offset: span.offset,
        };
        Ok(poll_fn(|cx| bulk.poll(cx, progress)).await)
    }

    /// Waits until `has_room`.
    async fn room(&self, has_room: impl Fn(&Client) -> bool) -> Result<(), Error> {
        let core = &self.connection.core;
        poll_fn(|cx| {
            core.note(|state| {
                if let Some(error) = state.lane_error(self.ch) {
                    return Poll::Ready(Err(error));
                }
                if state.session.lane(self.ch).is_some_and(&has_room) {
                    return Poll::Ready(Ok(()));
                }
                state.lanes.of(self.ch).room.push_back(cx.waker().clone());
                Poll::Pending
            })
        })
        .await
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.connection.core.change(|state, _| {
            state.session.close_lane(self.ch);
            state.lanes.remove(self.ch);
        });
    }
}

/// A call that waits. Forgets its request when dropped.
struct Call<'a> {
    lane: &'a Lane,
    id: Option<RequestId>,
}

impl Call<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<ReplyMessage, Error>> {
        let id = self.id.expect("polled until ready");
        let (ch, core) = (self.lane.ch, &self.lane.connection.core);

        let result = core.note(|state| {
            // A reply that came before the end counts.
            let client = state.session.lane_mut(ch).expect("this lane is open");
            if let Some(reply) = client.take_reply(id) {
                state.lanes.of(ch).calls.remove(&id);
                return Poll::Ready(Ok(reply));
            }
            if let Some(error) = state.lane_error(ch) {
                state.lanes.of(ch).calls.remove(&id);
                return Poll::Ready(Err(error));
            }
            wait(state.lanes.of(ch).calls.entry(id).or_default(), cx);
            Poll::Pending
        });
        if result.is_ready() {
            self.id = None;
            // Input may have waited until replies are taken.
            core.wake_task();
        }
        result
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.lane.forget(id);
        }
    }
}

/// A request without its number: equal for equal questions.
fn encoded(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(0, &mut bytes);
    bytes
}

/// A transfer that runs. Cancelled when dropped.
struct Bulk<'a> {
    lane: &'a Lane,
    id: Option<BulkId>,
    /// Bytes told last.
    told: u64,
    /// Where it started.
    offset: u64,
}

impl Bulk<'_> {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Poll<Transferred> {
        let id = self.id.expect("polled until ready");
        let (ch, core) = (self.lane.ch, &self.lane.connection.core);
        let (report, now_at, error) = core.note(|state| {
            let error = state.lane_error(ch);
            let client = state.session.lane_mut(ch).expect("this lane is open");
            let now_at = client.progress(id);
            let report = client.take_bulk(id);
            let lane = state.lanes.of(ch);
            if report.is_some() || error.is_some() {
                lane.bulks.remove(&id);
                lane.files.0.remove(&id);
            } else {
                wait(&mut lane.bulks.entry(id).or_default().waker, cx);
            }
            (report, now_at, error)
        });
        if let Some(now_at) = now_at
            && now_at.bytes != self.told
        {
            self.told = now_at.bytes;
            progress(now_at);
        }
        let done = match (report, error) {
            (Some(report), error) => Transferred {
                bytes: report.bytes,
                end: report.end,
                error: report
                    .error
                    .map(|error| Error::Bulk(error.into()))
                    .or(error),
            },
            (None, Some(error)) => Transferred {
                bytes: now_at.map_or(0, |at| at.bytes),
                end: now_at.map_or(self.offset, |at| at.frontier),
                error: Some(error),
            },
            (None, None) => return Poll::Pending,
        };
        self.id = None;
        Poll::Ready(done)
    }
}

impl Drop for Bulk<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let ch = self.lane.ch;
        self.lane.connection.core.change(|state, _| {
            let lane = state.lanes.of(ch);
            lane.files.0.remove(&id);
            lane.bulks.entry(id).or_default().is_forgotten = true;
            if let Some(client) = state.session.lane_mut(ch) {
                client.cancel(id);
            }
        });
    }
}
