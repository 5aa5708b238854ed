//! Tools for the tasks of connections: an executor whose tasks shutdown waits for, a
//! budget that makes a task yield to others while it reads, and wakers that limit polling
//! to the part of a task that was woken.
//!
//! Connections of clients and connections to origins both use these tools. Does not know
//! what a task does.

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

/// Executor for hyper. Tracks the tasks that hyper starts for its connections, so that
/// shutdown can wait for them.
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

/// Number of bytes that a task reads before others run.
pub(crate) const BUDGET_BYTES: usize = 128 * 1024;

/// Time that a task reads before others run.
///
/// The number of bytes is a poor measure of work: passing on 128 KiB of a body takes
/// about 70 µs, but reading 128 KiB of the smallest HTTP/2 frames, each of which needs an
/// answer, takes more than 2 ms. Requests of other clients would repeatedly wait that long.
const BUDGET_TIME: Duration = Duration::from_micros(100);

/// Number of bytes after which a task reads the clock. Most messages are shorter.
const UNTIMED_BYTES: usize = 2048;

/// Maximum number of bytes of one read.
///
/// hyper doubles its buffer while reads fill it, up to the maximum length of a head. If
/// an origin sends faster than the client reads, each connection would hold several
/// buffers of that length, reallocated for each read.
///
/// Half this value needs twice as many writes for a large body. Twice this value saves
/// only 1 or 2 % of CPU time, and makes a slow client look stalled: its progress counts
/// only when it asks for the data of the next read (`pace.max_stall`,
/// `proxy.min_progress`). The value is one byte less than a power of two, so that a read
/// never fills a buffer of that length.
const READ_BYTES_MAX: u64 = 64 * 1024 - 1;

/// Budget of a task that reads from a peer.
///
/// hyper parses input until it runs out. A peer that sends faster than hyper
/// parses (a chunk size of endless zeros, interim responses, empty frames) would occupy
/// a thread forever.
#[derive(Debug, Clone, Default)]
pub struct ReadBudget {
    /// Bytes read since the last wait.
    used: usize,
    /// Time at which the task first read the clock, after [`UNTIMED_BYTES`].
    since: Option<Instant>,
}

impl ReadBudget {
    /// Reads from `stream` and charges the bytes to the budget. A read that has to wait
    /// for input renews the budget.
    ///
    /// Returns pending if the budget is used up. The task then gets a new budget and is
    /// woken at once, so it continues after the tasks that are ready now.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_used_up() {
            // More input is likely, so the new budget is timed from its first read.
            self.used = UNTIMED_BYTES;
            self.since = None;
            // Nothing else would wake the task, because its input has already arrived.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        // Most buffers have less room, and need no wrapper that limits the read.
        let polled = if buffer.remaining() as u64 <= READ_BYTES_MAX {
            Pin::new(stream).poll_read(cx, buffer)
        } else {
            Pin::new(&mut stream.take(READ_BYTES_MAX)).poll_read(cx, buffer)
        };
        let bytes = buffer.filled().len() - before;
        // Other tasks run anyway while this one waits for input.
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

/// Waker for one part of a task, so that the part is polled only after its own wakes.
///
/// A connection is polled several times for each request. Without this type, its timers
/// and signals would be polled every time, although they are rarely ready.
#[derive(Debug, Default)]
pub struct OwnWakes(Option<Arc<WakeFlag>>);

/// Wake of one part, and the task to pass it on to.
#[derive(Debug)]
struct WakeFlag {
    /// Whether the part must be polled: it was woken, or was ready at the last poll.
    is_woken: AtomicBool,
    /// Waker of the task that polled the part last.
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
    /// Calls `poll` if the part was woken since the last call, was ready then, or has
    /// never been polled. Otherwise returns pending.
    pub fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let known = self.0.take();
        // A task that now has another waker must register it with the part.
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
        // Cleared before the poll, so that no wake during it is lost.
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

    // Ours: with a thousand clients that read nothing, each read allocated memory.
    #[tokio::test]
    async fn one_read_fills_only_a_limited_part_of_a_large_buffer() {
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

    // Ours: endless SETTINGS frames of one client cut the rate of another to a third.
    #[test]
    fn a_task_whose_input_is_slow_to_parse_yields_to_others() {
        let input = vec![7; BUDGET_BYTES];
        let (mut stream, mut budget) = (&input[..], ReadBudget::default());
        let mut context = Context::from_waker(Waker::noop());
        // The first turn has one more read, which comes before the clock is read.
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

    // Ours: no wake is lost either.
    #[tokio::test]
    async fn a_part_is_polled_only_after_its_own_wakes() {
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
        // A part that was ready may be ready again.
        assert_eq!(poll_now().await, Poll::Pending);
        assert_eq!(poll_now().await, Poll::Pending);
        sender.send(2).unwrap();
        assert_eq!(poll_now().await, Poll::Ready((Some(2), 4)));
    }

    // Ours: the part must wake the task that polls it now.
    #[tokio::test]
    async fn a_part_is_polled_again_after_a_change_of_waker() {
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
