//! Whether anything happens on a crawler's connection, and who is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What a connection has been doing since somebody last looked.
#[derive(Debug, Default)]
pub struct ConnectionActivity {
    begun: AtomicBool,
    since: AtomicBool,
    /// Requests that are not answered yet, and bodies that wait for the origin.
    waiting: AtomicUsize,
}

impl ConnectionActivity {
    /// A request has come; it is busy until the guard is dropped.
    pub fn begin(self: &Arc<Self>) -> BusyGuard {
        self.begun.store(true, Ordering::Relaxed);
        self.happened();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        BusyGuard(Arc::clone(self))
    }

    /// The crawler has taken something.
    pub fn happened(&self) {
        self.since.store(true, Ordering::Relaxed);
    }

    /// Counts a body among those that wait for an origin, or no more; `counted`
    /// is that body's own note of it.
    pub fn waiting(&self, waits: bool, counted: &mut bool) {
        if waits && !*counted {
            self.waiting.fetch_add(1, Ordering::Relaxed);
        } else if !waits && *counted {
            self.happened();
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        *counted = waits;
    }

    /// Whether there was a request at all.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether nothing has happened since the last call, and nobody waits for
    /// an origin.
    pub fn is_idle(&self) -> bool {
        let active = self.since.swap(false, Ordering::Relaxed);
        !active && self.waiting.load(Ordering::Relaxed) == 0
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub struct BusyGuard(Arc<ConnectionActivity>);

impl BusyGuard {
    /// The connection it came over.
    pub fn activity(&self) -> Arc<ConnectionActivity> {
        Arc::clone(&self.0)
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.happened();
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
