//! How many are under way below each ceiling, and who waits for it.
//!
//! Whoever waits at any host is in one line for each ceiling, and only the first
//! of it is told when there is room: with thousands of hosts that wait, a grant
//! wakes one. Who comes new goes behind them. What may be is not known here.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::KINDS;

/// One ceiling: the kind, and the number of the crawler, domain or address.
pub(super) type At = (usize, u32);

/// All lines, behind one lock: a request starts under all of its ceilings, or
/// none.
#[derive(Debug, Default)]
pub(super) struct Lines([HashMap<u32, Line>; KINDS]);

#[derive(Debug, Default)]
struct Line {
    under_way: u32,
    waiting: VecDeque<Arc<Entry>>,
    /// How many of these have left.
    gone: usize,
}

/// One that waits.
#[derive(Debug)]
struct Entry {
    told: Arc<Notify>,
    is_gone: AtomicBool,
}

/// A place in a line. Dropped, it is given up, and the next one is told if it was
/// the first.
#[derive(Debug)]
pub(super) struct Enrolled {
    lines: Arc<Mutex<Lines>>,
    pub(super) at: At,
    entry: Arc<Entry>,
}

/// For as long as the guard lives.
pub(super) fn lock(lines: &Mutex<Lines>) -> MutexGuard<'_, Lines> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lines {
    /// How many are under way.
    pub(super) fn under_way(&self, (kind, key): At) -> u32 {
        self.0[kind].get(&key).map_or(0, |line| line.under_way)
    }

    /// How many wait.
    pub(super) fn waiting(&self, (kind, key): At) -> usize {
        let line = self.0[kind].get(&key);
        line.map_or(0, |line| line.waiting.len() - line.gone)
    }

    /// Whether nobody waits before this one, or before one that comes now.
    pub(super) fn is_next(&mut self, (kind, key): At, enrolled: Option<&Enrolled>) -> bool {
        let Some(line) = self.0[kind].get_mut(&key) else {
            return true;
        };
        let mine = enrolled.map(|enrolled| &enrolled.entry);
        let first = line.first();
        first.is_none_or(|first| mine.is_some_and(|mine| Arc::ptr_eq(first, mine)))
    }

    /// One more is under way.
    pub(super) fn begin(&mut self, (kind, key): At) {
        self.0[kind].entry(key).or_default().under_way += 1;
    }

    /// One that was under way has ended; whoever is first has room.
    pub(super) fn end(&mut self, at: At) {
        self.change(at, |line| {
            line.under_way = line.under_way.saturating_sub(1);
            line.tell_first();
        });
    }

    fn change(&mut self, (kind, key): At, change: impl FnOnce(&mut Line)) {
        if let Some(line) = self.0[kind].get_mut(&key) {
            change(line);
            if line.under_way == 0 && line.waiting.is_empty() {
                self.0[kind].remove(&key);
            }
        }
    }

    /// How much there is to remember.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(HashMap::len).sum()
    }
}

impl Line {
    fn first(&mut self) -> Option<&Arc<Entry>> {
        while let Some(first) = self.waiting.front()
            && first.is_gone.load(Ordering::Relaxed)
        {
            self.waiting.pop_front();
            self.gone -= 1;
        }
        self.waiting.front()
    }

    /// One has left. Those who left behind others are taken out in one go, when
    /// they are more than who waits.
    fn leave(&mut self) {
        self.gone += 1;
        if self.waiting.len() < 2 * self.gone {
            self.waiting
                .retain(|entry| !entry.is_gone.load(Ordering::Relaxed));
            self.gone = 0;
        }
    }

    fn tell_first(&mut self) {
        if let Some(first) = self.first() {
            first.told.notify_one();
        }
    }
}

impl Enrolled {
    /// A place at the end of the line, for one who is told by `told`.
    pub(super) fn new(
        lines: &Arc<Mutex<Lines>>,
        locked: &mut Lines,
        (at, told): (At, &Arc<Notify>),
    ) -> Self {
        let entry = Arc::new(Entry {
            told: Arc::clone(told),
            is_gone: AtomicBool::new(false),
        });
        let line = locked.0[at.0].entry(at.1).or_default();
        line.waiting.push_back(Arc::clone(&entry));
        Self {
            lines: Arc::clone(lines),
            at,
            entry,
        }
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        lock(&self.lines).change(self.at, |line| {
            let was_first = line
                .first()
                .is_some_and(|first| Arc::ptr_eq(first, &self.entry));
            // Under the lock, which guards the count.
            self.entry.is_gone.store(true, Ordering::Relaxed);
            line.leave();
            if was_first {
                line.tell_first();
            }
        });
    }
}
