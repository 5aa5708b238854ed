//! Progress of responses at their clients. Distinguishes a client that reads almost
//! nothing from an origin that sends nothing, and cuts off the slow client.
//!
//! A byte counts when the body hands it on. The buffers after that (hyper's and the
//! kernel's) fill at once, so a client that reads nothing is noticed once they are full.
//! Does not know bodies.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::rt::Executor;

use politesse_base::metrics::{Metrics, ResultLabel};
use politesse_base::tasks::Tasks;

/// Minimum that a client must read of a response, or send of an upload, in a window in
/// which only the client is waited for.
#[derive(Debug, Clone, Copy)]
pub struct MinimumProgress {
    /// Number of bytes (`proxy.min_progress`); 0 for no minimum.
    pub bytes: usize,
    /// Length of the window (`proxy.progress_window`).
    pub window: Duration,
}

/// Progress of consecutive responses.
#[derive(Debug, Default)]
pub struct ResponseProgress {
    /// One of the `RESPONSE_*` constants, or `NO_RESPONSE`.
    state: AtomicU8,
    /// Whether, at any time since the last check, the client had read everything that was
    /// available.
    has_kept_up: AtomicBool,
    /// Bytes handed on since the last check.
    bytes: AtomicUsize,
    /// Whether the response was cut because the client was too slow.
    is_cut: AtomicBool,
}

/// There is no response, or all of it has been handed on.
const NO_RESPONSE: u8 = 0;
/// The client has not yet read what was handed on.
const RESPONSE_AT_CLIENT: u8 = 1;
/// The origin has not yet sent more.
const RESPONSE_AT_ORIGIN: u8 = 2;

// All accesses are relaxed: a check that comes a moment late does no harm.
impl ResponseProgress {
    /// Counts a part of the response that is handed on.
    pub fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.set(RESPONSE_AT_CLIENT);
    }

    /// Records that the client wants more than the origin has sent.
    pub fn wait_for_origin(&self) {
        self.set(RESPONSE_AT_ORIGIN);
    }

    /// Records that the whole response has been handed on.
    pub fn end(&self) {
        self.set(NO_RESPONSE);
    }

    /// Reports whether a response has been handed on in part but not yet completely.
    pub fn is_under_way(&self) -> bool {
        self.state.load(Ordering::Relaxed) != NO_RESPONSE
    }

    /// Reports whether the response was cut because the client was too slow.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Returns whether the response must be cut: the client has read fewer than `least`
    /// bytes since the last call, although more were available all the time.
    pub fn cut_if_slow(&self, least: usize) -> bool {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        let has_kept_up = self.has_kept_up.swap(false, Ordering::Relaxed);
        // Read last, so that a part handed on meanwhile counts for the next call.
        let is_at_client = self.state.load(Ordering::Relaxed) == RESPONSE_AT_CLIENT;
        let is_slow = is_at_client && !has_kept_up && bytes < least;
        self.is_cut.store(is_slow, Ordering::Relaxed);
        is_slow
    }

    fn set(&self, state: u8) {
        // Only the body calls this, so load and store need not be atomic together.
        if self.state.load(Ordering::Relaxed) != state {
            self.state.store(state, Ordering::Relaxed);
            self.has_kept_up.store(true, Ordering::Relaxed);
        }
    }
}

tokio::task_local! {
    /// Progress of the response on the HTTP/2 stream served by this task.
    pub static STREAM: Arc<ResponseProgress>;
}

/// Executor for the tasks of an HTTP/2 connection, one per stream. If the client of a
/// stream reads almost nothing, only that stream is ended.
#[derive(Debug, Clone)]
pub struct StreamTasks {
    /// Tasks that shutdown waits for.
    pub tasks: Tasks,
    /// Minimum that must be read of each stream.
    pub least: MinimumProgress,
    /// Metrics of the proxy.
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
                // hyper does not poll the body while the client grants no window, and
                // answers PINGs elsewhere, so a stalled stream can only be noticed here.
                let window = tokio::time::timeout(least.window, served.as_mut());
                if window.await.is_ok() {
                    return;
                }
                if progress.cut_if_slow(least.bytes) {
                    count_slow(&metrics, "response");
                    // Dropping the future resets the stream.
                    return;
                }
            }
        });
    }
}

/// Counts a client that was too slow; `what` names the direction or part.
pub fn count_slow(metrics: &Metrics, what: &'static str) {
    let slow = &metrics.slow_clients;
    slow.get_or_create(&ResultLabel { result: what }).inc();
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours.
    #[test]
    fn a_client_is_slow_only_if_data_was_available_for_the_whole_window() {
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
