//! Requests in flight under each ceiling, its last start, and its line of waiting
//! requests.
//!
//! A request that a ceiling holds up has a place in the line of that ceiling, whichever
//! its host is. Only the first request of a line is woken when there is room. So even
//! with thousands of waiting hosts, a grant wakes only one. Does not know any limit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;

use super::policy::Rate;
use super::schedule::Uptime;

/// One ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CeilingKey {
    /// Index of the kind: crawler, domain, address or total.
    pub(super) kind: usize,
    /// Hash value of the crawler, domain or address; 0 for the total.
    pub(super) hash: u32,
}

/// Lines of all ceilings.
#[derive(Debug, Default)]
pub(super) struct CeilingLines {
    /// Lines that are not empty.
    lines: HashMap<CeilingKey, CeilingLine>,
    /// Next place to be given, in any line. Places grow with time and are never reused.
    next_place: u64,
}

/// State of one ceiling.
#[derive(Debug, Default)]
struct CeilingLine {
    /// Number of requests in flight.
    in_flight: u32,
    /// Last start that counted under a rate.
    started: Option<Uptime>,
    /// Drivers to wake, by place and so in order of arrival.
    waiting: BTreeMap<u64, Arc<Notify>>,
}

impl CeilingLines {
    /// Returns the number of requests in flight.
    pub(super) fn in_flight(&self, key: CeilingKey) -> u32 {
        self.lines.get(&key).map_or(0, |line| line.in_flight)
    }

    /// Returns the number of waiting requests.
    pub(super) fn waiting(&self, key: CeilingKey) -> usize {
        self.lines.get(&key).map_or(0, |line| line.waiting.len())
    }

    /// Returns whether no request waits before `place`, or, without a place, whether
    /// none waits.
    pub(super) fn is_next(&self, key: CeilingKey, place: Option<u64>) -> bool {
        let line = self.lines.get(&key);
        let first = line.and_then(|line| line.waiting.keys().next());
        first.is_none_or(|first| Some(*first) == place)
    }

    /// Counts one more request in flight.
    pub(super) fn begin(&mut self, key: CeilingKey) {
        self.lines.entry(key).or_default().in_flight += 1;
    }

    /// Removes one request from those in flight, and wakes the first waiting one.
    pub(super) fn end(&mut self, key: CeilingKey) {
        self.change(key, |line| {
            // One request that ends makes room for one other.
            line.in_flight = line.in_flight.saturating_sub(1);
            line.wake_first();
        });
    }

    /// Counts a start, if the last one is far enough in the past for `rate`.
    ///
    /// # Errors
    ///
    /// Earliest time at which a start will be counted.
    pub(super) fn count_start(
        &mut self,
        key: CeilingKey,
        rate: Rate,
        now: Uptime,
    ) -> Result<(), Uptime> {
        let line = self.lines.entry(key).or_default();
        let next = line
            .started
            .map(|started| started.saturating_add(rate.pause()));
        if let Some(next) = next.filter(|next| now < *next) {
            return Err(next);
        }
        line.started = Some(now);
        Ok(())
    }

    /// Forgets the starts for which `is_over` returns true.
    pub(super) fn forget_starts(&mut self, is_over: impl Fn(CeilingKey, Uptime) -> bool) {
        self.lines.retain(|key, line| {
            line.started = line.started.filter(|started| !is_over(*key, *started));
            !line.is_empty()
        });
        self.lines.shrink_to_fit();
    }

    /// Takes the last place of a line, and returns it. `driver` is woken when the request
    /// is first and there may be room.
    pub(super) fn join(&mut self, key: CeilingKey, driver: &Arc<Notify>) -> u64 {
        let place = self.next_place;
        self.next_place += 1;
        let line = self.lines.entry(key).or_default();
        line.waiting.insert(place, Arc::clone(driver));
        place
    }

    /// Gives up a place. If it was the first, wakes the next request.
    pub(super) fn leave(&mut self, key: CeilingKey, place: u64) {
        let was_first = self.is_next(key, Some(place));
        self.change(key, |line| {
            line.waiting.remove(&place);
            if was_first {
                line.wake_first();
            }
        });
    }

    /// Changes a line, and forgets it if nothing remains.
    fn change(&mut self, key: CeilingKey, change: impl FnOnce(&mut CeilingLine)) {
        if let Some(line) = self.lines.get_mut(&key) {
            change(line);
            if line.is_empty() {
                self.lines.remove(&key);
            }
        }
    }

    /// Returns the number of remembered lines. With `busy`, lines that exist only
    /// because of a rate are not counted.
    #[cfg(test)]
    pub(super) fn len(&self, busy: bool) -> usize {
        let lines = self.lines.values();
        let is_busy = |line: &&CeilingLine| 0 < line.in_flight || !line.waiting.is_empty();
        lines.filter(|line| !busy || is_busy(line)).count()
    }
}

impl CeilingLine {
    fn is_empty(&self) -> bool {
        self.in_flight == 0 && self.started.is_none() && self.waiting.is_empty()
    }

    fn wake_first(&self) {
        if let Some(first) = self.waiting.values().next() {
            first.notify_one();
        }
    }
}
