//! Queue to the writer, and the numbers that are given in it.
//!
//! The queue has no bound of its own: whoever sends holds a place, which goes
//! with the entry until it is written or refused. `Drop` cannot wait for one,
//! so the place of an exchange's ending is reserved before its decision is
//! written: an exchange that is dropped half-way still completes its row.
//!
//! With `audit.durability = "queue"` nobody waits for a commit. The writer then
//! gathers entries for a moment, so that a commit is shared by many, and an entry
//! gets its number as it is queued: the order of numbers is that of the queue, and
//! a crash can only take the last ones.
//!
//! Does not know how entries are written.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::error::AuditError;
use super::tasks::{CLIENT_GONE, SharedSeq, WriterTask};
use crate::clock;
use crate::decision::record::ExchangeEnd;

/// Entries taken from the queue at a time.
const BATCH_MAX: usize = 512;

/// Time for which entries are gathered that nobody waits for. A crash loses them,
/// so it is short; a commit costs as much as hundreds of rows, so it is not
/// shorter.
const GATHER_TIME: Duration = Duration::from_millis(20);

/// Entries that are written without waiting for more: beyond this a batch is
/// hardly cheaper for each.
const GATHER_ENTRIES: usize = 256;

/// Part of a reserved block, one in so many, that is kept for decisions: while
/// nothing can be written, events come and are lost, and each uses up a number.
const KEPT_FROM_EVENTS: u64 = 16;

/// Numbers that may be given on queueing.
#[derive(Debug, Clone, Copy)]
pub(super) struct NumberRange {
    /// The next number.
    pub(super) next: u64,
    /// Highest number that is reserved on disk: none beyond it may be told.
    pub(super) reserved: u64,
    /// Numbers that are reserved at a time.
    pub(super) block: u64,
}

impl NumberRange {
    /// Takes the number of `task`; `None` if too few are reserved.
    fn take(&mut self, task: &WriterTask) -> Option<u64> {
        let left = self.reserved.saturating_sub(self.next - 1);
        let wanted = match task {
            WriterTask::Event(_) => self.block / KEPT_FROM_EVENTS,
            // The numbers of these are told to nobody. One that a crash takes
            // may be given again.
            WriterTask::Complete { .. } | WriterTask::Process(_) | WriterTask::Redact { .. } => 0,
            WriterTask::Record { .. }
            | WriterTask::SaveSnapshot(_)
            | WriterTask::Prune(_)
            | WriterTask::Probe { .. } => 1,
        };
        if left < wanted {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }
}

/// Way in which entries are queued (`audit.durability`).
#[derive(Debug, Clone, Copy)]
pub(super) enum QueueMode {
    /// Entries are written as soon as the writer is free, which numbers them.
    Commit,
    /// Entries are numbered here, and gathered.
    Gather {
        /// Numbers that may be given.
        numbers: NumberRange,
        /// Entries that are written without waiting for more.
        enough: usize,
    },
}

impl QueueMode {
    /// Makes the mode that gathers, for a queue of `places`.
    pub(super) fn gather(numbers: NumberRange, places: usize) -> Self {
        // Where places are few, exchanges wait for those that entries hold.
        let enough = GATHER_ENTRIES.min(places / 2).max(1);
        Self::Gather { numbers, enough }
    }
}

#[derive(Debug)]
struct EntryQueueState {
    entries: VecDeque<WriterEntry>,
    mode: QueueMode,
    /// Time at which the first of the entries was queued.
    waiting_since: Option<Instant>,
    /// Whether somebody waits for one of the entries.
    is_awaited: bool,
    is_closed: bool,
}

impl EntryQueueState {
    /// Returns for how long more entries may be gathered at `now`; `None` if those
    /// that are there must be written.
    fn gather_for(&self, now: Instant) -> Option<Duration> {
        let QueueMode::Gather { enough, .. } = self.mode else {
            return None;
        };
        if enough <= self.entries.len() || self.is_awaited || self.is_closed {
            return None;
        }
        let waited = now.saturating_duration_since(self.waiting_since?);
        let left = GATHER_TIME.checked_sub(waited)?;
        Some(left).filter(|left| !left.is_zero())
    }

    /// Numbers `task`, if numbers are given here and it needs one: 0 if not, `None`
    /// if too few are reserved.
    fn number(&mut self, task: &WriterTask) -> Option<u64> {
        match &mut self.mode {
            QueueMode::Gather { numbers, .. } if task.has_number() => numbers.take(task),
            QueueMode::Gather { .. } | QueueMode::Commit => Some(0),
        }
    }

    /// Reports whether the last entry is one that the writer is to be woken
    /// for. It waits for the first one, and then for the end of the time to
    /// gather: most entries cost no system call.
    fn must_wake(&self) -> bool {
        let count = self.entries.len();
        let is_enough = match self.mode {
            QueueMode::Gather { enough, .. } => count == enough,
            QueueMode::Commit => false,
        };
        count == 1 || is_enough || self.is_awaited
    }
}

/// The queue as its two ends share it.
#[derive(Debug)]
struct SharedQueue {
    state: Mutex<EntryQueueState>,
    /// Entries that wait.
    waiting: Gauge,
    /// Wakes the writer.
    ready: Condvar,
    senders: AtomicUsize,
}

impl SharedQueue {
    fn lock(&self) -> MutexGuard<'_, EntryQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends `task` to the queue. Returns whether the writer is to be woken.
    fn push(&self, mut task: WriterTask, slot: OwnedSemaphorePermit) -> Result<bool, AuditError> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(AuditError::Closed);
        }
        let number = state.number(&task).ok_or(AuditError::Full)?;
        if let WriterTask::Record { seq, .. } = &task {
            seq.set(number);
        } else if let WriterTask::Process(pending) = &mut task {
            // While the queue is locked: whatever was counted by now has its
            // decision before this entry.
            pending.read_count();
        }
        state.is_awaited |= task.is_awaited();
        if state.entries.is_empty() {
            state.waiting_since = Some(clock::instant());
        }
        state.entries.push_back(WriterEntry {
            task,
            number,
            _slot: slot,
        });
        self.waiting.inc();
        Ok(state.must_wake())
    }
}

/// Sender to the writer. The queue is closed when the last one is dropped.
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
    /// Makes a queue, and the end from which the writer takes. `waiting` shows how
    /// many entries are in it.
    pub(super) fn new(mode: QueueMode, waiting: Gauge) -> (Self, EntryReceiver) {
        let state = EntryQueueState {
            entries: VecDeque::new(),
            mode,
            waiting_since: None,
            is_awaited: false,
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

    /// Sends `task`, which holds `slot` until it is done or refused. Does not
    /// wait.
    ///
    /// # Errors
    ///
    /// [`AuditError::Closed`] if the writer takes no more, and
    /// [`AuditError::Full`] if no number is reserved for the entry.
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

    /// Takes no more entries. The writer ends when it has written those there are.
    pub(super) fn close(&self) {
        self.shared.lock().is_closed = true;
        self.shared.ready.notify_one();
    }
}

/// A task, with the place it holds in the queue.
#[derive(Debug)]
pub(super) struct WriterEntry {
    pub(super) task: WriterTask,
    /// Number given on queueing; 0 if the writer gives one, or none is needed.
    pub(super) number: u64,
    _slot: OwnedSemaphorePermit,
}

/// End of the queue from which the writer takes.
#[derive(Debug)]
pub(super) struct EntryReceiver {
    shared: Arc<SharedQueue>,
}

impl EntryReceiver {
    /// Waits for entries, at most for `patience`, and appends them to `batch`.
    /// Returns `false` if there were none and the queue is closed.
    pub(super) fn receive(&self, batch: &mut Vec<WriterEntry>, patience: Option<Duration>) -> bool {
        let ready = &self.shared.ready;
        let mut state = self.shared.lock();
        while state.entries.is_empty() {
            if state.is_closed {
                return false;
            }
            let Some(patience) = patience else {
                state = ready.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let woken = ready.wait_timeout(state, patience);
            let (woken_state, time) = woken.unwrap_or_else(PoisonError::into_inner);
            state = woken_state;
            if time.timed_out() {
                return true;
            }
        }
        while let Some(left) = state.gather_for(clock::instant()) {
            let woken = ready.wait_timeout(state, left);
            let (woken_state, time) = woken.unwrap_or_else(PoisonError::into_inner);
            state = woken_state;
            // In a test the clock may stand still.
            if time.timed_out() {
                break;
            }
        }
        let count = state.entries.len().min(BATCH_MAX);
        batch.extend(state.entries.drain(..count));
        // What is left has waited long enough.
        state.is_awaited = !state.entries.is_empty();
        true
    }

    /// Appends a task of the writer's own to the queue.
    ///
    /// # Errors
    ///
    /// As [`EntryQueue::send`].
    pub(super) fn send(
        &self,
        task: WriterTask,
        slot: OwnedSemaphorePermit,
    ) -> Result<(), AuditError> {
        // Whoever calls is the one that would be woken.
        self.shared.push(task, slot).map(drop)
    }

    /// Notes that the numbers up to `last` are reserved on disk.
    pub(super) fn reserve(&self, last: u64) {
        if let QueueMode::Gather { numbers, .. } = &mut self.shared.lock().mode {
            numbers.reserved = last;
        }
    }
}

impl Drop for EntryReceiver {
    fn drop(&mut self) {
        // Without a writer nothing is accepted, and whoever waits is refused.
        let mut state = self.shared.lock();
        state.is_closed = true;
        let entries = mem::take(&mut state.entries);
        drop(state);
        drop(entries);
    }
}

/// Ending of an exchange, which completes the row of its decision: by
/// [`RecordEnding::complete`], or, if the exchange is dropped, with the error
/// `client_gone`.
#[derive(Debug)]
#[must_use = "dropping it says that the client has gone"]
pub struct RecordEnding {
    /// Number of the decision, set when there is one.
    pub(super) seq: SharedSeq,
    /// The queue and a place in it, so that the ending can always be written.
    reserved: Option<(EntryQueue, OwnedSemaphorePermit)>,
    outcome: ExchangeEnd,
}

impl RecordEnding {
    /// Makes the ending of an exchange whose decision record is about to be
    /// sent to `queue`, with a place of its own there.
    pub(super) fn new(queue: EntryQueue, slot: OwnedSemaphorePermit) -> Self {
        Self {
            seq: SharedSeq::default(),
            reserved: Some((queue, slot)),
            outcome: ExchangeEnd {
                status: None,
                sent: 0,
                seen: None,
                bytes: 0,
                error: Some(CLIENT_GONE),
            },
        }
    }

    /// Returns the number of the decision.
    pub fn seq(&self) -> u64 {
        self.seq.get()
    }

    /// Completes the row.
    pub fn complete(mut self, outcome: ExchangeEnd) {
        self.outcome = outcome;
    }
}

impl Drop for RecordEnding {
    fn drop(&mut self) {
        let Some((queue, slot)) = self.reserved.take() else {
            return;
        };
        let task = WriterTask::Complete {
            seq: self.seq.clone(),
            outcome: self.outcome.clone(),
        };
        // A writer that has ended writes no more: the row stays as it is.
        queue.send(task, slot).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, oneshot};

    use super::*;

    fn gathering(reserved: u64, places: usize) -> QueueMode {
        let numbers = NumberRange {
            next: 1,
            reserved,
            block: 64,
        };
        QueueMode::gather(numbers, places)
    }

    fn slot() -> OwnedSemaphorePermit {
        Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap()
    }

    /// Returns the ending of decision 1.
    fn ending() -> WriterTask {
        let seq = SharedSeq::default();
        seq.set(1);
        let outcome = ExchangeEnd {
            status: None,
            sent: 0,
            seen: None,
            bytes: 0,
            error: None,
        };
        WriterTask::Complete { seq, outcome }
    }

    fn gather_for(queue: &EntryQueue, after: Duration) -> Option<Duration> {
        let state = queue.shared.lock();
        let since = state.waiting_since.unwrap();
        state.gather_for(since + after)
    }

    // Ours: `queue` never costs more than `commit`.
    #[test]
    fn entries_are_gathered_for_20_ms_and_no_longer() {
        let (queue, _receiver) = EntryQueue::new(gathering(100, 1000), Gauge::default());
        queue.send(ending(), slot()).unwrap();
        let ms = Duration::from_millis;
        assert_eq!(gather_for(&queue, ms(0)), Some(ms(20)));
        assert_eq!(gather_for(&queue, ms(19)), Some(ms(1)));
        assert_eq!(gather_for(&queue, ms(20)), None);
        assert_eq!(gather_for(&queue, ms(70)), None);
    }

    // Ours: nobody waits for more entries than a commit can share.
    #[test]
    fn entries_are_not_gathered_when_there_are_enough_or_somebody_waits() {
        for (places, enough) in [(1000, GATHER_ENTRIES), (8, 4), (2, 1)] {
            let (queue, receiver) = EntryQueue::new(gathering(100, places), Gauge::default());
            for count in 1..=enough {
                queue.send(ending(), slot()).unwrap();
                let is_enough = gather_for(&queue, Duration::ZERO).is_none();
                assert_eq!(is_enough, count == enough, "{count} of {places}");
            }
            let mut batch = Vec::new();
            assert!(receiver.receive(&mut batch, None));
            assert!(batch.iter().map(|entry| entry.number).eq(1..=enough as u64));
        }
        let (queue, _receiver) = EntryQueue::new(gathering(100, 1000), Gauge::default());
        queue.send(ending(), slot()).unwrap();
        let (ack, _wait) = oneshot::channel();
        queue.send(WriterTask::Probe { ack }, slot()).unwrap();
        assert_eq!(gather_for(&queue, Duration::ZERO), None);
        let (queue, _receiver) = EntryQueue::new(QueueMode::Commit, Gauge::default());
        queue.send(ending(), slot()).unwrap();
        assert_eq!(gather_for(&queue, Duration::ZERO), None);
    }

    // Ours: a number is told once, so none is told that is not reserved.
    #[test]
    fn no_number_beyond_the_reserved_ones_is_told() {
        let mut numbers = NumberRange {
            next: 1,
            reserved: 2,
            block: 64,
        };
        let (ack, _wait) = oneshot::channel();
        // Stands for a decision, which needs more to be made.
        let told = WriterTask::Probe { ack };
        assert_eq!(
            [(); 3].map(|()| numbers.take(&told)),
            [Some(1), Some(2), None]
        );
        assert_eq!(numbers.take(&ending()), Some(3));
    }

    // Invariant 3: what comes after the end is refused, not forgotten.
    #[test]
    fn a_queue_is_closed_by_its_last_sender_and_by_its_receiver() {
        let (queue, receiver) = EntryQueue::new(QueueMode::Commit, Gauge::default());
        let other = queue.clone();
        drop(queue);
        other.send(ending(), slot()).unwrap();
        let shared = Arc::clone(&other.shared);
        drop(other);
        let mut batch = Vec::new();
        assert!(receiver.receive(&mut batch, None) && batch.len() == 1);
        assert!(!receiver.receive(&mut batch, None) && shared.lock().is_closed);
        let (queue, receiver) = EntryQueue::new(QueueMode::Commit, Gauge::default());
        drop(receiver);
        let sent = queue.send(ending(), slot());
        assert!(matches!(sent, Err(AuditError::Closed)));
    }
}
