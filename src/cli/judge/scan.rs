//! Parallel reading of archives: on all cores, with the messages in order.
//!
//! A gzip file is cut into ranges that are read at the same time. A range starts at its
//! first gzip member that seems to begin with a record. The end of the previous range
//! shows whether that guess is right: a record may itself contain an archive, with members
//! that look like records. If the guess is wrong, the range is reread from that end, so
//! that the result is the same as reading the file from its beginning. Does not know how
//! the messages are used.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use politesse_crawls::{
    ArchiveDamage, ArchiveError, ArchiveReader, ArchivedMessage, GzipMembers, MEMBER_BYTES_SEEN,
    MessageSide, PlainFile, RecordSource, find_record_member,
};
use politesse_directives::ResponseStatements;

use super::archive_file::{ArchiveFile, Compression};
use super::progress::{CountingReader, Progress};
use super::statements::take_statements;

/// Length of a range in bytes: several hundred records, so that the records at its
/// ends, which two cores read, cost little.
const RANGE_BYTES: u64 = 4 * 1024 * 1024;
/// Maximum number of messages in a batch.
const BATCH_MESSAGES: usize = 256;
/// Bytes of messages that complete a batch.
const BATCH_BYTES: usize = 1024 * 1024;
/// Maximum number of batches of a range that wait until all earlier ranges are taken.
const BATCHES_MAX: usize = 4;
/// Number of bytes searched at a time for the beginning of a member.
const SEARCH_BYTES: usize = 64 * 1024;
/// Number of ranges per thread that are read ahead.
const RANGES_AHEAD: usize = 2;

/// Message of an archive, or a place that cannot be read.
#[derive(Debug)]
pub(super) enum ScanItem {
    /// Message of the crawl.
    Message(Box<ScannedMessage>),
    /// Damaged record.
    Damage(ArchiveDamage),
    /// Unreadable rest of the file, from this byte on.
    Unread(u64, io::Error),
}

/// Message, with the statements of its page if the page was read.
#[derive(Debug)]
pub(super) struct ScannedMessage {
    /// The message, without its page.
    pub(super) message: ArchivedMessage,
    /// Statements of the page about its use; `None` if it was not read.
    pub(super) statements: Option<Box<ResponseStatements>>,
}

/// Function that receives the items in order, each with the number of its file.
pub(super) type ItemTaker<'a> = &'a mut dyn FnMut(u32, ScanItem) -> anyhow::Result<()>;

/// Scan of several files.
pub(super) struct ArchiveScan<'a> {
    /// Files to read, in order.
    pub(super) files: &'a [ArchiveFile],
    /// Maximum number of bytes of a robots.txt that are read.
    pub(super) body_bytes_max: usize,
    /// Maximum number of bytes of a page that are read for its statements; `None` if
    /// pages are not read.
    pub(super) page_bytes_max: Option<usize>,
    /// Reports whether the whole response for a URL is wanted.
    pub(super) is_wanted: &'a (dyn Fn(&str) -> bool + Sync),
    /// Called first with each message, on the thread that reads it.
    pub(super) look: &'a (dyn Fn(&ArchivedMessage) + Sync),
    /// Counts the bytes that were read.
    pub(super) progress: &'a Progress,
}

/// Part of a file.
#[derive(Debug, Clone, Copy)]
struct FileRange {
    /// Index of the file in [`ArchiveScan::files`].
    file: usize,
    /// Place of the first byte.
    start: u64,
    /// Place of the first byte after the range. A record belongs to the range in which
    /// it begins.
    end: u64,
}

/// Place of the first record after a range; `None` at the end of the file, or if the rest
/// of the file is unreadable.
type RangeEnd = Option<u64>;

/// Message from the thread that reads a range.
enum RangeEvent {
    /// Guessed place of the first record; `None` if none seems to begin in the range.
    Began(Option<u64>),
    /// Next items, in order.
    Items(Vec<ScanItem>),
    /// The range has been read.
    Ended(RangeEnd),
}

/// Reason why reading stopped before the end of a range: the receiver is gone, or an item
/// was not taken.
struct Stopped;

impl ArchiveScan<'_> {
    /// Reads all files, and passes their items to `take`.
    ///
    /// # Errors
    ///
    /// Any error of `take`. An unreadable file is reported as an item.
    pub(super) fn run(&self, take: ItemTaker<'_>) -> anyhow::Result<()> {
        let ranges = self.ranges();
        let threads = rayon::current_num_threads().min(ranges.len()).max(1);
        let (to_do, jobs) = sync_channel::<RangeJob>(RANGES_AHEAD * threads);
        let jobs = Mutex::new(jobs);
        let read_all = || {
            // `next_job` releases its lock before the range is read.
            while let Some(job) = next_job(&jobs) {
                self.read_range(&job);
            }
        };
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(read_all);
            }
            let outcome = self.take_all(&ranges, &to_do, take);
            // The threads end when no job is left.
            drop(to_do);
            outcome
        })
    }

    /// Sends the ranges to the threads, and passes their items to `take` in order. The
    /// number of ranges read ahead is limited, which limits their memory.
    fn take_all(
        &self,
        ranges: &[FileRange],
        to_do: &SyncSender<RangeJob>,
        take: ItemTaker<'_>,
    ) -> anyhow::Result<()> {
        let threads = rayon::current_num_threads().min(ranges.len()).max(1);
        let mut ahead = ranges.iter();
        let mut waiting = VecDeque::new();
        let mut next_record = Some(0);
        loop {
            while waiting.len() < RANGES_AHEAD * threads
                && let Some(range) = ahead.next()
            {
                let (events, receiver) = sync_channel(BATCHES_MAX);
                let range = *range;
                to_do.send(RangeJob { range, events })?;
                waiting.push_back(PendingRange {
                    range,
                    events: receiver,
                });
            }
            let Some(pending) = waiting.pop_front() else {
                return Ok(());
            };
            // Another file begins.
            if pending.range.start == 0 {
                next_record = Some(0);
            }
            next_record = self.take_range(&pending, next_record, take)?;
        }
    }

    /// Cuts the files into ranges.
    fn ranges(&self) -> Vec<FileRange> {
        let mut ranges = Vec::new();
        for (file, archive) in self.files.iter().enumerate() {
            let step = match (archive.compression, archive.bytes) {
                // One core reads an uncompressed file as fast as the disk does.
                (Compression::Gzip, Some(_)) => RANGE_BYTES,
                _ => u64::MAX,
            };
            let mut start = 0_u64;
            loop {
                let end = start.saturating_add(step);
                ranges.push(FileRange { file, start, end });
                if archive.bytes.unwrap_or(0) <= end {
                    break;
                }
                start = end;
            }
        }
        ranges
    }

    /// Takes the items of a range. `next_record` is the end of the range before it in the
    /// file. Returns the end of this one.
    fn take_range(
        &self,
        pending: &PendingRange,
        next_record: RangeEnd,
        take: ItemTaker<'_>,
    ) -> anyhow::Result<RangeEnd> {
        let range = pending.range;
        let file = u32::try_from(range.file)?;
        let Some(start) = next_record.filter(|place| *place < range.end) else {
            // A record of an earlier range extends beyond this one.
            return Ok(next_record);
        };
        if let Ok(RangeEvent::Began(began)) = pending.events.recv()
            && began == Some(start)
        {
            for event in &pending.events {
                match event {
                    RangeEvent::Began(_) => {}
                    RangeEvent::Items(items) => {
                        for item in items {
                            take(file, item)?;
                        }
                        self.progress.show();
                    }
                    RangeEvent::Ended(end) => return Ok(end),
                }
            }
            anyhow::bail!("the thread that reads the archives has ended");
        }
        // The guessed start of the range is wrong, so the range is reread, on this thread.
        let mut outcome = Ok(());
        let end = self.read(FileRange { start, ..range }, &mut |item| {
            outcome = take(file, item);
            if outcome.is_ok() {
                Ok(())
            } else {
                Err(Stopped)
            }
        });
        outcome?;
        Ok(end.unwrap_or(None))
    }

    /// Reads a range, and sends its items. Stops if the receiver is gone.
    fn read_range(&self, job: &RangeJob) {
        let _: Result<(), Stopped> = (|| {
            let began = self.find_begin(job.range);
            job.send(RangeEvent::Began(began))?;
            let Some(start) = began else {
                return Ok(());
            };
            let mut batch = ItemBatch::default();
            let range = FileRange { start, ..job.range };
            let end = self.read(range, &mut |item| match batch.add(item) {
                Some(items) => job.send(RangeEvent::Items(items)),
                None => Ok(()),
            })?;
            job.send(RangeEvent::Items(batch.items))?;
            job.send(RangeEvent::Ended(end))
        })();
    }

    /// Guesses the place of the first record in a range.
    fn find_begin(&self, range: FileRange) -> Option<u64> {
        if range.start == 0 {
            return Some(0);
        }
        // A file that cannot be opened is reported when its items are taken.
        let mut file = File::open(&self.files[range.file].path).ok()?;
        let mut buffer = vec![0; SEARCH_BYTES];
        let mut place = range.start;
        while place < range.end {
            file.seek(SeekFrom::Start(place)).ok()?;
            let read = read_full(&mut file, &mut buffer).ok()?;
            let is_last = read < buffer.len();
            // A signature near the end of the buffer is searched with the next buffer.
            let search_bytes = if is_last {
                read
            } else {
                read - MEMBER_BYTES_SEEN
            };
            if let Some(found) = find_record_member(&buffer[..read], search_bytes) {
                let found = place + found as u64;
                return (found < range.end).then_some(found);
            }
            if is_last {
                return None;
            }
            place += search_bytes as u64;
        }
        None
    }

    /// Reads a range from its start, where a record begins, and passes its items to `take`.
    fn read(
        &self,
        range: FileRange,
        take: &mut dyn FnMut(ScanItem) -> Result<(), Stopped>,
    ) -> Result<RangeEnd, Stopped> {
        let archive = &self.files[range.file];
        let input = match archive.open_at(range.start) {
            Ok(input) => CountingReader::new(input, self.progress),
            Err(error) => {
                take(ScanItem::Unread(range.start, error))?;
                return Ok(None);
            }
        };
        match archive.compression {
            Compression::Gzip => {
                self.read_records(GzipMembers::new(input, range.start), range, take)
            }
            Compression::None => self.read_records(PlainFile::new(input), range, take),
        }
    }

    /// Reads the records of `source` that begin in a range.
    fn read_records(
        &self,
        source: impl RecordSource,
        range: FileRange,
        take: &mut dyn FnMut(ScanItem) -> Result<(), Stopped>,
    ) -> Result<RangeEnd, Stopped> {
        let mut archive = ArchiveReader::new(source, self.body_bytes_max)
            .wanting(self.is_wanted)
            .reading_pages(self.page_bytes_max);
        let mut place = range.start;
        loop {
            let item = match archive.next_place() {
                Ok(None) => return Ok(None),
                // A gzip member may hold several records. One that begins within a
                // member cannot be the first of the next range.
                Ok(Some(next)) if range.end <= next.byte && next.is_first => {
                    return Ok(Some(next.byte));
                }
                Ok(Some(next)) => {
                    place = next.byte;
                    archive.message().transpose()
                }
                Err(error) => Some(Err(error)),
            };
            match item {
                None => {}
                Some(Ok(mut message)) => {
                    (self.look)(&message);
                    // The page is reduced to its statements at once, so that each thread
                    // holds at most one page.
                    let statements = take_statements(&mut message);
                    take(ScanItem::Message(Box::new(ScannedMessage {
                        message,
                        statements,
                    })))?;
                }
                Some(Err(ArchiveError::Damage(damage))) => take(ScanItem::Damage(damage))?,
                Some(Err(ArchiveError::File(error))) => {
                    take(ScanItem::Unread(place, error))?;
                    return Ok(None);
                }
            }
        }
    }
}

/// Range for a thread to read.
struct RangeJob {
    range: FileRange,
    /// Channel to the thread that takes the items.
    events: SyncSender<RangeEvent>,
}

impl RangeJob {
    fn send(&self, event: RangeEvent) -> Result<(), Stopped> {
        self.events.send(event).map_err(|_| Stopped)
    }
}

/// Range that a thread reads or will read, on the side of the thread that takes its items.
struct PendingRange {
    range: FileRange,
    events: Receiver<RangeEvent>,
}

/// Items that are sent together.
#[derive(Default)]
struct ItemBatch {
    items: Vec<ScanItem>,
    /// Approximate memory of `items`, in bytes.
    bytes: usize,
}

impl ItemBatch {
    /// Adds an item. Returns all items if the batch is complete.
    fn add(&mut self, item: ScanItem) -> Option<Vec<ScanItem>> {
        self.bytes += item_bytes(&item);
        self.items.push(item);
        let is_full = BATCH_MESSAGES <= self.items.len() || BATCH_BYTES <= self.bytes;
        is_full.then(|| {
            self.bytes = 0;
            std::mem::take(&mut self.items)
        })
    }
}

/// Returns the approximate memory of an item, in bytes.
fn item_bytes(item: &ScanItem) -> usize {
    let ScanItem::Message(scanned) = item else {
        return size_of::<ScanItem>();
    };
    let message = &scanned.message;
    let statements = scanned.statements.as_ref().map_or(0, |it| it.bytes());
    let body = match &message.side {
        MessageSide::Response {
            robots: Some(robots),
            ..
        } => robots.body.len(),
        MessageSide::Response { .. }
        | MessageSide::Request { .. }
        | MessageSide::Crawler { .. } => 0,
    };
    size_of::<ScannedMessage>() + message.url.len() + body + statements
}

/// Waits for the next range; `None` if there are no more.
fn next_job(jobs: &Mutex<Receiver<RangeJob>>) -> Option<RangeJob> {
    // If a thread has panicked, the queue is still intact: the thread had removed its job.
    let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
    jobs.recv().ok()
}

/// Fills the buffer, unless the file ends first.
fn read_full(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read(&mut buffer[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
