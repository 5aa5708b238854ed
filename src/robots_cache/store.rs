//! Where snapshots outlive the memory of the cache, and the process.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use crate::decision::stored_snapshot::{CacheKey, StoredSnapshot};
use politesse_robots::Dialect;

/// What a store does takes its time.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store of snapshots.
///
/// A trait so that the cache does not know the audit log, and can be tested
/// without one. What cannot be loaded is asked for again; what cannot be saved
/// will be.
pub trait KeepRobots: Debug + Send + Sync + 'static {
    /// The last that was saved for `whose`, read by `dialect`.
    fn load<'a>(&'a self, key: &'a CacheKey, dialect: Dialect)
    -> Doing<'a, Option<StoredSnapshot>>;

    /// Saves it in place of what was there for the same origin and token.
    ///
    /// Begun when it is called, not when it is first awaited: from then on it is
    /// found. Called before the snapshot is handed out, it is on disk before any
    /// decision that rests on it, unless there is no room or the disk fails.
    fn save(&self, kept: StoredSnapshot) -> Doing<'_, ()>;
}

/// Keeps nothing: for who asks once.
#[derive(Debug, Clone, Copy)]
pub struct Forgetful;

impl KeepRobots for Forgetful {
    fn load<'a>(&'a self, _: &'a CacheKey, _: Dialect) -> Doing<'a, Option<StoredSnapshot>> {
        Box::pin(std::future::ready(None))
    }

    fn save(&self, _: StoredSnapshot) -> Doing<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
