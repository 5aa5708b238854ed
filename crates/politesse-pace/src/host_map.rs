//! Queues of all hosts, limited in number (`pace.max_hosts`).
//!
//! A queue is forgotten only when every delay it imposes would also be imposed by a new
//! one.

use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;

use super::back_off::BackOff;
use super::context::{Now, PaceContext};
use super::queue::HostQueue;
use politesse_decision::delay::{Delay, DelayEnd};
use politesse_decision::reason::Reason;
use politesse_robots::origin::Host;

/// Shards of the map, each with its own lock. A sweep holds one lock at a time, so
/// fewer than one request in a hundred has to wait for it.
const SHARDS: usize = 1024;

/// Number of queues that one search for room examines. If none of them is idle, there is
/// no room.
const SEARCHED: usize = 4096;

/// Largest number of queues that one search forgets. A search may have to pass over
/// many queues, so it makes room for later requests as well.
const FORGOTTEN: usize = 64;

/// Queues of all hosts.
#[derive(Debug)]
pub(super) struct HostMap {
    /// Queues by host. A host without one has the state of a new queue.
    queues: DashMap<Host, Arc<HostQueue>, RandomState>,
    /// Length of `queues`: asking the map itself would take all of its locks.
    len: AtomicUsize,
    /// Queue at which the next search for room begins.
    next_search: AtomicUsize,
    context: Arc<PaceContext>,
}

impl HostMap {
    pub(super) fn new(context: Arc<PaceContext>) -> Self {
        Self {
            queues: DashMap::with_hasher_and_shard_amount(RandomState::new(), SHARDS),
            len: AtomicUsize::new(0),
            next_search: AtomicUsize::new(0),
            context,
        }
    }

    /// Returns the queue of a host.
    ///
    /// # Errors
    ///
    /// A [`Delay`] with [`Reason::Overload`] if there are too many hosts and all
    /// examined queues are in use.
    pub(super) fn queue(&self, host: &Host, now: &Now) -> Result<Arc<HostQueue>, Delay> {
        if let Some(queue) = self.queues.get(host) {
            return Ok(Arc::clone(&queue));
        }
        let max_hosts = now.active.options.max_hosts.get();
        if max_hosts <= self.len.load(Ordering::Relaxed) && !self.make_room(now) {
            let end = DelayEnd::After(Duration::from_secs(1));
            let delay = Delay::of_host(Reason::Overload, end);
            return Err(delay.explained("the paces of too many hosts have to be remembered"));
        }
        // Concurrent requests may together exceed the limit, by at most the number of
        // threads.
        let queue = self.queues.entry(host.clone()).or_insert_with(|| {
            self.len.fetch_add(1, Ordering::Relaxed);
            self.context.metrics.pace_hosts.inc();
            Arc::new(HostQueue::new(&self.context, host, now))
        });
        Ok(Arc::clone(&queue))
    }

    /// Returns the queue of a host, if it is remembered.
    pub(super) fn known(&self, host: &Host) -> Option<Arc<HostQueue>> {
        self.queues.get(host).map(|queue| Arc::clone(&queue))
    }

    /// Forgets some idle queues; returns whether there is room now.
    fn make_room(&self, now: &Now) -> bool {
        // Each search begins one stretch after the previous one. If all searches began
        // at the first queue, busy queues there would hide the idle ones after them.
        let searched = self.next_search.fetch_add(SEARCHED, Ordering::Relaxed);
        let begin = searched % self.len.load(Ordering::Relaxed).max(1);
        let all = self.queues.iter().skip(begin).chain(self.queues.iter());
        let idle: Vec<Host> = all
            .take(SEARCHED)
            .filter(|entry| is_forgettable(entry.value(), now))
            .map(|entry| entry.key().clone())
            .take(FORGOTTEN)
            .collect();
        let forget = |host: &&Host| {
            let is_idle = |_: &Host, queue: &Arc<HostQueue>| is_forgettable(queue, now);
            self.queues.remove_if(*host, is_idle).is_some()
        };
        let forgotten = idle.iter().filter(forget).count();
        self.count_forgotten(forgotten);
        // A sweep may have made room since the caller looked.
        let max_hosts = now.active.options.max_hosts.get();
        0 < forgotten || self.len.load(Ordering::Relaxed) < max_hosts
    }

    /// Forgets the queues that have been at rest for long. Returns the back-offs that
    /// have ended and are not reported yet.
    pub(super) fn sweep(&self, now: &Now) -> Vec<(Host, BackOff)> {
        let mut ended = Vec::new();
        self.queues.retain(|host, queue| {
            let back_off = queue.with_host(|host| {
                host.forget_pages(now);
                host.back_off.take_end(now.uptime)
            });
            if let Some(back_off) = back_off {
                ended.push((host.clone(), back_off));
            }
            let is_at_rest = queue.with_host(|host| host.is_at_rest(now));
            let stays = !is_at_rest || !is_forgettable(queue, now);
            // Counted at once: a request that looks for room in the meantime would find
            // neither an idle queue nor a free place.
            if !stays {
                self.count_forgotten(1);
            }
            stays
        });
        // After the peak of a crawl, its memory is released.
        if self.queues.len() * 4 < self.queues.capacity() {
            self.queues.shrink_to_fit();
        }
        ended
    }

    /// Subtracts forgotten queues from the length and from the metric.
    fn count_forgotten(&self, forgotten: usize) {
        self.len.fetch_sub(forgotten, Ordering::Relaxed);
        let forgotten = i64::try_from(forgotten).unwrap_or(0);
        self.context.metrics.pace_hosts.dec_by(forgotten);
    }

    /// Calls `look` for every host, under the lock of its shard.
    pub(super) fn for_each(&self, mut look: impl FnMut(&Host, &Arc<HostQueue>)) {
        for entry in &self.queues {
            look(entry.key(), entry.value());
        }
    }
}

/// Returns whether a queue may be forgotten. Not while anything else refers to it: a
/// request could still start through that reference.
fn is_forgettable(queue: &Arc<HostQueue>, now: &Now) -> bool {
    Arc::strong_count(queue) == 1 && queue.is_idle(now)
}
