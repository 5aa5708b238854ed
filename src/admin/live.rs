//! Decisions as they are made, for all who watch: one task follows the record, and
//! each watcher takes what its filter has.
//!
//! Server-sent events are defined by the HTML standard (section 9.2). Does not know
//! who may watch.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast, mpsc};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::channel_body::{BodyChannel, BodyPart, channel_body};
use super::decision_view::decision_row;
use crate::audit::filter::DecisionFilter;
use crate::audit::reader::AuditReader;
use crate::audit::{AuditError, AuditLog, row_json};
use crate::decision::record::StoredRecord;
use crate::inert::append_json;
use crate::metrics::Metrics;

/// Watchers at a time. A connection is held for each.
const WATCHERS_MAX: usize = 16;
/// Pause between two looks at the record: short for whoever watches.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Decisions that are shown of one look. Nobody reads more, and a burst of thousands
/// is not laid out for a browser that could not show it.
const ROWS_MAX: usize = 200;
/// Looks that a slow watcher may be behind.
const LOOKS_BEHIND: usize = 16;
/// Pause after which a comment is sent, so that a watcher who has gone is noticed.
const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// Longest time of a look.
const LOOK_TIME_MAX: Duration = Duration::from_secs(2);
/// Milliseconds after which a browser connects again.
const RETRY: &str = "retry: 2000\n\n";

/// Form of the events.
#[derive(Debug, Clone, Copy)]
pub(super) enum LiveForm {
    /// Row of the table of decisions, in HTML.
    Row,
    /// Object of `/api/v1/decisions`.
    Json,
}

/// A decision, in the forms in which it is sent. They are made once for all.
struct LiveDecision {
    record: StoredRecord,
    row: Bytes,
    json: Bytes,
}

/// Decisions of one look.
#[derive(Clone)]
struct LiveLook {
    decisions: Arc<Vec<LiveDecision>>,
    /// Decisions that were left out.
    missed: u64,
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
    /// Way to the watchers; absent while nobody watches.
    looks: Mutex<Option<broadcast::Sender<LiveLook>>>,
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
                looks: Mutex::new(None),
            }),
            places: Arc::new(Semaphore::new(WATCHERS_MAX)),
        }
    }

    /// Makes the body of a stream of the decisions that meet `filter`, those after the
    /// number `last` among them, if there are few; `None` if too many watch.
    pub(super) async fn follow(
        &self,
        form: LiveForm,
        filter: DecisionFilter,
        last: Option<u64>,
    ) -> Option<Body> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let mut looks = self.source.watch();
        let BodyChannel { parts, body } = channel_body();
        let mut watcher = Watcher {
            parts,
            form,
            filter,
        };
        let source = Arc::clone(&self.source);
        self.source.tracker.spawn(async move {
            source.metrics.admin_watchers.inc();
            let begun = watcher.begin(&source, last).await;
            if begun.is_ok() {
                tokio::select! {
                    () = source.end.cancelled() => {}
                    () = watcher.parts.closed() => {}
                    // Ends when its client has gone.
                    _ = watcher.run(&mut looks) => {}
                }
            }
            source.metrics.admin_watchers.dec();
            drop(place);
        });
        Some(body)
    }
}

/// Tasks of the follower.
pub(super) struct LiveTasks {
    pub(super) tracker: TaskTracker,
    pub(super) end: CancellationToken,
}

impl LiveSource {
    /// Returns the looks from now on. The first watcher begins them.
    fn watch(self: &Arc<Self>) -> broadcast::Receiver<LiveLook> {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*looks {
            return sender.subscribe();
        }
        let (sender, receiver) = broadcast::channel(LOOKS_BEHIND);
        *looks = Some(sender.clone());
        let source = Arc::clone(self);
        self.tracker.spawn(async move {
            tokio::select! {
                () = source.end.cancelled() => {}
                () = source.look(&sender) => {}
            }
        });
        receiver
    }

    /// Looks at the record until nobody watches.
    async fn look(&self, sender: &broadcast::Sender<LiveLook>) {
        let mut last = None;
        let mut pause = interval(LOOK_EVERY);
        pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pause.tick().await;
            {
                // Under the lock, so that nobody subscribes meanwhile.
                let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
                if sender.receiver_count() == 0 {
                    *looks = None;
                    return;
                }
            }
            match self.new_decisions(last).await {
                Ok(found) => {
                    last = Some(found.last);
                    if !found.records.is_empty() || 0 < found.missed {
                        let look = LiveLook {
                            missed: found.missed,
                            decisions: Arc::new(self.in_forms(found.records)),
                        };
                        // Whoever watched may have gone: the next turn notices.
                        let _ = sender.send(look);
                    }
                }
                Err(AuditError::Closed) => return,
                // The next look may succeed; what it misses is told.
                Err(error) => tracing::debug!(%error, "the record cannot be followed"),
            }
        }
    }

    /// Reads the decisions after the number `last`; without one only finds the number
    /// to begin after.
    async fn new_decisions(&self, last: Option<u64>) -> Result<NewDecisions, AuditError> {
        self.audit
            .query(LOOK_TIME_MAX, move |reader| {
                NewDecisions::read(reader, last)
            })
            .await
    }

    fn in_forms(&self, records: Vec<StoredRecord>) -> Vec<LiveDecision> {
        let records = records.into_iter();
        let forms = records.map(|record| {
            let mut json = Vec::new();
            // Members are text: JSON can hold them.
            append_json(&mut json, &row_json(&record)).unwrap_or_default();
            LiveDecision {
                row: decision_row(&self.base_path, &record).into_string().into(),
                json: json.into(),
                record,
            }
        });
        forms.collect()
    }
}

/// Decisions since a look.
struct NewDecisions {
    records: Vec<StoredRecord>,
    missed: u64,
    /// Number to go on after.
    last: u64,
}

impl NewDecisions {
    fn read(reader: &AuditReader, last: Option<u64>) -> Result<Self, AuditError> {
        let newest = reader.seq_range()?.map_or(0, |range| range.last);
        let Some(last) = last else {
            return Ok(Self {
                records: Vec::new(),
                missed: 0,
                last: newest,
            });
        };
        // Numbers have gaps, endings among them: a little more is looked at than is
        // shown.
        let begin = last.max(newest.saturating_sub(4 * ROWS_MAX as u64));
        let mut records = Vec::new();
        let seen = reader.visit_decisions_after(begin, &DecisionFilter::default(), |record| {
            records.push(record);
            ControlFlow::Continue(())
        })?;
        // The newest are what somebody looks at.
        let too_many = records.len().saturating_sub(ROWS_MAX);
        records.drain(..too_many);
        let missed = begin.saturating_sub(last);
        Ok(Self {
            records,
            missed: missed + too_many as u64,
            last: seen,
        })
    }
}

/// One who watches.
struct Watcher {
    parts: mpsc::Sender<BodyPart>,
    form: LiveForm,
    filter: DecisionFilter,
}

/// The client has gone.
struct ClientGone;

impl Watcher {
    /// Begins the stream, with what came since the number `last`.
    async fn begin(&mut self, source: &LiveSource, last: Option<u64>) -> Result<(), ClientGone> {
        self.send(RETRY.to_owned()).await?;
        if last.is_some()
            && let Ok(found) = source.new_decisions(last).await
        {
            let look = LiveLook {
                missed: found.missed,
                decisions: Arc::new(source.in_forms(found.records)),
            };
            self.show(&look).await?;
        }
        Ok(())
    }

    async fn run(&self, looks: &mut broadcast::Receiver<LiveLook>) -> Result<(), ClientGone> {
        let mut alive = interval(ALIVE_EVERY);
        loop {
            tokio::select! {
                look = looks.recv() => match look {
                    Ok(look) => self.show(&look).await?,
                    Err(RecvError::Lagged(looks)) => {
                        self.send(missed(looks * ROWS_MAX as u64)).await?;
                    }
                    Err(RecvError::Closed) => return Ok(()),
                },
                _ = alive.tick() => self.send(":\n\n".to_owned()).await?,
            }
        }
    }

    async fn show(&self, look: &LiveLook) -> Result<(), ClientGone> {
        let mut text = Vec::new();
        let wanted = look.decisions.iter();
        for decision in wanted.filter(|decision| self.filter.admits_live(&decision.record)) {
            let data = match self.form {
                LiveForm::Row => &decision.row,
                LiveForm::Json => &decision.json,
            };
            // Neither form has an end of a line in it: they are escaped.
            let head = format!("event: decision\nid: {}\ndata: ", decision.record.seq);
            text.extend_from_slice(head.as_bytes());
            text.extend_from_slice(data);
            text.extend_from_slice(b"\n\n");
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
