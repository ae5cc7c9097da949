//! A bounded number of futures at once, on one thread: only those that were woken are polled.
//!
//! A wake-up costs O(1), however many futures there are: it names a slot in a queue.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

/// What the wakers of a pool share with it.
#[derive(Debug, Default)]
struct Shared(Mutex<Woken>);

#[derive(Debug, Default)]
struct Woken {
    slots: VecDeque<usize>,
    pool: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Woken> {
        // A poisoned lock still holds a good queue.
        self.0.lock().unwrap_or_else(|lock| lock.into_inner())
    }
}

/// Wakes whatever future is in a slot; made once for a slot.
#[derive(Debug)]
struct Flag {
    slot: usize,
    /// The slot is in the queue.
    is_queued: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let pool = {
            let mut woken = self.shared.lock();
            woken.slots.push_back(self.slot);
            woken.pool.take()
        };
        if let Some(pool) = pool {
            pool.wake();
        }
    }
}

type Running<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

struct Slot<'a, T> {
    future: Option<Running<'a, T>>,
    flag: Arc<Flag>,
    waker: Waker,
}

/// The futures of a pool, polled together.
pub(crate) struct Pool<'a, T> {
    slots: Vec<Slot<'a, T>>,
    free: Vec<usize>,
    shared: Arc<Shared>,
}

impl<'a, T> Pool<'a, T> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            shared: Arc::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a future; it starts with the next [`Pool::next`].
    pub(crate) fn push(&mut self, future: impl Future<Output = T> + 'a) {
        let index = self.free.pop().unwrap_or_else(|| self.add_slot());
        let slot = &mut self.slots[index];
        slot.future = Some(Box::pin(future));
        slot.waker.wake_by_ref();
    }

    fn add_slot(&mut self) -> usize {
        let slot = self.slots.len();
        let flag = Arc::new(Flag {
            slot,
            is_queued: AtomicBool::new(false),
            shared: Arc::clone(&self.shared),
        });
        let waker = Waker::from(Arc::clone(&flag));
        self.slots.push(Slot {
            future: None,
            flag,
            waker,
        });
        slot
    }

    /// Output of the next future that ends; `None` if none runs.
    pub(crate) async fn next(&mut self) -> Option<T> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if self.len() == 0 {
            return Poll::Ready(None);
        }
        while let Some(index) = self.next_woken(cx) {
            let slot = &mut self.slots[index];
            // What wakes it from here on has it polled again.
            slot.flag.is_queued.store(false, Ordering::Release);
            let Some(future) = &mut slot.future else {
                continue;
            };
            let mut cx = Context::from_waker(&slot.waker);
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                slot.future = None;
                self.free.push(index);
                return Poll::Ready(Some(output));
            }
        }
        Poll::Pending
    }

    /// A slot that was woken; if there is none, `cx` is told of the next.
    fn next_woken(&self, cx: &Context<'_>) -> Option<usize> {
        let mut woken = self.shared.lock();
        let slot = woken.slots.pop_front();
        if slot.is_none() {
            woken.pool = Some(cx.waker().clone());
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn all_end_however_they_interleave() {
        let mut pool = Pool::new();
        for number in 0..50u32 {
            pool.push(async move {
                for _ in 0..number % 7 {
                    tokio::task::yield_now().await;
                }
                number
            });
        }
        let mut ended = Vec::new();
        while let Some(number) = pool.next().await {
            ended.push(number);
            if ended.len() == 25 {
                // Into slots that were used before.
                (50..80).for_each(|number| pool.push(async move { number }));
            }
        }
        ended.sort_unstable();
        assert_eq!(ended, (0..80).collect::<Vec<_>>());
        assert_eq!(pool.next().await, None);
    }

    /// The cost of a wake-up does not grow with the futures that sleep.
    #[tokio::test(flavor = "current_thread")]
    async fn who_was_not_woken_is_not_polled() {
        let polls = std::cell::Cell::new(0);
        let mut pool = Pool::new();
        for _ in 0..500 {
            pool.push(std::future::poll_fn(|_| {
                polls.set(polls.get() + 1);
                Poll::<u32>::Pending
            }));
        }
        for number in 0..100 {
            pool.push(async move {
                tokio::task::yield_now().await;
                number
            });
        }
        for _ in 0..100 {
            assert!(pool.next().await.is_some());
        }
        assert_eq!(polls.get(), 500, "once each, when they started");
    }
}
