//! The gates of all hosts, bounded (`pace.max_hosts`).
//!
//! In many small maps, so that to look through one of them keeps hardly a
//! request waiting. A gate is forgotten only when nothing of it would change
//! what comes next.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::gate::HostQueue;
use super::pace::Now;
use super::told::Ended;
use crate::metrics::Metrics;
use crate::pace::schedule::Moment;
use politesse_robots::origin::Host;

/// How many maps there are. A sweep holds one of them at a time, so that fewer
/// than one request in a hundred can meet it.
pub(super) const SLICES: usize = 1024;

/// How many gates are looked at for room, at least; then there is none.
const LOOKED_AT: usize = 4096;

type Slice = HashMap<Host, Arc<HostQueue>, RandomState>;

/// The gates of all hosts.
#[derive(Debug)]
pub(super) struct HostMap {
    slices: Box<[Mutex<Slice>]>,
    hasher: RandomState,
    gates: AtomicUsize,
    metrics: Arc<Metrics>,
}

impl HostMap {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        let hasher = RandomState::new();
        let slice = || Mutex::new(Slice::with_hasher(hasher.clone()));
        Self {
            slices: std::iter::repeat_with(slice).take(SLICES).collect(),
            hasher: hasher.clone(),
            gates: AtomicUsize::new(0),
            metrics,
        }
    }

    /// The gate of a host; none where there are too many that are in use.
    pub(super) fn gate(&self, host: &Host, now: &Now<'_>) -> Option<Arc<HostQueue>> {
        let at = self.place(host);
        if let Some(gate) = self.slice(at).get(host) {
            return Some(Arc::clone(gate));
        }
        if now.in_force.options.max_hosts.get() <= self.gates.load(Ordering::Relaxed) {
            self.make_room(at, now)?;
        }
        let mut slice = self.slice(at);
        let made = slice.entry(host.clone()).or_insert_with(|| {
            self.gates.fetch_add(1, Ordering::Relaxed);
            self.metrics.pace_hosts.inc();
            Arc::new(HostQueue::new(host, now))
        });
        Some(Arc::clone(made))
    }

    /// Forgets some idle gates, of the slice at `at` or the next ones.
    fn make_room(&self, at: usize, now: &Now<'_>) -> Option<()> {
        let mut looked_at = 0;
        for at in (at..at + SLICES).map(|at| at % SLICES) {
            looked_at += self.slice(at).len();
            if 0 < self.forget(at, |gate| gate.is_idle(now)) {
                return Some(());
            }
            if LOOKED_AT < looked_at {
                break;
            }
        }
        None
    }

    fn place(&self, host: &Host) -> usize {
        usize::try_from(self.hasher.hash_one(host) >> 32).unwrap_or(0) % SLICES
    }

    fn slice(&self, at: usize) -> MutexGuard<'_, Slice> {
        self.slices[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The back-offs in one slice that are over, and not told yet.
    pub(super) fn ended(&self, at: usize, now: Moment) -> Vec<(Host, Ended)> {
        let slice = self.slice(at);
        let ended =
            |(host, gate): (&Host, &Arc<HostQueue>)| Some((host.clone(), gate.take_end(now)?));
        slice.iter().filter_map(ended).collect()
    }

    /// Forgets the gates of one slice that have been idle for long.
    pub(super) fn sweep(&self, at: usize, now: &Now<'_>) {
        self.forget(at, |gate| gate.is_at_rest(now) && gate.is_idle(now));
    }

    /// Forgets some gates of one slice; how many they were.
    fn forget(&self, at: usize, may_go: impl Fn(&HostQueue) -> bool) -> usize {
        let mut slice = self.slice(at);
        let before = slice.len();
        // Whoever else has the gate could start something through it.
        slice.retain(|_, gate| 1 < Arc::strong_count(gate) || !may_go(gate));
        let gone = before - slice.len();
        if slice.len() * 4 < slice.capacity() {
            slice.shrink_to_fit();
        }
        self.gates.fetch_sub(gone, Ordering::Relaxed);
        self.metrics
            .pace_hosts
            .dec_by(i64::try_from(gone).unwrap_or(0));
        gone
    }

    /// Every host and its gate, as they are when looked at.
    pub(super) fn each(&self, mut look: impl FnMut(&Host, &Arc<HostQueue>)) {
        for at in 0..SLICES {
            for (host, gate) in self.slice(at).iter() {
                look(host, gate);
            }
        }
    }
}
