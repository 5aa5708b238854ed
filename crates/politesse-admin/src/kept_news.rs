//! News of a long record, kept for the overview between two searches.
//!
//! Does not know how news is found, or what it says.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use maud::Markup;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use politesse_base::clock;

/// Time for which the news is shown again.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// News section for a record that is too long to be searched while a page waits.
#[derive(Debug)]
pub(super) struct KeptNews {
    /// Latest news, and the time at which it was found.
    latest: Mutex<Option<(Instant, Markup)>>,
    /// Slot for the only search that runs in the background.
    pub(super) search: Arc<Semaphore>,
}

impl Default for KeptNews {
    fn default() -> Self {
        Self {
            latest: Mutex::default(),
            // Each search occupies one of the few readers of the record.
            search: Arc::new(Semaphore::new(1)),
        }
    }
}

impl KeptNews {
    /// Returns the latest news, unless it is too old.
    pub(super) fn recent(&self) -> Option<Markup> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, news) = latest.as_ref()?;
        (clock::instant() < *found + KEPT_FOR).then(|| news.clone())
    }

    /// Replaces the kept news.
    pub(super) fn keep(&self, news: Markup) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = Some((clock::instant(), news));
    }
}
