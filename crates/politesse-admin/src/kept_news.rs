//! What is new in a long record, kept for the overview between two searches for it.
//!
//! Does not know how it is found, nor what it says.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use maud::Markup;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use politesse_base::clock;

/// Time for which it is shown again.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Content of the section, of a record that is too long for a page to wait for it.
#[derive(Debug)]
pub(super) struct KeptNews {
    latest: Mutex<Option<(Instant, Markup)>>,
    /// Place of the one search that runs beside pages.
    pub(super) search: Arc<Semaphore>,
}

impl Default for KeptNews {
    fn default() -> Self {
        Self {
            latest: Mutex::default(),
            // Each search holds one of few readers of the record.
            search: Arc::new(Semaphore::new(1)),
        }
    }
}

impl KeptNews {
    /// Returns the latest content, unless it is too old.
    pub(super) fn recent(&self) -> Option<Markup> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, news) = latest.as_ref()?;
        (clock::instant() < *found + KEPT_FOR).then(|| news.clone())
    }

    /// Keeps `news` in place of what was kept before.
    pub(super) fn keep(&self, news: Markup) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = Some((clock::instant(), news));
    }
}
