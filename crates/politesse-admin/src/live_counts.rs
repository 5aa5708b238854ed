//! Live stream of the counts on an overview, as server-sent events.
//!
//! One task makes an event each second for all watchers, from counts in memory. Does
//! not know which pages add the counts up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::channel_body::BodyPart;
use super::live::{ALIVE, ALIVE_EVERY, LiveTail, RETRY};
use politesse_base::inert::append_json;
use politesse_record::class_counts::ClassCounts;
use politesse_record::recent_counts::RecentCounts;

/// Pause between two events.
const EVENT_EVERY: Duration = Duration::from_secs(1);

/// Number of decisions by class since the proxy started. A page adds the difference
/// between two totals to its own counts to update them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct LiveTotals {
    /// Start of counting. Totals with a different start come from another process.
    pub(super) since: Timestamp,
    /// Numbers of decisions by class.
    pub(super) classes: ClassCounts,
}

impl LiveTotals {
    fn event(&self) -> Arc<str> {
        let mut data = Vec::new();
        // A time and numbers always serialize as JSON.
        append_json(&mut data, self).unwrap_or_default();
        let data = String::from_utf8_lossy(&data);
        format!("event: counts\ndata: {data}\n\n").into()
    }
}

/// Feed that sends the totals to all watchers.
#[derive(Debug)]
pub(super) struct LiveCounts(Arc<CountsFeed>);

/// State shared by the feed and the task that makes its events.
#[derive(Debug)]
struct CountsFeed {
    /// Counts in memory.
    counts: Arc<RecentCounts>,
    /// The latest event.
    events: watch::Sender<Arc<str>>,
    /// Whether a task is making events.
    is_running: Mutex<bool>,
}

impl LiveCounts {
    /// Makes a feed that starts with the first watcher.
    pub(super) fn new(counts: Arc<RecentCounts>) -> Self {
        Self(Arc::new(CountsFeed {
            counts,
            events: watch::channel(Arc::default()).0,
            is_running: Mutex::new(false),
        }))
    }

    /// Makes the body of a stream, which takes a place and a task of `live`. Returns
    /// `None` if there are too many watchers.
    pub(super) fn follow(&self, live: &LiveTail) -> Option<Body> {
        live.stream(|parts| {
            let events = self.watch(live);
            async move { send_events(&parts, events).await.unwrap_or_default() }
        })
    }

    /// Returns the events from now on, beginning with the latest one.
    fn watch(&self, live: &LiveTail) -> watch::Receiver<Arc<str>> {
        let feed = &self.0;
        let mut is_running = feed
            .is_running
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !*is_running {
            *is_running = true;
            // An event left from an earlier watcher would lower the counts of a newer
            // page.
            let totals = feed.totals();
            feed.events.send_replace(totals.event());
            let feed = Arc::clone(feed);
            live.run(async move { feed.make_events(totals).await });
        }
        let mut events = feed.events.subscribe();
        events.mark_changed();
        events
    }
}

impl CountsFeed {
    fn totals(&self) -> LiveTotals {
        LiveTotals {
            since: self.counts.since(),
            classes: self.counts.totals(),
        }
    }

    /// Makes an event each second if something was counted since `last`, until no
    /// watcher is left.
    async fn make_events(&self, mut last: LiveTotals) {
        let mut pause = interval(EVENT_EVERY);
        pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pause.tick().await;
            {
                // Holds the lock, so that no watcher subscribes meanwhile.
                let mut is_running = self
                    .is_running
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                if self.events.receiver_count() == 0 {
                    *is_running = false;
                    return;
                }
            }
            let totals = self.totals();
            if totals != last {
                last = totals;
                self.events.send_replace(totals.event());
            }
        }
    }
}

/// Sends events until the client disconnects, which is the error.
async fn send_events(
    parts: &mpsc::Sender<BodyPart>,
    mut events: watch::Receiver<Arc<str>>,
) -> Result<(), mpsc::error::SendError<BodyPart>> {
    parts.send(Ok(Bytes::from_static(RETRY))).await?;
    let mut alive = interval(ALIVE_EVERY);
    loop {
        let part = tokio::select! {
            changed = events.changed() => match changed {
                Ok(()) => Bytes::copy_from_slice(events.borrow_and_update().as_bytes()),
                Err(_) => return Ok(()),
            },
            _ = alive.tick() => Bytes::from_static(ALIVE),
        };
        parts.send(Ok(part)).await?;
    }
}
