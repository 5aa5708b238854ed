//! Interim responses to a request (1xx): how many there may be, and how they are
//! counted on HTTP/1.1.
//!
//! RFC 9110, section 15.2. hyper reads them and passes none on; what is left to
//! do is to end a row of them. `response_heads` counts them on HTTP/2. Which
//! connection they come from, and how it is made to read no more, is not known
//! here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use tokio::sync::Notify;

/// Interim responses to one request. Real ones are a 100, a 103 or a few 102.
pub(super) const INTERIM_RESPONSES_MAX: usize = 16;

/// Watches the interim responses to one request on HTTP/1.1. A few tell
/// something (RFC 9110, section 15.2); an endless row of them is a way to hold a
/// crawler.
pub(super) struct Flood(Arc<Notify>);

impl Flood {
    /// Calls `stem` once there are too many.
    pub(super) fn watch<B>(
        request: &mut Request<B>,
        stem: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (noticed, seen) = (Arc::new(Notify::new()), AtomicUsize::new(0));
        let notify = Arc::clone(&noticed);
        hyper::ext::on_informational(request, move |_| {
            if INTERIM_RESPONSES_MAX <= seen.fetch_add(1, Ordering::Relaxed) {
                stem();
                notify.notify_one();
            }
        });
        Self(noticed)
    }

    /// Waits until there are too many, which may be for ever.
    pub(super) async fn noticed(&self) {
        self.0.notified().await;
    }
}
