//! Executor for the tasks that hyper starts, so that a stop waits for them; the
//! budget of bytes and time that a task reads before it lets others run; and the
//! parts of a task that are polled only when something woke them.
//!
//! Both sides of the proxy use them: connections of clients, and to origins.
//! Does not know what a task does.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::clock;

/// Executor that is given to hyper: the tasks that hyper starts for its
/// connections join those that a stop waits for.
#[derive(Debug, Clone, Default)]
pub struct Tasks(pub TaskTracker);

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// Bytes that a task reads before others run.
pub(crate) const BUDGET_BYTES: usize = 128 * 1024;

/// Time for which a task reads before others run.
///
/// Bytes are a poor measure of the work that they cause: to pass on 128 KiB of a body
/// takes some 70 us, and to read as many of the smallest HTTP/2 frames, each of which
/// is answered, more than 2 ms, for which requests of other clients would wait again
/// and again.
const BUDGET_TIME: Duration = Duration::from_micros(100);

/// Bytes after which a task looks at the clock. Most messages are shorter.
const UNTIMED_BYTES: usize = 2048;

/// Most bytes of one read.
///
/// hyper doubles its buffer while reads fill it, up to the length that a head may
/// have. Of an origin that sends faster than a client takes, each connection would
/// keep several buffers of that length, made anew for each read. Half of this takes
/// twice as many writes for a large body. Twice as much takes 1 or 2 % less of the CPU
/// for it, and a client that is slow would look like one that takes nothing: what it
/// takes is counted when it wants what the next read has brought (`pace.max_stall`,
/// `proxy.min_progress`). One byte less than a power of two, so that a read never fills
/// the buffer of that length.
const READ_BYTES_MAX: u64 = 64 * 1024 - 1;

/// Budget of a task that reads from a peer.
///
/// hyper parses input until there is no more. A peer that sends faster than its
/// input is parsed (a chunk size of endless zeros, interim responses, empty
/// frames) would keep a thread to itself.
#[derive(Debug, Clone, Default)]
pub struct ReadBudget {
    /// Bytes read since the last wait.
    used: usize,
    /// Time at which there were more than [`UNTIMED_BYTES`] of them.
    since: Option<Instant>,
}

impl ReadBudget {
    /// Reads from `stream`, if some of the budget is left, and takes the bytes from
    /// it. A read that waits for input renews the budget.
    ///
    /// Pending if the budget is used up. The task then has a new one, and is
    /// woken at once: it goes on after the tasks that are ready now.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_used_up() {
            // The input goes on, so the clock counts from the next read.
            self.used = UNTIMED_BYTES;
            self.since = None;
            // Nothing else would wake the task, because its input has come already.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        // Most buffers have less room than that, and need no limit.
        let polled = if buffer.remaining() as u64 <= READ_BYTES_MAX {
            Pin::new(stream).poll_read(cx, buffer)
        } else {
            Pin::new(&mut stream.take(READ_BYTES_MAX)).poll_read(cx, buffer)
        };
        let bytes = buffer.filled().len() - before;
        // While the task waits for input, the others run anyway.
        if polled.is_pending() {
            *self = Self::default();
        } else {
            self.used = self.used.saturating_add(bytes);
        }
        polled
    }

    fn is_used_up(&mut self) -> bool {
        if self.used < UNTIMED_BYTES {
            return false;
        }
        let now = clock::instant();
        let since = *self.since.get_or_insert(now);
        BUDGET_BYTES <= self.used || BUDGET_TIME <= now - since
    }
}

/// Wakes of one part of a task, told from those of its other parts. The part is
/// polled only after a wake of its own.
///
/// A connection is polled several times for each request, and its timers and
/// signals beside it would be asked each time, though they have hardly ever
/// anything to say.
#[derive(Debug, Default)]
pub struct OwnWakes(Option<Arc<WakeFlag>>);

#[derive(Debug)]
struct WakeFlag {
    is_woken: AtomicBool,
    task: Waker,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl OwnWakes {
    /// Polls the part by `poll`, if it was woken since, or was ready or has not
    /// been polled at all.
    pub fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let known = self.0.take();
        // A task that moves to another waker must leave that with the part.
        let flag = match known.filter(|flag| flag.task.will_wake(cx.waker())) {
            Some(flag) if !flag.is_woken.load(Ordering::Relaxed) => {
                self.0 = Some(flag);
                return Poll::Pending;
            }
            Some(flag) => flag,
            None => Arc::new(WakeFlag {
                is_woken: AtomicBool::new(true),
                task: cx.waker().clone(),
            }),
        };
        // Before the poll, so that no wake after it is lost.
        flag.is_woken.swap(false, Ordering::AcqRel);
        let polled = poll(&mut Context::from_waker(&Waker::from(Arc::clone(&flag))));
        if polled.is_ready() {
            flag.is_woken.store(true, Ordering::Relaxed);
        }
        self.0 = Some(flag);
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    // Ours: a thousand clients that take nothing made the proxy ask the system for
    // memory in each read.
    #[tokio::test]
    async fn a_read_takes_no_more_than_its_part_of_a_large_buffer() {
        let input = vec![7; 3 * READ_BYTES_MAX as usize];
        let (mut stream, mut budget) = (&input[..], ReadBudget::default());
        let mut bytes = vec![0; input.len()];
        let mut buffer = ReadBuf::new(&mut bytes);
        let mut context = Context::from_waker(Waker::noop());
        for reads in 1..=2 {
            let polled = budget.poll_read(&mut context, &mut stream, &mut buffer);
            assert!(polled.is_ready());
            assert_eq!(buffer.filled().len(), reads * READ_BYTES_MAX as usize);
        }
    }

    // Ours: beside endless SETTINGS of one client, another had a third of its rate.
    #[test]
    fn a_task_whose_input_takes_long_to_parse_lets_others_run() {
        let input = vec![7; BUDGET_BYTES];
        let (mut stream, mut budget) = (&input[..], ReadBudget::default());
        let mut context = Context::from_waker(Waker::noop());
        // Of the first turn, one read is too short for the clock.
        for most in [2, 1, 1] {
            let mut bytes = [0; UNTIMED_BYTES];
            for _ in 0..most {
                let mut buffer = ReadBuf::new(&mut bytes);
                let polled = budget.poll_read(&mut context, &mut stream, &mut buffer);
                assert!(polled.is_ready());
                std::thread::sleep(BUDGET_TIME);
            }
            let mut buffer = ReadBuf::new(&mut bytes);
            let polled = budget.poll_read(&mut context, &mut stream, &mut buffer);
            assert!(polled.is_pending());
        }
    }

    // Ours: nothing is polled without a wake of its own, and no wake is lost.
    #[tokio::test]
    async fn a_part_is_polled_after_its_own_wakes_only() {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let (mut wakes, mut polls) = (OwnWakes::default(), 0);
        let mut poll_now = async || {
            poll_fn(|cx| {
                Poll::Ready(wakes.poll(cx, |cx| {
                    polls += 1;
                    let received = receiver.poll_recv(cx);
                    received.map(|value: Option<u8>| (value, polls))
                }))
            })
            .await
        };
        for _ in 0..3 {
            assert_eq!(poll_now().await, Poll::Pending);
        }
        sender.send(1).unwrap();
        assert_eq!(poll_now().await, Poll::Ready((Some(1), 2)));
        // What was ready may be ready again.
        assert_eq!(poll_now().await, Poll::Pending);
        assert_eq!(poll_now().await, Poll::Pending);
        sender.send(2).unwrap();
        assert_eq!(poll_now().await, Poll::Ready((Some(2), 4)));
    }

    // Ours: a part whose task has got another waker must wake that one.
    #[tokio::test]
    async fn a_part_is_polled_anew_in_another_task() {
        let mut wakes = OwnWakes::default();
        poll_fn(|cx| {
            assert!(wakes.poll(cx, |_| Poll::<()>::Pending).is_pending());
            Poll::Ready(())
        })
        .await;
        let mut another = Context::from_waker(Waker::noop());
        assert!(wakes.poll(&mut another, |_| Poll::Ready(())).is_ready());
    }
}
