//! A bounded number of futures at once, on one thread: only those that were woken are polled.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Wakes one future of a pool.
#[derive(Debug)]
struct Flag {
    is_woken: AtomicBool,
    pool: Mutex<Option<Waker>>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        // A poisoned lock still holds a good waker.
        let pool = self
            .pool
            .lock()
            .unwrap_or_else(|lock| lock.into_inner())
            .clone();
        if let Some(pool) = pool {
            pool.wake();
        }
    }
}

/// The futures of a pool, polled together.
pub(crate) struct Pool<'a, T> {
    running: Vec<(Arc<Flag>, Running<'a, T>)>,
}

type Running<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

impl<'a, T> Pool<'a, T> {
    pub(crate) const fn new() -> Self {
        Self {
            running: Vec::new(),
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.running.len()
    }

    /// Adds a future; it starts with the next [`Pool::next`].
    pub(crate) fn push(&mut self, future: impl Future<Output = T> + 'a) {
        let flag = Flag {
            is_woken: AtomicBool::new(true),
            pool: Mutex::new(None),
        };
        self.running.push((Arc::new(flag), Box::pin(future)));
    }

    /// Output of the next future that ends; `None` if none runs.
    pub(crate) async fn next(&mut self) -> Option<T> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if self.running.is_empty() {
            return Poll::Ready(None);
        }
        for at in 0..self.running.len() {
            let (flag, future) = &mut self.running[at];
            {
                let mut pool = flag.pool.lock().unwrap_or_else(|lock| lock.into_inner());
                match &mut *pool {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => *pool = Some(cx.waker().clone()),
                }
            }
            if !flag.is_woken.swap(false, Ordering::Acquire) {
                continue;
            }
            let waker = Waker::from(Arc::clone(flag));
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                drop(self.running.swap_remove(at));
                return Poll::Ready(Some(output));
            }
        }
        Poll::Pending
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
        }
        ended.sort_unstable();
        assert_eq!(ended, (0..50).collect::<Vec<_>>());
        assert_eq!(pool.next().await, None);
    }
}
