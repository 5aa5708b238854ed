//! Tasks that are waited for at the end.

use std::future::Future;

use hyper::rt::Executor;
use tokio_util::task::TaskTracker;

/// The executor given to hyper, so that the tasks it starts for its
/// connections are tracked like our own.
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
