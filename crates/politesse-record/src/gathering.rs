//! Time for which the writer gathers entries before it writes them.
//!
//! A commit costs as much as hundreds of rows, so entries wait a moment for others
//! and share a commit. The wait depends on whether a client is waiting for one of
//! the entries.
//!
//! A client that gets its answer often sends the next request soon after. If the
//! writer continued immediately with the entries queued meanwhile, two groups of
//! clients would take turns, with two commits where one would do. It therefore
//! waits for the clients that were just answered, for as long as a few commits
//! take. A single client is not delayed: once it is back, there are no others to
//! wait for. The writer does not wait either if most exchanges are with their
//! origins, because those clients do not return so soon.
//!
//! Does no I/O; the current time is passed as an argument.

use std::mem;
use std::time::Duration;

use tokio::time::Instant;

/// Time for which entries are gathered while no client waits. Short, because a
/// crash loses them; not shorter, because a commit costs as much as hundreds of
/// rows.
const GATHER_TIME: Duration = Duration::from_millis(20);

/// Time for which entries are gathered while clients wait, as a multiple of the
/// duration of the last commit.
const AWAITED_GATHER_COMMITS: u32 = 20;

/// Maximum time for which entries are gathered while clients wait. Eight clients on
/// a fast network return within it, even from a body of a megabyte, so a longer
/// time would gain nothing on a slow disk.
const AWAITED_GATHER_MAX: Duration = Duration::from_millis(8);

/// Maximum number of exchanges elsewhere, per exchange that waits for the record or
/// was just answered, for which the writer still waits. On a busy processor some
/// exchanges are always on their way; exchanges with slow origins are many more.
const ELSEWHERE_MAX: usize = 3;

/// Number of entries that are written without waiting for more: a larger batch
/// hardly reduces the cost per entry.
const GATHER_ENTRIES: usize = 256;

/// Facts about a commit that decide how long the writer waits for its clients.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommitAnswers {
    /// Number of entries in the commit that clients were waiting for.
    pub(super) awaited: usize,
    /// Duration of the commit.
    pub(super) duration: Duration,
}

/// State of the entries gathered for the next commit.
#[derive(Debug)]
pub(super) struct EntryGathering {
    /// Number of entries that are written without waiting for more.
    enough: usize,
    /// Time at which the first entry was queued.
    begun_at: Option<Instant>,
    /// Number of entries that clients wait for.
    awaited: usize,
    /// Number of clients answered by the last commit that have not returned yet.
    returning: usize,
    /// Time until which the writer waits for them.
    returning_until: Option<Instant>,
}

impl EntryGathering {
    /// Creates the state for a queue with `places` places.
    pub(super) fn new(places: usize) -> Self {
        Self {
            // In a small queue, new exchanges wait for the places that entries
            // hold, so fewer are gathered.
            enough: GATHER_ENTRIES.min(places / 2).max(1),
            begun_at: None,
            awaited: 0,
            returning: 0,
            returning_until: None,
        }
    }

    /// Starts gathering with the first entry, at `now`.
    pub(super) fn begin(&mut self, now: Instant) {
        self.begun_at = Some(now);
    }

    /// Notes that an entry was queued for which a client waits.
    pub(super) fn add_awaited(&mut self) {
        self.awaited += 1;
        self.returning = self.returning.saturating_sub(1);
    }

    /// Notes that the writer has taken entries, `awaited` of which have waiting
    /// clients.
    pub(super) fn take_awaited(&mut self, awaited: usize) {
        self.awaited -= awaited;
    }

    /// Reports whether `count` is exactly the number at which a commit should
    /// start.
    pub(super) fn is_enough(&self, count: usize) -> bool {
        count == self.enough
    }

    /// Returns how much longer to gather at `now`, with `count` entries queued;
    /// `None` if they must be written.
    pub(super) fn time_left(&self, count: usize, now: Instant) -> Option<Duration> {
        if self.enough <= count {
            return None;
        }
        self.return_time(now).or_else(|| {
            let begun_at = self.begun_at.filter(|_| self.awaited == 0)?;
            time_until(begun_at + GATHER_TIME, now)
        })
    }

    /// Returns how much longer, at `now`, to wait for answered clients to return;
    /// `None` if not at all.
    pub(super) fn return_time(&self, now: Instant) -> Option<Duration> {
        time_until(self.returning_until.filter(|_| 0 < self.returning)?, now)
    }

    /// Stops waiting for answered clients. Reports whether there were any.
    pub(super) fn give_up_returning(&mut self) -> bool {
        0 < mem::take(&mut self.returning)
    }

    /// Notes a commit at `now`. `exchanges` is the number of exchanges in progress,
    /// including the answered ones.
    pub(super) fn note_commit(&mut self, commit: CommitAnswers, exchanges: usize, now: Instant) {
        let here = self.awaited + commit.awaited;
        let elsewhere = exchanges.saturating_sub(here);
        let are_most_elsewhere = ELSEWHERE_MAX * here < elsewhere;
        self.returning = if are_most_elsewhere {
            0
        } else {
            commit.awaited
        };
        let time = commit.duration.saturating_mul(AWAITED_GATHER_COMMITS);
        self.returning_until = Some(now + time.min(AWAITED_GATHER_MAX));
    }
}

/// Returns the time from `now` to `end`; `None` if `end` has passed.
fn time_until(end: Instant, now: Instant) -> Option<Duration> {
    Some(end.saturating_duration_since(now)).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;
    use politesse_base::clock;

    fn us(number: u64) -> Duration {
        Duration::from_micros(number)
    }

    fn commit_of(awaited: usize, duration: Duration) -> CommitAnswers {
        CommitAnswers { awaited, duration }
    }

    // Ours: no client waits for these entries, and a commit costs as much as
    // hundreds of rows.
    #[test]
    fn entries_are_gathered_for_20_ms_and_no_longer() {
        let mut gathering = EntryGathering::new(1000);
        let start = clock::instant();
        gathering.begin(start);
        for (after, left) in [
            (0, Some(us(20_000))),
            (19_000, Some(us(1_000))),
            (20_000, None),
            (70_000, None),
        ] {
            assert_eq!(gathering.time_left(1, start + us(after)), left, "{after}");
        }
    }

    // Ours: no client waits for more entries than a commit can share.
    #[test]
    fn entries_are_not_gathered_when_there_are_enough_or_somebody_waits() {
        let start = clock::instant();
        for (places, enough) in [(1000, GATHER_ENTRIES), (8, 4), (2, 1)] {
            let mut gathering = EntryGathering::new(places);
            gathering.begin(start);
            for count in 1..=enough {
                let is_over = gathering.time_left(count, start).is_none();
                assert_eq!(is_over, count == enough, "{count} of {places}");
                assert_eq!(gathering.is_enough(count), is_over);
            }
        }
        let mut gathering = EntryGathering::new(1000);
        gathering.begin(start);
        gathering.add_awaited();
        assert_eq!(gathering.time_left(1, start), None);
    }

    // Ours: clients that were answered share the next commit with those that
    // arrived meanwhile, and a single client does not wait.
    #[test]
    fn a_commit_waits_for_the_clients_that_the_last_one_has_answered() {
        let mut gathering = EntryGathering::new(1000);
        let start = clock::instant();
        gathering.begin(start);
        gathering.add_awaited();
        assert_eq!(gathering.time_left(1, start), None);
        gathering.note_commit(commit_of(2, us(300)), 3, start);
        assert_eq!(gathering.time_left(1, start), Some(us(6_000)));
        gathering.add_awaited();
        assert_eq!(gathering.time_left(2, start), Some(us(6_000)));
        gathering.add_awaited();
        assert_eq!(gathering.time_left(3, start), None);

        // A slow disk.
        gathering.note_commit(commit_of(1, us(30_000)), 3, start);
        assert_eq!(gathering.time_left(3, start), Some(AWAITED_GATHER_MAX));
        assert_eq!(gathering.time_left(3, start + AWAITED_GATHER_MAX), None);
        assert!(gathering.give_up_returning());
        assert!(!gathering.give_up_returning());
        assert_eq!(gathering.time_left(3, start), None);

        gathering.take_awaited(3);
        gathering.note_commit(commit_of(1, us(500)), 1, start);
        gathering.add_awaited();
        assert_eq!(gathering.time_left(1, start), None);
    }

    // Ours: a crawl of slow origins must not become slower.
    #[test]
    fn no_commit_waits_where_most_exchanges_wait_for_their_origins() {
        let mut gathering = EntryGathering::new(1000);
        let now = clock::instant();
        let mut is_waiting = |exchanges, awaited: usize| {
            (0..awaited).for_each(|_| gathering.add_awaited());
            gathering.note_commit(commit_of(2, us(500)), exchanges, now);
            gathering.return_time(now).is_some()
        };
        // Two are answered, and there are three exchanges elsewhere for each of
        // them.
        assert!(is_waiting(8, 0));
        assert!(!is_waiting(9, 0));
        assert!(is_waiting(9, 1));
    }
}
