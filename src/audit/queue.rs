//! Queue to the writer, and the numbers that are given in it.
//!
//! The queue has no bound of its own: whoever sends holds a place, which goes
//! with the entry until it is written or refused. `Drop` cannot wait for one,
//! so the place of an exchange's ending is reserved before its decision is
//! written: an exchange that is dropped half-way still completes its row.
//!
//! The writer gathers entries for a moment, so that a commit is shared by many: a
//! commit costs as much as hundreds of rows. How long depends on whether somebody
//! waits for one of them.
//!
//! With `audit.durability = "queue"` nobody waits for a decision, and an entry gets
//! its number as it is queued: the order of numbers is that of the queue, and a
//! crash can only take the last ones.
//!
//! Does not know how entries are written.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, WaitTimeoutResult};
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

/// Time for which entries are gathered that somebody waits for, in durations of the
/// last commit.
const AWAITED_GATHER_COMMITS: u32 = 5;

/// Longest time for which entries are gathered that somebody waits for. Clients on a
/// fast network come back within it, so on a slow disk a longer one would be in vain.
const AWAITED_GATHER_MAX: Duration = Duration::from_millis(3);

/// Exchanges that are elsewhere, for each one that waits for the record or was just
/// answered, up to which those are waited for. On a busy processor it is some that are
/// on their way; those with slow origins are many more.
const ELSEWHERE_MAX: usize = 3;

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

/// Way in which entries are numbered (`audit.durability`).
#[derive(Debug, Clone, Copy)]
pub(super) enum QueueMode {
    /// By the writer, with the commit.
    Commit,
    /// As they are queued.
    Queue(NumberRange),
}

/// Commit of a batch, as far as the queue needs to know of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchCommit {
    /// Highest number that is reserved on disk.
    pub(super) reserved: u64,
    /// Entries of it that somebody waits for.
    pub(super) awaited: usize,
    /// Time that the commit took.
    pub(super) duration: Duration,
}

#[derive(Debug)]
struct EntryQueueState {
    entries: VecDeque<WriterEntry>,
    mode: QueueMode,
    /// Entries that are written without waiting for more.
    enough: usize,
    /// Time at which the first of the entries was queued.
    waiting_since: Option<Instant>,
    /// Entries that somebody waits for.
    awaited: usize,
    /// Clients that the last commit has answered and that have not come back since.
    returning: usize,
    /// Time until which they are waited for.
    returning_until: Option<Instant>,
    /// Whether the writer waits for entries.
    is_writer_waiting: bool,
    is_closed: bool,
}

impl EntryQueueState {
    /// Returns for how long, at `now`, clients that were answered are waited for;
    /// `None` if they are not.
    fn return_time(&self, now: Instant) -> Option<Duration> {
        time_left(self.returning_until.filter(|_| 0 < self.returning)?, now)
    }

    /// Returns for how long more entries may be gathered at `now`; `None` if those
    /// that are there must be written.
    fn gather_time(&self, now: Instant) -> Option<Duration> {
        if self.enough <= self.entries.len() || self.is_closed {
            return None;
        }
        self.return_time(now).or_else(|| {
            let since = self.waiting_since.filter(|_| self.awaited == 0)?;
            time_left(since + GATHER_TIME, now)
        })
    }

    /// Numbers `task`, if numbers are given here and it needs one: 0 if not, `None`
    /// if too few are reserved.
    fn number(&mut self, task: &WriterTask) -> Option<u64> {
        match &mut self.mode {
            QueueMode::Queue(numbers) if task.has_number() => numbers.take(task),
            QueueMode::Queue(_) | QueueMode::Commit => Some(0),
        }
    }

    /// Appends `entry`. Returns whether the writer is to be woken for it: most
    /// entries cost no system call.
    fn push(&mut self, entry: WriterEntry) -> bool {
        let is_awaited = entry.task.is_awaited();
        if self.entries.is_empty() {
            self.waiting_since = Some(clock::instant());
        }
        self.entries.push_back(entry);
        if is_awaited {
            self.awaited += 1;
            self.returning = self.returning.saturating_sub(1);
        }
        if !self.is_writer_waiting {
            return false;
        }
        let count = self.entries.len();
        // While clients are waited for, the writer wakes by itself when that ends.
        let is_news = count == 1 || is_awaited;
        let is_due =
            count == self.enough || is_news && self.return_time(clock::instant()).is_none();
        self.is_writer_waiting = !is_due;
        is_due
    }
}

/// Returns the time from `now` to `until`; `None` if that is over.
fn time_left(until: Instant, now: Instant) -> Option<Duration> {
    Some(until.saturating_duration_since(now)).filter(|left| !left.is_zero())
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
        self.waiting.inc();
        Ok(state.push(WriterEntry {
            task,
            number,
            _slot: slot,
        }))
    }

    /// Waits until the writer is woken, at most for `patience`.
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
    /// Makes a queue for those who share `places`, and the end from which the writer
    /// takes. `waiting` shows how many entries are in it.
    pub(super) fn new(mode: QueueMode, places: usize, waiting: Gauge) -> (Self, EntryReceiver) {
        let state = EntryQueueState {
            entries: VecDeque::new(),
            mode,
            // Where places are few, exchanges wait for those that entries hold.
            enough: GATHER_ENTRIES.min(places / 2).max(1),
            waiting_since: None,
            awaited: 0,
            returning: 0,
            returning_until: None,
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
        let mut state = self.shared.lock();
        while state.entries.is_empty() {
            if state.is_closed {
                return false;
            }
            let returning = state.return_time(clock::instant());
            let time = returning.or(patience).unwrap_or(Duration::MAX);
            let (woken_state, result) = self.shared.wait(state, time);
            state = woken_state;
            // Clients that have not come back by then are not waited for any more.
            if result.timed_out() && mem::take(&mut state.returning) == 0 {
                return true;
            }
        }
        while let Some(time) = state.gather_time(clock::instant()) {
            let (woken_state, result) = self.shared.wait(state, time);
            state = woken_state;
            // In a test the clock may stand still.
            if result.timed_out() && mem::take(&mut state.returning) == 0 {
                break;
            }
        }
        let count = state.entries.len().min(BATCH_MAX);
        let taken = batch.len();
        batch.extend(state.entries.drain(..count));
        state.awaited -= count_awaited(&batch[taken..]);
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

    /// Takes in that a batch is on disk. To be called before those who wait for it
    /// are answered.
    ///
    /// Whoever gets an answer sends its request, and often the next one soon after. If
    /// the writer went on with those alone that have been queued meanwhile, two groups
    /// of clients would take turns, with two commits where one would do. So it waits
    /// for those that were answered, for as long as a few commits take. A client alone
    /// is not delayed: once it is back, nobody else is waited for. Nor is anybody where
    /// most exchanges are with their origins, from which nobody comes back so soon.
    pub(super) fn note_commit(&self, commit: BatchCommit) {
        let mut state = self.shared.lock();
        if let QueueMode::Queue(numbers) = &mut state.mode {
            numbers.reserved = commit.reserved;
        }
        let here = state.awaited + commit.awaited;
        // Each exchange has a sender, for its ending.
        let elsewhere = self
            .shared
            .senders
            .load(Ordering::Relaxed)
            .saturating_sub(here);
        let are_most_elsewhere = ELSEWHERE_MAX * here < elsewhere;
        state.returning = if are_most_elsewhere {
            0
        } else {
            commit.awaited
        };
        let time = commit.duration.saturating_mul(AWAITED_GATHER_COMMITS);
        state.returning_until = Some(clock::instant() + time.min(AWAITED_GATHER_MAX));
    }
}

/// Counts the entries that somebody waits for.
pub(super) fn count_awaited(entries: &[WriterEntry]) -> usize {
    let awaited = entries.iter().filter(|entry| entry.task.is_awaited());
    awaited.count()
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

    fn queue_of(places: usize) -> (EntryQueue, EntryReceiver) {
        let numbers = NumberRange {
            next: 1,
            reserved: 100,
            block: 64,
        };
        EntryQueue::new(QueueMode::Queue(numbers), places, Gauge::default())
    }

    fn commit_queue() -> (EntryQueue, EntryReceiver) {
        EntryQueue::new(QueueMode::Commit, 1000, Gauge::default())
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

    /// Queues a task that is waited for.
    fn send_awaited(queue: &EntryQueue) {
        let (ack, _wait) = oneshot::channel();
        queue.send(WriterTask::Probe { ack }, slot()).unwrap();
    }

    fn gather_time(queue: &EntryQueue, after: Duration) -> Option<Duration> {
        let state = queue.shared.lock();
        let since = state.waiting_since.unwrap();
        state.gather_time(since + after)
    }

    // Ours: nobody waits for these, and a commit costs as much as hundreds of rows.
    #[test]
    fn entries_are_gathered_for_20_ms_and_no_longer() {
        for (queue, _receiver) in [queue_of(1000), commit_queue()] {
            queue.send(ending(), slot()).unwrap();
            let ms = Duration::from_millis;
            assert_eq!(gather_time(&queue, ms(0)), Some(ms(20)));
            assert_eq!(gather_time(&queue, ms(19)), Some(ms(1)));
            assert_eq!(gather_time(&queue, ms(20)), None);
            assert_eq!(gather_time(&queue, ms(70)), None);
        }
    }

    // Ours: nobody waits for more entries than a commit can share.
    #[test]
    fn entries_are_not_gathered_when_there_are_enough_or_somebody_waits() {
        for (places, enough) in [(1000, GATHER_ENTRIES), (8, 4), (2, 1)] {
            let (queue, receiver) = queue_of(places);
            for count in 1..=enough {
                queue.send(ending(), slot()).unwrap();
                let is_enough = gather_time(&queue, Duration::ZERO).is_none();
                assert_eq!(is_enough, count == enough, "{count} of {places}");
            }
            let mut batch = Vec::new();
            assert!(receiver.receive(&mut batch, None));
            assert!(batch.iter().map(|entry| entry.number).eq(1..=enough as u64));
        }
        for (queue, _receiver) in [queue_of(1000), commit_queue()] {
            queue.send(ending(), slot()).unwrap();
            send_awaited(&queue);
            assert_eq!(gather_time(&queue, Duration::ZERO), None);
        }
    }

    fn commit_of(awaited: usize, duration: Duration) -> BatchCommit {
        BatchCommit {
            reserved: 0,
            awaited,
            duration,
        }
    }

    // Ours: clients that were answered and those that have come meanwhile share the
    // next commit, and a client alone waits for nobody.
    #[tokio::test(start_paused = true)]
    async fn a_commit_waits_for_the_clients_that_the_last_one_has_answered() {
        let (queue, receiver) = commit_queue();
        let left = || queue.shared.lock().gather_time(clock::instant());
        let us = Duration::from_micros;
        send_awaited(&queue);
        assert_eq!(left(), None);
        receiver.note_commit(commit_of(2, us(500)));
        assert_eq!(left(), Some(us(2500)));
        send_awaited(&queue);
        assert_eq!(left(), Some(us(2500)));
        send_awaited(&queue);
        assert_eq!(left(), None);

        receiver.note_commit(commit_of(1, us(30_000)));
        assert_eq!(left(), Some(AWAITED_GATHER_MAX));
        tokio::time::advance(AWAITED_GATHER_MAX).await;
        assert_eq!(left(), None);

        let mut batch = Vec::new();
        assert!(receiver.receive(&mut batch, None));
        assert_eq!(count_awaited(&batch), 3);
        receiver.note_commit(commit_of(1, us(500)));
        send_awaited(&queue);
        assert_eq!(left(), None);
    }

    // Ours: most entries cost no system call.
    #[test]
    fn a_writer_is_woken_when_it_waits_and_has_something_to_do() {
        let (queue, receiver) = commit_queue();
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
        receiver.note_commit(commit_of(2, Duration::from_secs(1)));
        let tasks = [ending(), awaited(), ending(), awaited()];
        assert_eq!(tasks.map(is_woken), [false, false, false, true]);
    }

    // Ours: whoever has come back does not wait for those that have not.
    #[test]
    fn clients_that_do_not_come_back_are_not_waited_for_again() {
        let (queue, receiver) = commit_queue();
        receiver.note_commit(commit_of(2, Duration::from_micros(1)));
        send_awaited(&queue);
        let mut batch = Vec::new();
        assert!(receiver.receive(&mut batch, None));
        assert_eq!(batch.len(), 1);
        assert_eq!(queue.shared.lock().awaited, 0);
    }

    // Ours: a crawl of slow origins is not made any slower.
    #[test]
    fn no_commit_waits_where_most_exchanges_wait_for_their_origins() {
        let (queue, receiver) = commit_queue();
        // Two are answered, and for each of them three are elsewhere. The first sender
        // is that of the record.
        let mut exchanges = vec![queue.clone(); 7];
        let is_waiting = || {
            receiver.note_commit(commit_of(2, Duration::from_secs(1)));
            0 < queue.shared.lock().returning
        };
        assert!(is_waiting());
        exchanges.push(queue.clone());
        assert!(!is_waiting());
        send_awaited(&queue);
        assert!(is_waiting());
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
        let (queue, receiver) = commit_queue();
        let other = queue.clone();
        drop(queue);
        other.send(ending(), slot()).unwrap();
        let shared = Arc::clone(&other.shared);
        drop(other);
        let mut batch = Vec::new();
        assert!(receiver.receive(&mut batch, None) && batch.len() == 1);
        assert!(!receiver.receive(&mut batch, None) && shared.lock().is_closed);
        let (queue, receiver) = commit_queue();
        drop(receiver);
        let sent = queue.send(ending(), slot());
        assert!(matches!(sent, Err(AuditError::Closed)));
    }
}
