//! Limit on the processor time that the engine may take for one input.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Limit for a judgement, parsing of its file included, if the file has at most
/// [`BYTES_MAX`] bytes.
pub const BOUND: Duration = Duration::from_millis(10);

/// Largest input to which [`BOUND`] applies.
pub const BYTES_MAX: usize = 64 * 1024;

/// Runs `work` within [`BOUND`], as [`within`] does.
pub fn within_bound<T>(work: impl Fn() -> T) -> T {
    within(BOUND, work)
}

/// Runs `work`, which does the same each time, and returns its result.
///
/// # Panics
///
/// If `work` takes longer than `bound` three times in a row. The limit applies to
/// processor time and not to elapsed time, because other programs use the machine too.
pub fn within<T>(bound: Duration, work: impl Fn() -> T) -> T {
    let mut least = Duration::MAX;
    for _ in 0..3 {
        let start = processor_time();
        let done = work();
        least = least.min(processor_time().saturating_sub(start));
        if least <= bound {
            return done;
        }
    }
    panic!("{least:?}, where {bound:?} is the bound");
}

/// Returns the processor time that this thread has used so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}
