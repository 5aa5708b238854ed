//! Progress of responses at their clients: a client that takes next to nothing is
//! told from an origin that sends nothing, and loses what it holds.
//!
//! What is counted is what a body has given away. The buffers behind it (hyper's,
//! the system's) are filled at once, so a client that takes nothing is seen once
//! they are full. Does not know bodies.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::rt::Executor;

use politesse_base::metrics::{Metrics, ResultLabel};
use politesse_base::tasks::Tasks;

/// The least that a client takes of a response, or sends of an upload, in the
/// time in which nothing else is waited for.
#[derive(Debug, Clone, Copy)]
pub struct MinimumProgress {
    /// Bytes (`proxy.min_progress`); none for no minimum.
    pub bytes: usize,
    /// Time (`proxy.progress_window`).
    pub window: Duration,
}

/// Progress of one response after the other.
#[derive(Debug, Default)]
pub struct ResponseProgress {
    /// A `RESPONSE_*` or `NO_RESPONSE`.
    state: AtomicU8,
    /// Whether the client had taken all that there was, at some time since the
    /// last check.
    has_kept_up: AtomicBool,
    /// Bytes given away since the last check.
    bytes: AtomicUsize,
    /// Whether the client was too slow, which ends the response.
    is_cut: AtomicBool,
}

/// There is no response, or it has been given away whole.
const NO_RESPONSE: u8 = 0;
/// The client has yet to take what was given away.
const RESPONSE_AT_CLIENT: u8 = 1;
/// The origin has yet to send more.
const RESPONSE_AT_ORIGIN: u8 = 2;

// Relaxed throughout: a check that comes a moment late is no harm.
impl ResponseProgress {
    /// Counts a part of the response that is given away.
    pub fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.set(RESPONSE_AT_CLIENT);
    }

    /// Records that the client wants more, and the origin has not sent it.
    pub fn wait_for_origin(&self) {
        self.set(RESPONSE_AT_ORIGIN);
    }

    /// Records that nothing is left to give away.
    pub fn end(&self) {
        self.set(NO_RESPONSE);
    }

    /// Reports whether a part of a response has been given away, and not yet all
    /// of it.
    pub fn is_under_way(&self) -> bool {
        self.state.load(Ordering::Relaxed) != NO_RESPONSE
    }

    /// Reports whether the response is cut because its client was too slow.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Returns whether the response is to be cut: the client has taken fewer than
    /// `least` bytes since the last call, although there were more for it all the time.
    pub fn cut_if_slow(&self, least: usize) -> bool {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        let has_kept_up = self.has_kept_up.swap(false, Ordering::Relaxed);
        // Read last: a part that is given away meanwhile counts for the next call.
        let is_at_client = self.state.load(Ordering::Relaxed) == RESPONSE_AT_CLIENT;
        let is_slow = is_at_client && !has_kept_up && bytes < least;
        self.is_cut.store(is_slow, Ordering::Relaxed);
        is_slow
    }

    fn set(&self, state: u8) {
        // Set by the body alone, so nothing comes in between.
        if self.state.load(Ordering::Relaxed) != state {
            self.state.store(state, Ordering::Relaxed);
            self.has_kept_up.store(true, Ordering::Relaxed);
        }
    }
}

tokio::task_local! {
    /// Progress of the response on the HTTP/2 stream that this task serves.
    pub static STREAM: Arc<ResponseProgress>;
}

/// Executor of the tasks of an HTTP/2 connection, one for each stream. A stream
/// whose client takes next to nothing is ended, and only that.
#[derive(Debug, Clone)]
pub struct StreamTasks {
    /// Tasks that a stop waits for.
    pub tasks: Tasks,
    /// The least that a stream must take.
    pub least: MinimumProgress,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

impl<F> Executor<F> for StreamTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let Self { least, .. } = *self;
        let metrics = Arc::clone(&self.metrics);
        self.tasks.0.spawn(async move {
            let progress = Arc::<ResponseProgress>::default();
            let mut served = std::pin::pin!(STREAM.scope(Arc::clone(&progress), stream));
            loop {
                // hyper asks the body for nothing while the client gives no window,
                // and answers PINGs elsewhere: nobody else would notice.
                let window = tokio::time::timeout(least.window, served.as_mut());
                if window.await.is_ok() {
                    return;
                }
                if progress.cut_if_slow(least.bytes) {
                    count_slow(&metrics, "response");
                    // The drop resets the stream.
                    return;
                }
            }
        });
    }
}

/// Counts a client that was too slow with `what`.
pub fn count_slow(metrics: &Metrics, what: &'static str) {
    let slow = &metrics.slow_clients;
    slow.get_or_create(&ResultLabel { result: what }).inc();
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn a_client_is_slow_that_has_something_to_take_for_the_whole_window() {
        let progress = ResponseProgress::default();
        assert!(!progress.cut_if_slow(10), "no response");
        progress.add(1000);
        assert!(!progress.cut_if_slow(10), "it has just begun");
        assert!(progress.cut_if_slow(10), "nothing taken");
        progress.add(9);
        assert!(progress.cut_if_slow(10), "too little");
        progress.add(10);
        assert!(!progress.cut_if_slow(10), "enough");
        progress.add(1);
        progress.wait_for_origin();
        assert!(!progress.cut_if_slow(10), "all was taken");
        assert!(!progress.cut_if_slow(10), "the origin is slow");
        progress.add(1);
        assert!(!progress.cut_if_slow(10), "the origin was slow");
        assert!(progress.cut_if_slow(10), "the client is slow");
        progress.end();
        assert!(!progress.cut_if_slow(10) && !progress.is_under_way());
    }
}
