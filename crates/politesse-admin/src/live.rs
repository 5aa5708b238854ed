//! Live streams of decisions, as server-sent events (HTML standard, section 9.2).
//!
//! One task queries the record for all watchers with the same filter. Does not know who
//! may watch.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast, mpsc};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::channel_body::{BodyChannel, BodyPart, channel_body};
use super::decision_view::decision_row;
use politesse_base::clock;
use politesse_base::inert::append_json;
use politesse_base::metrics::Metrics;
use politesse_decision::record::StoredRecord;
use politesse_decision::row_json::row_json;
use politesse_record::filter::DecisionFilter;
use politesse_record::reader::NewerDecisions;
use politesse_record::{AuditError, AuditLog};

/// Maximum number of watchers at a time. Each holds a connection.
const WATCHERS_MAX: usize = 16;
/// Pause between two queries of the record, short enough to feel live.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Maximum bytes of events per query. With the results that are kept, and the parts
/// that wait for clients that do not read, all watchers together take some 50 MB.
const LOOK_BYTES_MAX: usize = 512 << 10;
/// Number of query results that a slow watcher may lag behind.
const LOOKS_BEHIND: usize = 2;
/// Interval of comments, which reveal that a watcher has disconnected.
pub(super) const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// Comment that is sent at this interval.
pub(super) const ALIVE: &[u8] = b":\n\n";
/// Longest time of a query.
const LOOK_TIME_MAX: Duration = Duration::from_secs(2);
/// Milliseconds after which a browser reconnects.
pub(super) const RETRY: &[u8] = b"retry: 2000\n\n";

/// Form of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LiveForm {
    /// Row of the table of decisions, in HTML.
    Row,
    /// Object of `/api/v1/decisions`.
    Json,
}

impl LiveForm {
    /// Returns how many decisions of one query are sent; the newest are kept.
    fn rows_max(self) -> usize {
        match self {
            // More than this cannot be read, and thousands of rows in a burst would
            // overwhelm the browser.
            Self::Row => 50,
            Self::Json => 200,
        }
    }
}

/// Question of a watcher: which decisions to send, and in which form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiveQuestion {
    pub(super) form: LiveForm,
    pub(super) filter: DecisionFilter,
}

/// Event about a decision.
struct LiveEvent {
    /// Number of the decision.
    seq: u64,
    text: Vec<u8>,
}

/// Events from one query of the record.
#[derive(Clone)]
struct LiveLook {
    events: Arc<Vec<LiveEvent>>,
    /// Number of decisions that were left out because there were too many.
    missed: u64,
}

/// Channel to all watchers with the same question.
#[derive(Debug)]
struct LiveFeed {
    question: LiveQuestion,
    looks: broadcast::Sender<LiveLook>,
}

/// Follows the record for watchers.
#[derive(Debug)]
pub(super) struct LiveTail {
    source: Arc<LiveSource>,
    places: Arc<Semaphore>,
}

#[derive(Debug)]
struct LiveSource {
    audit: Arc<AuditLog>,
    metrics: Arc<Metrics>,
    /// Path below which browsers see the pages.
    base_path: Arc<str>,
    tracker: TaskTracker,
    end: CancellationToken,
    /// Feeds with at least one watcher.
    feeds: Mutex<Vec<LiveFeed>>,
}

impl LiveTail {
    /// Makes a follower that starts with the first watcher, runs in tasks of `tracker`,
    /// and stops at `end`.
    pub(super) fn new(
        audit: Arc<AuditLog>,
        metrics: Arc<Metrics>,
        base_path: Arc<str>,
        tasks: LiveTasks,
    ) -> Self {
        Self {
            source: Arc::new(LiveSource {
                audit,
                metrics,
                base_path,
                tracker: tasks.tracker,
                end: tasks.end,
                feeds: Mutex::default(),
            }),
            places: Arc::new(Semaphore::new(WATCHERS_MAX)),
        }
    }

    /// Makes the body of a stream of the decisions that `question` selects, including
    /// those after the number `last` if there are few. Returns `None` if there are too
    /// many watchers.
    pub(super) fn follow(&self, mut question: LiveQuestion, last: Option<u64>) -> Option<Body> {
        // Future decisions are later than any past `from`, so dropping it lets watchers
        // with different times share a feed.
        question.filter.from = question.filter.from.filter(|from| clock::now() < *from);
        self.stream(|parts| {
            let mut looks = self.source.watch(&question);
            let source = Arc::clone(&self.source);
            let mut watcher = Watcher {
                parts,
                last: last.unwrap_or_default(),
            };
            async move {
                // Fails if the client has disconnected, which ends the stream anyway.
                if watcher.begin(&source, &question, last).await.is_ok() {
                    let _ = watcher.run(&question, &mut looks).await;
                }
            }
        })
    }

    /// Makes the body of a stream that the task `send` fills. Returns `None` if there
    /// are too many watchers. The task ends with the listener, or when its client
    /// disconnects.
    pub(super) fn stream<F>(&self, send: impl FnOnce(mpsc::Sender<BodyPart>) -> F) -> Option<Body>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let BodyChannel { parts, body } = channel_body();
        let gone = parts.clone();
        let sending = send(parts);
        let metrics = Arc::clone(&self.source.metrics);
        let end = self.source.end.clone();
        self.source.tracker.spawn(async move {
            metrics.admin_watchers.inc();
            tokio::select! {
                () = end.cancelled() => {}
                () = gone.closed() => {}
                () = sending => {}
            }
            metrics.admin_watchers.dec();
            drop(place);
        });
        Some(body)
    }

    /// Runs `work` as a task that ends with the listener.
    pub(super) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let end = self.source.end.clone();
        self.source.tracker.spawn(async move {
            tokio::select! {
                () = end.cancelled() => {}
                () = work => {}
            }
        });
    }
}

/// Task tracker and end signal of the follower.
pub(super) struct LiveTasks {
    pub(super) tracker: TaskTracker,
    pub(super) end: CancellationToken,
}

impl LiveSource {
    /// Returns the results from now on. The first watcher of a question starts the
    /// queries.
    fn watch(self: &Arc<Self>, question: &LiveQuestion) -> broadcast::Receiver<LiveLook> {
        let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(feed) = feeds.iter().find(|feed| feed.question == *question) {
            return feed.looks.subscribe();
        }
        let (looks, receiver) = broadcast::channel(LOOKS_BEHIND);
        feeds.push(LiveFeed {
            question: question.clone(),
            looks: looks.clone(),
        });
        let source = Arc::clone(self);
        let question = question.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                () = source.end.cancelled() => {}
                () = source.look(&question, &looks) => {}
            }
        });
        receiver
    }

    /// Queries the record until no watcher is left.
    async fn look(&self, question: &LiveQuestion, looks: &broadcast::Sender<LiveLook>) {
        let mut last = None;
        let mut pause = interval(LOOK_EVERY);
        pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pause.tick().await;
            {
                // Holds the lock, so that no watcher subscribes meanwhile.
                let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
                if looks.receiver_count() == 0 {
                    feeds.retain(|feed| !feed.looks.same_channel(looks));
                    return;
                }
            }
            match self.newer_decisions(question, last).await {
                Ok(newer) => {
                    last = Some(newer.last);
                    let look = self.events(question.form, &newer);
                    if !look.events.is_empty() || 0 < look.missed {
                        // The watchers may have disconnected: the next turn notices.
                        let _ = looks.send(look);
                    }
                }
                // The next query may succeed; decisions that are skipped are reported
                // as missed.
                Err(error) => tracing::debug!(%error, "the record cannot be followed"),
            }
        }
    }

    /// Reads the decisions after the number `last`. Without `last`, only finds the
    /// number to begin after.
    async fn newer_decisions(
        &self,
        question: &LiveQuestion,
        last: Option<u64>,
    ) -> Result<NewerDecisions, AuditError> {
        let LiveQuestion { form, filter } = question.clone();
        let query = self.audit.query(LOOK_TIME_MAX, move |reader| match last {
            Some(last) => reader.decisions_after(last, &filter, form.rows_max()),
            None => Ok(NewerDecisions {
                last: reader.seq_range()?.map_or(0, |range| range.last),
                ..NewerDecisions::default()
            }),
        });
        query.await
    }

    fn events(&self, form: LiveForm, newer: &NewerDecisions) -> LiveLook {
        let mut events = Vec::new();
        let mut bytes = 0;
        // The newest are kept, because watchers care most about those.
        for record in newer.records.iter().rev() {
            let text = self.event(form, record);
            bytes += text.len();
            if LOOK_BYTES_MAX < bytes {
                break;
            }
            let seq = record.seq;
            events.push(LiveEvent { seq, text });
        }
        events.reverse();
        let too_large = newer.records.len() - events.len();
        LiveLook {
            events: Arc::new(events),
            missed: newer.left_out + too_large as u64,
        }
    }

    fn event(&self, form: LiveForm, record: &StoredRecord) -> Vec<u8> {
        // Neither form contains a line break: they are escaped.
        let mut text = format!("event: decision\nid: {}\ndata: ", record.seq).into_bytes();
        match form {
            LiveForm::Row => {
                let row = decision_row(&self.base_path, record).into_string();
                text.extend_from_slice(row.as_bytes());
            }
            // All members are text, so they serialize as JSON.
            LiveForm::Json => append_json(&mut text, &row_json(record)).unwrap_or_default(),
        }
        text.extend_from_slice(b"\n\n");
        text
    }
}

/// Connection of one watcher.
struct Watcher {
    parts: mpsc::Sender<BodyPart>,
    /// Number of the last decision that was sent.
    last: u64,
}

/// Error of sending to a client that has closed its connection.
struct ClientGone;

impl Watcher {
    /// Begins the stream with the decisions since the number `last`.
    async fn begin(
        &mut self,
        source: &LiveSource,
        question: &LiveQuestion,
        last: Option<u64>,
    ) -> Result<(), ClientGone> {
        self.send_bytes(Bytes::from_static(RETRY)).await?;
        while last.is_some() {
            match source.newer_decisions(question, last).await {
                Ok(newer) => return self.show(&source.events(question.form, &newer)).await,
                // Decisions made meanwhile are sent later, or reported as missed.
                Err(error) => tracing::debug!(%error, "the record cannot be followed"),
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    async fn run(
        &mut self,
        question: &LiveQuestion,
        looks: &mut broadcast::Receiver<LiveLook>,
    ) -> Result<(), ClientGone> {
        let mut alive = interval(ALIVE_EVERY);
        loop {
            tokio::select! {
                look = looks.recv() => match look {
                    Ok(look) => self.show(&look).await?,
                    Err(RecvError::Lagged(looks)) => {
                        let decisions = looks.saturating_mul(question.form.rows_max() as u64);
                        self.send(missed(decisions)).await?;
                    }
                    Err(RecvError::Closed) => return Ok(()),
                },
                _ = alive.tick() => self.send_bytes(Bytes::from_static(ALIVE)).await?,
            }
        }
    }

    async fn show(&mut self, look: &LiveLook) -> Result<(), ClientGone> {
        let mut text = Vec::new();
        // A watcher that reconnects may already have received the first events.
        for event in look.events.iter().filter(|event| self.last < event.seq) {
            text.extend_from_slice(&event.text);
        }
        if let Some(event) = look.events.last() {
            self.last = self.last.max(event.seq);
        }
        if 0 < look.missed {
            text.extend_from_slice(missed(look.missed).as_bytes());
        }
        match text.is_empty() {
            true => Ok(()),
            false => self.send_bytes(text.into()).await,
        }
    }

    async fn send(&self, text: String) -> Result<(), ClientGone> {
        self.send_bytes(text.into()).await
    }

    async fn send_bytes(&self, bytes: Bytes) -> Result<(), ClientGone> {
        self.parts.send(Ok(bytes)).await.map_err(|_| ClientGone)
    }
}

fn missed(count: u64) -> String {
    format!("event: missed\ndata: {count}\n\n")
}
