//! The only reader of the time.
//!
//! Freshness and waits use the monotonic clock (tokio's, which tests can
//! pause); records and HTTP dates use the wall clock. Time is read after each
//! wait and never carried across one.

use jiff::Timestamp;
use tokio::time::Instant;

/// The wall clock: for records and dates.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// The monotonic clock: for pauses and lifetimes.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn instant() -> Instant {
    Instant::now()
}
