//! A few threads for calls that may block: bounded in threads and in what waits for them.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads that start when first needed and end when the pool is dropped.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    threads_max: usize,
    queue_max: usize,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("threads_max", &self.shared.threads_max)
            .field("queue_max", &self.shared.queue_max)
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of at most `threads_max` threads in front of which at most `queue_max` jobs wait.
    #[must_use]
    pub fn new(threads_max: usize, queue_max: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                work: Condvar::new(),
                threads_max,
                queue_max,
            }),
        }
    }

    /// Runs `job` on one of the threads. Returns false, and drops the job, when the queue is full
    /// or no thread can be had.
    #[must_use]
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self
            .shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if state.queue.len() >= self.shared.queue_max {
            return false;
        }
        if state.idle <= state.queue.len() && state.threads < self.shared.threads_max {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("fullbore-file".to_owned());
            if builder.spawn(move || shared.serve()).is_ok() {
                state.threads += 1;
            } else if state.threads == 0 {
                return false;
            }
        }
        state.queue.push_back(Box::new(job));
        drop(state);
        self.shared.work.notify_one();
        true
    }

    /// Puts what is left of a running job behind those that wait, full or not: the job has taken
    /// its place before. For jobs of this pool only.
    pub fn requeue(&self, rest: impl FnOnce() + Send + 'static) {
        let mut state = self
            .shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // The thread that calls takes it, if no other does.
        state.queue.push_back(Box::new(rest));
    }

    /// Lets the threads end once the queue is empty.
    pub fn close(&self) {
        let mut state = self
            .shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        state.closed = true;
        drop(state);
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                // A job that panics takes its own result down, not the pool.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            } else if state.closed {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_full_queue_refuses() {
        let pool = Pool::new(1, 1);
        let (started, has_started) = mpsc::channel();
        let (finish, may_finish) = mpsc::channel::<()>();
        assert!(pool.run(move || {
            started.send(()).expect("the test waits");
            may_finish.recv().expect("the test tells");
        }));
        has_started.recv().expect("the first job runs");
        assert!(pool.run(|| {}));
        assert!(!pool.run(|| {}));
        finish.send(()).expect("the job waits");
        pool.close();
    }

    #[test]
    fn what_is_left_of_a_job_runs_behind_the_others() {
        let pool = Pool::new(1, 1);
        let (tx, rx) = mpsc::channel();
        let (finish, may_finish) = mpsc::channel::<()>();
        let (own, first) = (pool.clone(), tx.clone());
        assert!(pool.run(move || {
            may_finish.recv().expect("the test tells");
            let rest = first.clone();
            own.requeue(move || rest.send("rest").expect("the test waits"));
            first.send("first").expect("the test waits");
        }));
        // The queue holds one: it is free once the first job runs.
        while !pool.run({
            let tx = tx.clone();
            move || tx.send("second").expect("the test waits")
        }) {
            std::thread::yield_now();
        }
        finish.send(()).expect("the job waits");
        let seen: Vec<_> = rx.iter().take(3).collect();
        assert_eq!(seen, ["first", "second", "rest"]);
        pool.close();
    }

    #[test]
    fn every_job_runs() {
        let pool = Pool::new(2, 64);
        let (tx, rx) = mpsc::channel();
        for i in 0..32 {
            let tx = tx.clone();
            assert!(pool.run(move || tx.send(i).expect("the test waits")));
        }
        drop(tx);
        let mut seen: Vec<i32> = rx.iter().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..32).collect::<Vec<_>>());
        pool.close();
    }
}
