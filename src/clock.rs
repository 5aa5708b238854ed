//! The only reader of the time.
//!
//! Freshness and waits use the monotonic clock (tokio's, which tests can
//! pause); records and HTTP dates use the wall clock. Time is read after each
//! wait and never carried across one.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// The wall clock: for records and dates.
#[cfg(not(test))]
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// The same, paused and advanced together with the monotonic one.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn now() -> Timestamp {
    use std::sync::LazyLock;

    static START: LazyLock<(Timestamp, Instant)> =
        LazyLock::new(|| (Timestamp::now(), Instant::now()));
    let (began, at) = *START;
    let now = Instant::now();
    let moved = match now.checked_duration_since(at) {
        Some(passed) => began.checked_add(passed),
        None => began.checked_sub(at.duration_since(now)),
    };
    moved.unwrap_or(began)
}

/// The time from one moment of the wall clock to a later one; none if it is not
/// later.
pub fn passed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// The monotonic clock: for pauses and lifetimes.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn instant() -> Instant {
    Instant::now()
}
