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

/// Most watchers at a time. Each holds a connection.
const WATCHERS_MAX: usize = 16;
/// Pause between two looks at the record: short for whoever watches.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Bytes of the events of one look. With the looks that are kept, and the parts that
/// wait for a client who does not read, all watchers together have some 50 MB.
const LOOK_BYTES_MAX: usize = 512 << 10;
/// Looks that a slow watcher may be behind.
const LOOKS_BEHIND: usize = 2;
/// Pause after which a comment is sent, so that a watcher who has gone is noticed.
pub(super) const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// Comment that is sent then.
pub(super) const ALIVE: &[u8] = b":\n\n";
/// Longest time of a look.
const LOOK_TIME_MAX: Duration = Duration::from_secs(2);
/// Milliseconds after which a browser connects again.
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
    /// Returns how many decisions of one look are sent, the newest.
    fn rows_max(self) -> usize {
        match self {
            // Nobody reads more, and a burst of thousands is not laid out for a browser
            // that could not show it.
            Self::Row => 50,
            Self::Json => 200,
        }
    }
}

/// Question of a watcher: the decisions to send, and their form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiveQuestion {
    pub(super) form: LiveForm,
    pub(super) filter: DecisionFilter,
}

/// Event of a decision.
struct LiveEvent {
    /// Number of the decision.
    seq: u64,
    text: Vec<u8>,
}

/// Events of one query of the record.
#[derive(Clone)]
struct LiveLook {
    events: Arc<Vec<LiveEvent>>,
    /// Number of decisions that were left out because there were too many.
    missed: u64,
}

/// Channel to all watchers with one question.
#[derive(Debug)]
struct LiveFeed {
    question: LiveQuestion,
    looks: broadcast::Sender<LiveLook>,
}

/// Follower of the record.
#[derive(Debug)]
pub(super) struct LiveTail {
    source: Arc<LiveSource>,
    places: Arc<Semaphore>,
}

#[derive(Debug)]
struct LiveSource {
    audit: Arc<AuditLog>,
    metrics: Arc<Metrics>,
    /// Path below which the pages are for browsers.
    base_path: Arc<str>,
    tracker: TaskTracker,
    end: CancellationToken,
    /// Feeds that somebody watches.
    feeds: Mutex<Vec<LiveFeed>>,
}

impl LiveTail {
    /// Makes a follower that begins when somebody watches, in tasks of `tracker`, and
    /// stops at `end`.
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

    /// Makes the body of a stream of the decisions that `question` asks for, those after
    /// the number `last` among them, if there are few; `None` if too many watch.
    pub(super) fn follow(&self, mut question: LiveQuestion, last: Option<u64>) -> Option<Body> {
        // What is to come is later anyway; so those who asked for "1h" watch together.
        question.filter.from = question.filter.from.filter(|from| clock::now() < *from);
        self.stream(|parts| {
            let mut looks = self.source.watch(&question);
            let source = Arc::clone(&self.source);
            let mut watcher = Watcher {
                parts,
                last: last.unwrap_or_default(),
            };
            async move {
                // Fails when its client has gone, which ends the stream anyway.
                if watcher.begin(&source, &question, last).await.is_ok() {
                    let _ = watcher.run(&question, &mut looks).await;
                }
            }
        })
    }

    /// Makes the body of a stream that the task `send` fills; `None` if too many watch. The
    /// task ends with the listener, and when its client has gone.
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

/// Tasks of the follower.
pub(super) struct LiveTasks {
    pub(super) tracker: TaskTracker,
    pub(super) end: CancellationToken,
}

impl LiveSource {
    /// Returns the looks from now on. The first who asks `question` begins them.
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

    /// Looks at the record until nobody watches.
    async fn look(&self, question: &LiveQuestion, looks: &broadcast::Sender<LiveLook>) {
        let mut last = None;
        let mut pause = interval(LOOK_EVERY);
        pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pause.tick().await;
            {
                // Under the lock, so that nobody subscribes meanwhile.
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
                        // Whoever watched may have gone: the next turn notices.
                        let _ = looks.send(look);
                    }
                }
                // The next look may succeed; what it misses is told.
                Err(error) => tracing::debug!(%error, "the record cannot be followed"),
            }
        }
    }

    /// Reads the decisions after the number `last`; without one only finds the number
    /// to begin after.
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
        // The newest are kept: they are what somebody watches for.
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
        // Neither form has an end of a line in it: they are escaped.
        let mut text = format!("event: decision\nid: {}\ndata: ", record.seq).into_bytes();
        match form {
            LiveForm::Row => {
                let row = decision_row(&self.base_path, record).into_string();
                text.extend_from_slice(row.as_bytes());
            }
            // Members are text: JSON can hold them.
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
    /// Begins the stream, with what came since the number `last`.
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
                // What comes meanwhile waits, or is told to be left out.
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
        // Whoever connects again may have got the first ones already.
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
