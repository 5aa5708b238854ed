//! ReadAnswer a robots.txt and readying its rules, off the threads that serve
//! where that takes long.

use tokio::task::spawn_blocking;

use crate::decision::access::RobotsFile;
use crate::decision::decide::{Candidates, Policy};
use crate::decision::stored_snapshot::StoredSnapshot;
use crate::robots_cache::answer::{Answer, ReadAnswer};
use politesse_robots::crawler::Crawler;

/// A larger file is read where it holds up nothing else: hashing and compiling
/// take some milliseconds a megabyte. Changing threads takes some microseconds,
/// which is more than most files need.
const AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// Reads `answer`, and readies its rules for `crawler`; `None` if that
/// panicked.
pub(super) async fn read(answer: Answer, policy: &Policy, crawler: &Crawler) -> Option<ReadAnswer> {
    let (dialect, bind) = (policy.dialect(), binder(policy, crawler));
    let read = aside(answer.bytes(), move || {
        let reading = answer.read(dialect);
        if let Some(copy) = reading.file() {
            bind(copy);
        }
        reading
    });
    read.await
}

/// Readies the rules of what was kept for `crawler`; `None` if that panicked.
pub(super) async fn ready(
    kept: StoredSnapshot,
    policy: &Policy,
    crawler: &Crawler,
) -> Option<StoredSnapshot> {
    let bytes = kept.snapshot.file().map_or(0, |copy| copy.body.len());
    let bind = binder(policy, crawler);
    let bound = aside(bytes, move || {
        if let Some(copy) = kept.snapshot.file() {
            bind(copy);
        }
        kept
    });
    bound.await
}

/// What readies the rules of a file, so that the first decision need not.
fn binder(policy: &Policy, crawler: &Crawler) -> impl FnOnce(&RobotsFile) + Send + use<> {
    let (candidates, crawler) = (policy.candidates(), crawler.clone());
    move |copy| match candidates {
        Candidates::First => drop(copy.robots.binding(&crawler)),
        Candidates::All => drop(copy.robots.bindings(&crawler)),
    }
}

/// Does `work` on so many bytes; where they are many, on a thread of its own.
/// `None` if it panicked there.
async fn aside<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if bytes <= AT_ONCE_BYTES_MAX {
        return Some(work());
    }
    spawn_blocking(work).await.ok()
}
