//! The clocks of this machine, which the tested proxy uses too.
#![expect(
    clippy::disallowed_methods,
    reason = "tests of pace measure a process that runs in real time"
)]

use std::time::{Duration, Instant};

use jiff::Timestamp;

pub(crate) fn instant() -> Instant {
    Instant::now()
}

pub(crate) fn since(begun: Instant) -> Duration {
    begun.elapsed()
}

pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
