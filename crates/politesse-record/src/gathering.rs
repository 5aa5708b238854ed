//! For how long the writer gathers entries before it writes them.
//!
//! A commit costs as much as hundreds of rows, so entries wait for others for a moment
//! and share one. How long depends on whether somebody waits for one of them.
//!
//! Whoever gets an answer sends its request, and often the next one soon after. If the
//! writer went on with those alone that have been queued meanwhile, two groups of clients
//! would take turns, with two commits where one would do. So it waits for those that were
//! answered, for as long as a few commits take. A client alone is not delayed: once it is
//! back, nobody else is waited for. Nor is anybody where most exchanges are with their
//! origins, from which nobody comes back so soon.
//!
//! Does no IO, and takes the time as an argument.

use std::mem;
use std::time::Duration;

use tokio::time::Instant;

/// Time for which entries are gathered that nobody waits for. A crash loses them,
/// so it is short; a commit costs as much as hundreds of rows, so it is not
/// shorter.
const GATHER_TIME: Duration = Duration::from_millis(20);

/// Time for which entries are gathered that somebody waits for, in durations of the
/// last commit.
const AWAITED_GATHER_COMMITS: u32 = 20;

/// Longest time for which entries are gathered that somebody waits for. Eight clients on
/// a fast network come back within it, also from a body of a megabyte, so on a slow disk
/// a longer one would be in vain.
const AWAITED_GATHER_MAX: Duration = Duration::from_millis(8);

/// Exchanges that are elsewhere, for each one that waits for the record or was just
/// answered, up to which those are waited for. On a busy processor it is some that are
/// on their way; those with slow origins are many more.
const ELSEWHERE_MAX: usize = 3;

/// Entries that are written without waiting for more: beyond this a batch is
/// hardly cheaper for each.
const GATHER_ENTRIES: usize = 256;

/// Facts of a commit that decide how long its clients are waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommitAnswers {
    /// Entries of it that somebody waits for.
    pub(super) awaited: usize,
    /// Time that the commit took.
    pub(super) duration: Duration,
}

/// Entries that are gathered for the next commit.
#[derive(Debug)]
pub(super) struct EntryGathering {
    /// Entries that are written without waiting for more.
    enough: usize,
    /// Time at which the first of the entries was queued.
    begun_at: Option<Instant>,
    /// Entries that somebody waits for.
    awaited: usize,
    /// Clients that the last commit has answered and that have not come back since.
    returning: usize,
    /// Time until which they are waited for.
    returning_until: Option<Instant>,
}

impl EntryGathering {
    /// Makes the gathering of a queue in which `places` entries can be.
    pub(super) fn new(places: usize) -> Self {
        Self {
            // Where places are few, exchanges wait for those that entries hold.
            enough: GATHER_ENTRIES.min(places / 2).max(1),
            begun_at: None,
            awaited: 0,
            returning: 0,
            returning_until: None,
        }
    }

    /// Begins with the first entry, at `now`.
    pub(super) fn begin(&mut self, now: Instant) {
        self.begun_at = Some(now);
    }

    /// Takes note that an entry was queued that somebody waits for.
    pub(super) fn add_awaited(&mut self) {
        self.awaited += 1;
        self.returning = self.returning.saturating_sub(1);
    }

    /// Takes note that the writer has taken entries, `awaited` of which somebody waits
    /// for.
    pub(super) fn take_awaited(&mut self, awaited: usize) {
        self.awaited -= awaited;
    }

    /// Returns whether `count` entries have just become enough for a commit.
    pub(super) fn is_enough(&self, count: usize) -> bool {
        count == self.enough
    }

    /// Returns for how long more entries may be gathered at `now`, when there are
    /// `count`; `None` if they must be written.
    pub(super) fn time_left(&self, count: usize, now: Instant) -> Option<Duration> {
        if self.enough <= count {
            return None;
        }
        self.return_time(now).or_else(|| {
            let begun_at = self.begun_at.filter(|_| self.awaited == 0)?;
            time_until(begun_at + GATHER_TIME, now)
        })
    }

    /// Returns for how long, at `now`, clients that were answered are waited for;
    /// `None` if they are not.
    pub(super) fn return_time(&self, now: Instant) -> Option<Duration> {
        time_until(self.returning_until.filter(|_| 0 < self.returning)?, now)
    }

    /// Waits no longer for clients that were answered. Returns whether any was waited for.
    pub(super) fn give_up_returning(&mut self) -> bool {
        0 < mem::take(&mut self.returning)
    }

    /// Takes in a commit at `now`, when `exchanges` are under way, those included that
    /// it answers.
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

/// Returns the time from `now` to `end`; `None` if that is over.
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

    // Ours: nobody waits for these, and a commit costs as much as hundreds of rows.
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

    // Ours: nobody waits for more entries than a commit can share.
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

    // Ours: clients that were answered and those that have come meanwhile share the
    // next commit, and a client alone waits for nobody.
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

    // Ours: a crawl of slow origins is not made any slower.
    #[test]
    fn no_commit_waits_where_most_exchanges_wait_for_their_origins() {
        let mut gathering = EntryGathering::new(1000);
        let now = clock::instant();
        let mut is_waiting = |exchanges, awaited: usize| {
            (0..awaited).for_each(|_| gathering.add_awaited());
            gathering.note_commit(commit_of(2, us(500)), exchanges, now);
            gathering.return_time(now).is_some()
        };
        // Two are answered, and for each of them three are elsewhere.
        assert!(is_waiting(8, 0));
        assert!(!is_waiting(9, 0));
        assert!(is_waiting(9, 1));
    }
}
