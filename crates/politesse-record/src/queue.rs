//! Queue to the writer, its tasks, and how each is answered.
//!
//! The queue itself is unbounded: each sender holds a place, which the entry keeps
//! until it is written or refused. `Drop` cannot wait for a place, so the place for
//! an exchange's ending is reserved before its decision is written. An exchange
//! that is dropped half-way therefore still completes its row.
//!
//! Does not know how entries are written.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, WaitTimeoutResult};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::error::{AuditError, WriteError};
use super::gathering::{CommitAnswers, EntryGathering};
use super::redaction::RedactionOrder;
use super::tasks::{
    CLIENT_GONE, CommitResult, PendingEvent, PendingProcessEvent, PendingSave, PruneOrder,
};
use politesse_base::clock;
use politesse_decision::record::{ExchangeEnd, Record, StoredRuling};

/// Maximum number of entries taken from the queue at a time.
pub(super) const BATCH_MAX: usize = 512;

/// Minute of a decision since 1970, and its ruling. Its ending is counted under the
/// same two.
#[derive(Debug, Clone)]
pub(super) struct CountedPlace {
    pub(super) minute: i64,
    pub(super) ruling: Arc<StoredRuling>,
}

/// Task of the writer.
#[derive(Debug)]
pub(super) enum WriterTask {
    /// Write a decision.
    Record(PendingDecision),
    /// Complete a decision. `ack` is set if the client is answered only after the
    /// commit.
    Complete {
        seq: u64,
        outcome: ExchangeEnd,
        place: Option<CountedPlace>,
        ack: Option<oneshot::Sender<CommitResult>>,
    },
    /// Save the newest snapshot of a robots.txt.
    SaveSnapshot(PendingSave),
    /// Write a back-off event of a host.
    Event(PendingEvent),
    /// Write an event of the proxy itself. It is retried until it is written,
    /// because the counts in these events are compared with each other.
    Process(PendingProcessEvent),
    /// Remove entries from before a given time.
    Prune(PruneOrder),
    /// Redact decisions, and write the event that records it.
    Redact {
        order: RedactionOrder,
        ack: oneshot::Sender<CommitResult>,
    },
    /// Check whether a decision could be written.
    Probe { ack: oneshot::Sender<CommitResult> },
}

impl WriterTask {
    /// Reports whether the task completes an exchange that the client abandoned.
    pub(super) fn is_by_client(&self) -> bool {
        matches!(self, Self::Complete { outcome, .. } if outcome.error == Some(CLIENT_GONE))
    }

    /// Reports whether a sender waits for the commit.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(
            self,
            Self::Record(_)
                | Self::Complete { ack: Some(_), .. }
                | Self::Prune(_)
                | Self::Redact { .. }
                | Self::Probe { .. }
        )
    }

    /// Reports whether the result of the task is counted. Counts are updated before
    /// any answer is sent, because a saved snapshot is no longer pending, and a
    /// client that has its answer may look at the counts.
    pub(super) fn is_counted(&self) -> bool {
        matches!(
            self,
            Self::SaveSnapshot(_) | Self::Event(_) | Self::Process(_)
        )
    }

    /// Reports whether the task may be dropped so that decisions can be written.
    pub(super) fn is_dispensable(&self) -> bool {
        matches!(self, Self::SaveSnapshot(_) | Self::Event(_))
    }

    /// Sends the error to the sender that waits for a task which will be retried.
    pub(super) fn answer_failure(&mut self, error: &Arc<WriteError>) {
        if let Self::Complete { ack, .. } = self
            && let Some(ack) = ack.take()
        {
            ack.send(Err(Arc::clone(error))).unwrap_or_default();
        }
    }

    /// Reports whether queueing the task was a promise: it is retried until it is
    /// written.
    pub(super) fn is_accepted(&self) -> bool {
        matches!(self, Self::Complete { .. } | Self::Process(_))
    }

    /// Ends the task: sends the result to the waiting sender, or counts it.
    pub(super) fn end(self, result: CommitResult) {
        match self {
            Self::Record(pending) => pending.end(result),
            Self::Redact { ack, .. }
            | Self::Probe { ack }
            | Self::Complete { ack: Some(ack), .. } => {
                // The receiver may be gone: it gave up waiting.
                ack.send(result).unwrap_or_default();
            }
            Self::SaveSnapshot(mut save) if result.is_ok() => save.count.result = "saved",
            Self::Event(mut pending) if result.is_ok() => pending.count.result = "written",
            Self::Process(mut pending) if result.is_ok() => pending.count.result = "written",
            Self::Complete { ack: None, .. }
            | Self::SaveSnapshot(_)
            | Self::Event(_)
            | Self::Prune(_)
            | Self::Process(_) => {}
        }
    }
}

#[derive(Debug)]
struct EntryQueueState {
    entries: VecDeque<WriterEntry>,
    gathering: EntryGathering,
    /// Whether the writer waits for entries.
    is_writer_waiting: bool,
    is_closed: bool,
}

impl EntryQueueState {
    /// Returns how much longer entries may be gathered at `now`; `None` if the
    /// queued entries must be written.
    fn gather_time(&self, now: Instant) -> Option<Duration> {
        let time = self.gathering.time_left(self.entries.len(), now);
        time.filter(|_| !self.is_closed)
    }

    /// Appends `entry`. Returns whether the writer must be woken for it; most
    /// entries do not need that system call.
    fn push(&mut self, entry: WriterEntry) -> bool {
        let is_awaited = entry.task.is_awaited();
        if self.entries.is_empty() {
            self.gathering.begin(clock::instant());
        }
        self.entries.push_back(entry);
        if is_awaited {
            self.gathering.add_awaited();
        }
        if !self.is_writer_waiting {
            return false;
        }
        let count = self.entries.len();
        // While it waits for clients to return, the writer wakes by itself when
        // that time is over.
        let is_news = count == 1 || is_awaited;
        let is_due = self.gathering.is_enough(count)
            || is_news && self.gathering.return_time(clock::instant()).is_none();
        self.is_writer_waiting = !is_due;
        is_due
    }
}

/// State that both ends of the queue share.
#[derive(Debug)]
struct SharedQueue {
    state: Mutex<EntryQueueState>,
    /// Number of entries in the queue.
    waiting: Gauge,
    /// Wakes the writer.
    ready: Condvar,
    senders: AtomicUsize,
}

impl SharedQueue {
    fn lock(&self) -> MutexGuard<'_, EntryQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends `task` to the queue. Returns whether the writer must be woken.
    fn push(&self, mut task: WriterTask, slot: OwnedSemaphorePermit) -> Result<bool, AuditError> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(AuditError::Closed);
        }
        if let WriterTask::Process(pending) = &mut task {
            // Read while the queue is locked, so that the decision of every request
            // counted so far is queued before this entry.
            pending.read_count();
        }
        self.waiting.inc();
        Ok(state.push(WriterEntry { task, _slot: slot }))
    }

    /// Waits until the writer is woken, for at most `patience`.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, EntryQueueState>,
        patience: Duration,
    ) -> (MutexGuard<'a, EntryQueueState>, WaitTimeoutResult) {
        state.is_writer_waiting = true;
        let woken = self.ready.wait_timeout(state, patience);
        woken.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sender to the writer. Dropping the last one closes the queue.
#[derive(Debug)]
pub(super) struct EntryQueue {
    shared: Arc<SharedQueue>,
}

impl Clone for EntryQueue {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for EntryQueue {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close();
        }
    }
}

impl EntryQueue {
    /// Creates a queue for senders that share `places`, and its receiving end.
    /// `waiting` is set to the number of entries in the queue.
    pub(super) fn new(places: usize, waiting: Gauge) -> (Self, EntryReceiver) {
        let state = EntryQueueState {
            entries: VecDeque::new(),
            gathering: EntryGathering::new(places),
            is_writer_waiting: false,
            is_closed: false,
        };
        let shared = Arc::new(SharedQueue {
            state: Mutex::new(state),
            waiting,
            ready: Condvar::new(),
            senders: AtomicUsize::new(1),
        });
        let receiver = EntryReceiver {
            shared: Arc::clone(&shared),
        };
        (Self { shared }, receiver)
    }

    /// Sends `task`, which holds `slot` until it is done or refused. Does not wait.
    ///
    /// # Errors
    ///
    /// [`AuditError::Closed`] if the queue is closed.
    pub(super) fn send(
        &self,
        task: WriterTask,
        slot: OwnedSemaphorePermit,
    ) -> Result<(), AuditError> {
        if self.shared.push(task, slot)? {
            self.shared.ready.notify_one();
        }
        Ok(())
    }

    /// Stops accepting entries. The writer ends when it has written the queued
    /// ones.
    pub(super) fn close(&self) {
        self.shared.lock().is_closed = true;
        self.shared.ready.notify_one();
    }
}

/// Task and the place in the queue that it holds.
#[derive(Debug)]
pub(super) struct WriterEntry {
    pub(super) task: WriterTask,
    _slot: OwnedSemaphorePermit,
}

/// Receiving end of the queue.
#[derive(Debug)]
pub(super) struct EntryReceiver {
    shared: Arc<SharedQueue>,
}

impl EntryReceiver {
    /// Waits for entries, for at most `patience`, and appends them to `batch`.
    /// Returns `false` if the queue is empty and closed.
    pub(super) fn receive(&self, batch: &mut Vec<WriterEntry>, patience: Option<Duration>) -> bool {
        let mut state = self.shared.lock();
        while state.entries.is_empty() {
            if state.is_closed {
                return false;
            }
            let returning = state.gathering.return_time(clock::instant());
            let time = returning.or(patience).unwrap_or(Duration::MAX);
            let (woken_state, result) = self.shared.wait(state, time);
            state = woken_state;
            // From then on, clients that have not returned are no longer waited
            // for.
            if result.timed_out() && !state.gathering.give_up_returning() {
                return true;
            }
        }
        while let Some(time) = state.gather_time(clock::instant()) {
            let (woken_state, result) = self.shared.wait(state, time);
            state = woken_state;
            // In a test the clock may stand still, so the timeout itself ends the
            // loop.
            if result.timed_out() && !state.gathering.give_up_returning() {
                break;
            }
        }
        let count = state.entries.len().min(BATCH_MAX);
        let taken = batch.len();
        batch.extend(state.entries.drain(..count));
        state.gathering.take_awaited(count_awaited(&batch[taken..]));
        true
    }

    /// Appends a task of the writer itself to the queue.
    ///
    /// # Errors
    ///
    /// As [`EntryQueue::send`].
    pub(super) fn send(
        &self,
        task: WriterTask,
        slot: OwnedSemaphorePermit,
    ) -> Result<(), AuditError> {
        // No wake-up is needed, because the caller is the writer.
        self.shared.push(task, slot).map(drop)
    }

    /// Notes that a batch is on disk. Must be called before its senders are
    /// answered.
    pub(super) fn note_commit(&self, answers: CommitAnswers) {
        let mut state = self.shared.lock();
        // Each exchange has a sender, for its ending, so the senders count the
        // exchanges.
        let exchanges = self.shared.senders.load(Ordering::Relaxed);
        state
            .gathering
            .note_commit(answers, exchanges, clock::instant());
    }
}

/// Counts the entries whose senders wait for the commit.
pub(super) fn count_awaited(entries: &[WriterEntry]) -> usize {
    let awaited = entries.iter().filter(|entry| entry.task.is_awaited());
    awaited.count()
}

impl Drop for EntryReceiver {
    fn drop(&mut self) {
        // Without a writer, entries are refused: dropping them tells the waiting
        // senders.
        let mut state = self.shared.lock();
        state.is_closed = true;
        let entries = mem::take(&mut state.entries);
        drop(state);
        drop(entries);
    }
}

/// Reserved place in the queue, so that an ending can always be written.
#[derive(Debug)]
pub(super) struct ReservedPlace {
    pub(super) queue: EntryQueue,
    pub(super) slot: OwnedSemaphorePermit,
}

/// Ending of an exchange. It completes the row of the decision: through
/// [`RecordEnding::complete`], or with the error `client_gone` if the exchange is
/// dropped.
#[derive(Debug)]
#[must_use = "dropping it says that the client has gone"]
pub struct RecordEnding {
    /// Number of the decision.
    seq: u64,
    reserved: Option<ReservedPlace>,
    outcome: ExchangeEnd,
    place: Option<CountedPlace>,
    /// Channel to the exchange that waits until the ending is on disk.
    ack: Option<oneshot::Sender<CommitResult>>,
}

impl RecordEnding {
    /// Creates the ending of an exchange whose decision is on disk with number
    /// `seq`.
    fn new(seq: u64, place: Option<CountedPlace>, reserved: ReservedPlace) -> Self {
        Self {
            seq,
            reserved: Some(reserved),
            place,
            outcome: ExchangeEnd {
                status: None,
                sent: 0,
                seen: None,
                bytes: 0,
                error: Some(CLIENT_GONE),
            },
            ack: None,
        }
    }

    /// Returns the number of the decision.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Completes the row with `outcome`.
    pub fn complete(mut self, outcome: ExchangeEnd) {
        self.outcome = outcome;
    }

    /// Completes the row and waits until that is on disk. On failure the row is
    /// still retried like any other.
    ///
    /// # Errors
    ///
    /// [`AuditError::Write`]; [`AuditError::Closed`] if the writer has ended.
    pub async fn complete_on_disk(mut self, outcome: ExchangeEnd) -> Result<(), AuditError> {
        let (ack, committed) = oneshot::channel();
        (self.outcome, self.ack) = (outcome, Some(ack));
        drop(self);
        let written = committed.await.map_err(|_| AuditError::Closed)?;
        written.map_err(AuditError::Write)
    }
}

impl Drop for RecordEnding {
    fn drop(&mut self) {
        let Some(ReservedPlace { queue, slot }) = self.reserved.take() else {
            return;
        };
        let task = WriterTask::Complete {
            seq: self.seq,
            outcome: self.outcome.clone(),
            place: self.place.take(),
            ack: self.ack.take(),
        };
        // After the end of the writer the row stays incomplete.
        queue.send(task, slot).unwrap_or_default();
    }
}

/// Result of writing a decision: its ending, or the reason why it is not on disk.
pub(super) type DecisionResult = Result<RecordEnding, Arc<WriteError>>;

/// Decision waiting to be written.
#[derive(Debug)]
pub(super) struct PendingDecision {
    pub(super) record: Record,
    /// Number given by the writer; 0 until then.
    pub(super) seq: u64,
    /// Minute and ruling under which it was counted; `None` until then.
    pub(super) place: Option<CountedPlace>,
    /// Place for the ending.
    reserved: ReservedPlace,
    ack: oneshot::Sender<DecisionResult>,
}

impl PendingDecision {
    /// Creates a decision to be sent, with a reserved place for its ending, and the
    /// receiver of its result.
    pub(super) fn new(
        record: Record,
        reserved: ReservedPlace,
    ) -> (Self, oneshot::Receiver<DecisionResult>) {
        let (ack, committed) = oneshot::channel();
        let pending = Self {
            record,
            seq: 0,
            place: None,
            reserved,
            ack,
        };
        (pending, committed)
    }

    /// Sends the result to the exchange. A refused decision has no row and so no
    /// ending.
    fn end(self, result: CommitResult) {
        let ending = result.map(|()| RecordEnding::new(self.seq, self.place, self.reserved));
        // If the client hung up, the ending is dropped here and completes the row.
        drop(self.ack.send(ending));
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, oneshot};

    use super::*;

    fn empty_queue() -> (EntryQueue, EntryReceiver) {
        EntryQueue::new(1000, Gauge::default())
    }

    fn slot() -> OwnedSemaphorePermit {
        Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap()
    }

    /// Returns the ending of decision 1.
    fn ending() -> WriterTask {
        let outcome = ExchangeEnd {
            status: None,
            sent: 0,
            seen: None,
            bytes: 0,
            error: None,
        };
        WriterTask::Complete {
            seq: 1,
            outcome,
            place: None,
            ack: None,
        }
    }

    /// Queues a task whose sender waits for the commit.
    fn send_awaited(queue: &EntryQueue) {
        let (ack, _wait) = oneshot::channel();
        queue.send(WriterTask::Probe { ack }, slot()).unwrap();
    }

    fn answer_two(receiver: &EntryReceiver, duration: Duration) {
        receiver.note_commit(CommitAnswers {
            awaited: 2,
            duration,
        });
    }

    // Ours: most entries cost no system call, because they do not wake the writer.
    #[test]
    fn a_writer_is_woken_when_it_waits_and_has_something_to_do() {
        let (queue, receiver) = empty_queue();
        let is_woken = |task| {
            queue.shared.lock().is_writer_waiting = true;
            queue.shared.push(task, slot()).unwrap()
        };
        let awaited = || WriterTask::Probe {
            ack: oneshot::channel().0,
        };
        let tasks = [ending(), ending(), awaited(), awaited()];
        assert_eq!(tasks.map(is_woken), [true, false, true, true]);
        assert!(!queue.shared.push(awaited(), slot()).unwrap());

        let mut batch = Vec::new();
        assert!(receiver.receive(&mut batch, None));
        answer_two(&receiver, Duration::from_secs(1));
        let tasks = [ending(), awaited(), ending(), awaited()];
        assert_eq!(tasks.map(is_woken), [false, false, false, true]);
    }

    // Ours: the receiver has taken the only awaited entry, and most exchanges are
    // busy elsewhere.
    #[test]
    fn entries_taken_are_no_longer_awaited_and_exchanges_are_counted() {
        let (queue, receiver) = empty_queue();
        send_awaited(&queue);
        assert!(receiver.receive(&mut Vec::new(), None));
        queue.send(ending(), slot()).unwrap();
        assert!(queue.shared.lock().gather_time(clock::instant()).is_some());

        let returning = || {
            answer_two(&receiver, Duration::from_secs(1));
            let state = queue.shared.lock();
            state.gathering.return_time(clock::instant()).is_some()
        };
        assert!(returning());
        // The first sender belongs to the record, not to an exchange.
        let _exchanges = vec![queue.clone(); 8];
        assert!(!returning());
    }

    // Ours: a client that has returned must not wait for others that have not.
    #[test]
    fn clients_that_do_not_come_back_are_not_waited_for_again() {
        let (queue, receiver) = empty_queue();
        answer_two(&receiver, Duration::from_micros(1));
        send_awaited(&queue);
        let mut batch = Vec::new();
        assert!(receiver.receive(&mut batch, None));
        assert_eq!(batch.len(), 1);
    }

    // Invariant 3: an entry sent after the end is refused, so that its sender
    // knows.
    #[test]
    fn a_queue_is_closed_by_its_last_sender_and_by_its_receiver() {
        let (queue, receiver) = empty_queue();
        let other = queue.clone();
        drop(queue);
        other.send(ending(), slot()).unwrap();
        let shared = Arc::clone(&other.shared);
        drop(other);
        let mut batch = Vec::new();
        assert!(receiver.receive(&mut batch, None) && batch.len() == 1);
        assert!(!receiver.receive(&mut batch, None) && shared.lock().is_closed);
        let (queue, receiver) = empty_queue();
        drop(receiver);
        let sent = queue.send(ending(), slot());
        assert!(matches!(sent, Err(AuditError::Closed)));
    }
}
