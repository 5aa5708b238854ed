//! Live streams of decisions, as server-sent events (HTML standard, section 9.2).
//!
//! A watcher is a client that reads a stream. Watchers with the same question share a
//! feed: one task queries the record for all of them, and sends each a batch of events
//! after each query. Does not know who may watch.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OnceCell, Semaphore, broadcast, mpsc};
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
const QUERY_EVERY: Duration = Duration::from_millis(250);
/// Maximum bytes of events in a batch. With the batches that are kept, and the parts
/// that wait for clients that do not read, all watchers together take some 50 MB.
const BATCH_BYTES_MAX: usize = 512 << 10;
/// Number of batches that wait for a slow watcher. Older ones are dropped, and the watcher
/// gets an estimate of how many decisions it has missed.
const BATCHES_WAITING_MAX: usize = 2;
/// Interval of comments, which reveal that a watcher has disconnected.
pub(super) const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// Comment that is sent at this interval.
pub(super) const ALIVE: &[u8] = b":\n\n";
/// Longest time of a query.
const QUERY_TIME_MAX: Duration = Duration::from_secs(2);
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
    /// Form of the events.
    pub(super) form: LiveForm,
    /// Decisions to send.
    pub(super) filter: DecisionFilter,
}

/// Event about a decision.
struct LiveEvent {
    /// Number of the decision.
    seq: u64,
    /// Text of the event, as sent.
    text: Vec<u8>,
}

/// Events from one query of the record.
#[derive(Clone)]
struct LiveBatch {
    /// Events, in the order of the decisions.
    events: Arc<Vec<LiveEvent>>,
    /// Number of decisions that were left out because there were too many.
    missed: u64,
}

/// Channel to all watchers with the same question. Each receives all batches.
#[derive(Debug, Clone)]
struct LiveFeed {
    question: LiveQuestion,
    /// Number of the newest decision when the feed was first queried.
    start: Arc<OnceCell<u64>>,
    batches: broadcast::Sender<LiveBatch>,
}

/// Follows the record for watchers.
#[derive(Debug)]
pub(super) struct LiveTail {
    source: Arc<LiveSource>,
    /// One permit for each watcher that may be added.
    permits: Arc<Semaphore>,
}

/// State shared by the feeds and the watchers.
#[derive(Debug)]
struct LiveSource {
    audit: Arc<AuditLog>,
    metrics: Arc<Metrics>,
    /// Path below which browsers see the pages.
    base_path: Arc<str>,
    /// Tracks all tasks, so that a stop can wait for them.
    tracker: TaskTracker,
    /// Cancelled when the listener stops.
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
            permits: Arc::new(Semaphore::new(WATCHERS_MAX)),
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
            let (feed, mut batches) = self.source.watch(question);
            let source = Arc::clone(&self.source);
            let mut watcher = Watcher { parts, last };
            async move {
                // Fails if the client has disconnected, which ends the stream anyway.
                if watcher.begin(&source, &feed).await.is_ok() {
                    let _ = watcher.run(&feed.question, &mut batches).await;
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
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
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
            drop(permit);
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
    /// Tracks all tasks, so that a stop can wait for them.
    pub(super) tracker: TaskTracker,
    /// Cancelled when the listener stops.
    pub(super) end: CancellationToken,
}

impl LiveSource {
    /// Returns the feed of a question, and its batches from now on. The first watcher of
    /// a question starts the task that queries the record.
    fn watch(
        self: &Arc<Self>,
        question: LiveQuestion,
    ) -> (LiveFeed, broadcast::Receiver<LiveBatch>) {
        let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(feed) = feeds.iter().find(|feed| feed.question == question) {
            return (feed.clone(), feed.batches.subscribe());
        }
        let feed = LiveFeed {
            question,
            start: Arc::default(),
            batches: broadcast::Sender::new(BATCHES_WAITING_MAX),
        };
        let batches = feed.batches.subscribe();
        feeds.push(feed.clone());
        let (source, queried) = (Arc::clone(self), feed.clone());
        self.tracker.spawn(async move {
            tokio::select! {
                () = source.end.cancelled() => {}
                () = source.query_while_watched(&queried) => {}
            }
        });
        (feed, batches)
    }

    /// Queries the record again and again, and sends batches, until no watcher is left.
    async fn query_while_watched(&self, feed: &LiveFeed) {
        let batches = &feed.batches;
        let mut last = None;
        let mut pause = interval(QUERY_EVERY);
        pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pause.tick().await;
            {
                // The lock is held from the count to the removal, so that no watcher
                // subscribes to a feed that is about to be removed.
                let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
                if batches.receiver_count() == 0 {
                    feeds.retain(|feed| !feed.batches.same_channel(batches));
                    return;
                }
            }
            match self.newer_decisions(feed, last).await {
                Ok(newer) => {
                    last = Some(newer.last);
                    let batch = self.batch(feed.question.form, &newer);
                    if !batch.events.is_empty() || 0 < batch.missed {
                        // Fails if all watchers have disconnected, which the next turn of
                        // the loop notices.
                        let _ = batches.send(batch);
                    }
                }
                // The next query may succeed; decisions that are skipped are reported
                // as missed.
                Err(error) => tracing::debug!(%error, "the record cannot be followed"),
            }
        }
    }

    /// Reads the decisions after the number `last`, or after the start of the feed.
    async fn newer_decisions(
        &self,
        feed: &LiveFeed,
        last: Option<u64>,
    ) -> Result<NewerDecisions, AuditError> {
        // Found before any watcher queries: a decision between the query of the watcher
        // and a later start would be sent by neither.
        let newest = || {
            self.audit.query(QUERY_TIME_MAX, |reader| {
                Ok(reader.seq_range()?.map_or(0, |range| range.last))
            })
        };
        let start = *feed.start.get_or_try_init(newest).await?;
        let LiveQuestion { form, filter } = feed.question.clone();
        let query = self.audit.query(QUERY_TIME_MAX, move |reader| {
            reader.decisions_after(last.unwrap_or(start), &filter, form.rows_max())
        });
        query.await
    }

    /// Makes a batch of newer decisions.
    fn batch(&self, form: LiveForm, newer: &NewerDecisions) -> LiveBatch {
        let mut events = Vec::new();
        let mut bytes = 0;
        // The newest are kept, because watchers care most about those.
        for record in newer.records.iter().rev() {
            let text = self.event(form, record);
            bytes += text.len();
            if BATCH_BYTES_MAX < bytes {
                break;
            }
            let seq = record.seq;
            events.push(LiveEvent { seq, text });
        }
        events.reverse();
        let too_large = newer.records.len() - events.len();
        LiveBatch {
            events: Arc::new(events),
            missed: newer.left_out + too_large as u64,
        }
    }

    /// Makes the event about a decision.
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
    /// Channel to the response body.
    parts: mpsc::Sender<BodyPart>,
    /// Number of the last decision that was sent, if a decision was sent or the client
    /// named one.
    last: Option<u64>,
}

/// Error of sending to a client that has closed its connection.
struct ClientGone;

impl Watcher {
    /// Begins the stream with the decisions after the number that the client named.
    async fn begin(&mut self, source: &LiveSource, feed: &LiveFeed) -> Result<(), ClientGone> {
        self.send_bytes(Bytes::from_static(RETRY)).await?;
        while let Some(last) = self.last {
            match source.newer_decisions(feed, Some(last)).await {
                Ok(newer) => return self.show(&source.batch(feed.question.form, &newer)).await,
                // Decisions made meanwhile are sent later, or reported as missed.
                Err(error) => tracing::debug!(%error, "the record cannot be followed"),
            }
            sleep(QUERY_EVERY).await;
        }
        Ok(())
    }

    /// Sends batches as they arrive, and a comment from time to time.
    async fn run(
        &mut self,
        question: &LiveQuestion,
        batches: &mut broadcast::Receiver<LiveBatch>,
    ) -> Result<(), ClientGone> {
        let mut alive = interval(ALIVE_EVERY);
        loop {
            tokio::select! {
                batch = batches.recv() => match batch {
                    Ok(batch) => self.show(&batch).await?,
                    Err(RecvError::Lagged(skipped)) => {
                        // An estimate: a batch has at most this many events, usually fewer.
                        let decisions = skipped.saturating_mul(question.form.rows_max() as u64);
                        self.send(missed_event(decisions)).await?;
                    }
                    Err(RecvError::Closed) => return Ok(()),
                },
                _ = alive.tick() => self.send_bytes(Bytes::from_static(ALIVE)).await?,
            }
        }
    }

    /// Sends the events of a batch, except those of decisions already sent.
    async fn show(&mut self, batch: &LiveBatch) -> Result<(), ClientGone> {
        let mut text = Vec::new();
        // A watcher that reconnects may already have received the first events.
        for event in batch
            .events
            .iter()
            .filter(|event| self.last < Some(event.seq))
        {
            text.extend_from_slice(&event.text);
        }
        if let Some(event) = batch.events.last() {
            self.last = self.last.max(Some(event.seq));
        }
        if 0 < batch.missed {
            text.extend_from_slice(missed_event(batch.missed).as_bytes());
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

/// Makes the event that tells a watcher how many decisions were left out.
fn missed_event(count: u64) -> String {
    format!("event: missed\ndata: {count}\n\n")
}
