//! Queues of all hosts, bounded (`pace.max_hosts`).
//!
//! A queue is forgotten only when it delays nothing that a new one would not
//! delay too.

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

/// Parts of the map, each under a lock of its own. A sweep holds one at a time,
/// so that fewer than one request in a hundred can meet it.
const SHARDS: usize = 1024;

/// Queues that one search for room looks at; if none of them is idle there is
/// no room.
const SEARCHED: usize = 4096;

/// Queues that one search forgets at most. It may have to pass over many, so
/// that the next requests should find room without one.
const FORGOTTEN: usize = 64;

/// Queues of all hosts.
#[derive(Debug)]
pub(super) struct HostMap {
    queues: DashMap<Host, Arc<HostQueue>, RandomState>,
    /// Length of `queues`: to ask the map itself would take all of its locks.
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
    /// The [`Delay`] of a request where there are too many hosts, and all that
    /// were looked at are in use.
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
        // Requests that come at the same moment may exceed the bound together,
        // by as many as there are threads.
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
        // Each search begins a stretch after the previous one. If all began at
        // the first queue, queues in use there would hide the idle ones after
        // them.
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

    /// Forgets the queues that have been at rest for long, and returns the
    /// back-offs that are over and unreported.
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
            // Counted at once: a request that looks for room meanwhile would
            // find neither an idle queue nor a place.
            if !stays {
                self.count_forgotten(1);
            }
            stays
        });
        // A crawl that has moved on should not keep the memory of its peak.
        if self.queues.len() * 4 < self.queues.capacity() {
            self.queues.shrink_to_fit();
        }
        ended
    }

    fn count_forgotten(&self, forgotten: usize) {
        self.len.fetch_sub(forgotten, Ordering::Relaxed);
        let forgotten = i64::try_from(forgotten).unwrap_or(0);
        self.context.metrics.pace_hosts.dec_by(forgotten);
    }

    /// Calls `look` with every host, under the lock of its part of the map.
    pub(super) fn for_each(&self, mut look: impl FnMut(&Host, &Arc<HostQueue>)) {
        for entry in &self.queues {
            look(entry.key(), entry.value());
        }
    }
}

/// Returns whether a queue may be forgotten: not while anything else refers to
/// it, because a request could still start through that reference.
fn is_forgettable(queue: &Arc<HostQueue>, now: &Now) -> bool {
    Arc::strong_count(queue) == 1 && queue.is_idle(now)
}
