//! Write-ahead log of the database: its used size, its checkpoints, and the limit
//! on its size.
//!
//! SQLite reuses the WAL once all of it is in the database and no reader uses it. A
//! reader that keeps a transaction open makes it grow with every commit. There is
//! therefore a limit, above which nothing is written until the WAL can be
//! restarted.
//!
//! Checkpoints are run only here, between two commits, so that the length of the
//! database is always known, and no acknowledgement waits for a checkpoint.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::gauge::Gauge;
use rusqlite::Connection;
use thiserror::Error;
use tokio::time::Instant;

use politesse_base::clock;

/// Maximum wait for a lock that another process holds on the database.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of frames between two checkpoints, 8 MiB with pages of 4 KiB. SQLite's
/// own default is half of it; a checkpoint here also writes the marker.
const CHECKPOINT_FRAMES: u64 = 2000;

/// Fraction of the limit, 1 in `BOUND_PARTS`, at which a checkpoint is due at the
/// latest.
const BOUND_PARTS: u64 = 4;

/// Time between two checkpoints that should make room on a full disk, because each
/// copies what it can before it fails.
const RETRY: Duration = Duration::from_secs(1);

/// Length of the header before the first frame (SQLite's file format, section 4.1).
const HEADER_BYTES: u64 = 32;

/// Length of the header of each frame.
const FRAME_HEADER_BYTES: u64 = 24;

/// Error: the WAL has reached `audit.wal_max` and cannot be restarted yet.
#[derive(Debug, Error)]
pub enum WalFull {
    /// A reader still uses the WAL.
    #[error(
        "audit.wal_max is reached: a reader of the database has held its WAL since {since:.0}; \
         the record goes on by itself once that reader has ended (`fuser -v` on the database names it)"
    )]
    Reader {
        /// Time at which this was first noticed.
        since: Timestamp,
    },
    /// The contents cannot be moved to the database.
    #[error(
        "audit.wal_max is reached, and what is in the WAL cannot be moved to the database; \
         the record goes on by itself once that works"
    )]
    Checkpoint(#[source] Arc<rusqlite::Error>),
}

/// Failed checkpoint.
#[derive(Debug)]
struct FailedCheckpoint {
    error: Arc<rusqlite::Error>,
    /// Earliest time of the next attempt.
    retry_at: Instant,
}

/// WAL of a connection that writes.
#[derive(Debug)]
pub(super) struct Wal {
    /// Frames in use after the last commit, as SQLite reports them.
    frames: Arc<AtomicU64>,
    page_bytes: u64,
    /// Limit, `audit.wal_max`.
    bytes_max: u64,
    /// Frames in use after the commit before the last one.
    frames_before: u64,
    /// Frames between two checkpoints.
    due_every: u64,
    /// Number of frames at which a checkpoint is due.
    due_at: u64,
    /// Whether a checkpoint was completed since the WAL was last restarted.
    is_checkpointed: bool,
    /// Time since which something has kept the WAL from being restarted.
    held_since: Option<Timestamp>,
    /// Whether the last commit found the disk full.
    disk_full: bool,
    /// Failure of the last checkpoint that was run to make room.
    failed: Option<FailedCheckpoint>,
    gauge: Gauge,
}

/// Frames of the WAL, as reported by a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CheckpointResult {
    /// Whether another connection kept the checkpoint from completing.
    is_busy: bool,
    /// Frames in use.
    frames: u64,
    /// Frames in use that are already in the database.
    moved: u64,
}

impl Wal {
    /// Takes over the checkpoints of `connection`. The limit is `bytes_max`, and
    /// `gauge` is set to the bytes in use.
    pub(super) fn take_over(
        connection: &mut Connection,
        bytes_max: u64,
        gauge: Gauge,
    ) -> rusqlite::Result<Self> {
        let sql = "PRAGMA page_size";
        let page_bytes =
            connection.query_row(sql, [], |row| row.get::<_, u32>(0).map(u64::from))?;
        let frames = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&frames);
        // This also disables SQLite's automatic checkpoints, which use the same
        // hook.
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            seen.store(u64::try_from(pages).unwrap_or(0), Ordering::Release);
            Ok(())
        }))?;
        let part = bytes_max / (FRAME_HEADER_BYTES + page_bytes) / BOUND_PARTS;
        let due_every = part.clamp(1, CHECKPOINT_FRAMES);
        Ok(Self {
            frames,
            page_bytes,
            bytes_max,
            frames_before: 0,
            due_every,
            due_at: due_every,
            is_checkpointed: false,
            held_since: None,
            disk_full: false,
            failed: None,
            gauge,
        })
    }

    /// Returns the number of bytes in use. The file is at least this long.
    pub(super) fn bytes(&self) -> u64 {
        match self.frames.load(Ordering::Acquire) {
            0 => 0,
            frames => HEADER_BYTES + frames * (FRAME_HEADER_BYTES + self.page_bytes),
        }
    }

    /// Reports whether room must be made before the next commit.
    pub(super) fn needs_room(&self) -> bool {
        self.is_full() || self.disk_full
    }

    fn is_full(&self) -> bool {
        self.bytes_max <= self.bytes()
    }

    /// Makes room for another commit. May shorten the database file.
    ///
    /// # Errors
    ///
    /// [`WalFull`] if the limit is reached and no room could be made.
    pub(super) fn make_room(&mut self, connection: &Connection) -> Result<(), WalFull> {
        let is_full = self.is_full();
        let refuse = |cause| if is_full { Err(cause) } else { Ok(()) };
        if let Some(failed) = &self.failed
            && clock::instant() < failed.retry_at
        {
            return refuse(WalFull::Checkpoint(Arc::clone(&failed.error)));
        }
        match self.start_again(connection) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let since = self.held_since.unwrap_or_else(clock::now);
                refuse(WalFull::Reader { since })
            }
            Err(error) => {
                let failed = self.failed.insert(FailedCheckpoint {
                    error: Arc::new(error),
                    retry_at: clock::instant() + RETRY,
                });
                refuse(WalFull::Checkpoint(Arc::clone(&failed.error)))
            }
        }
    }

    /// Notes a successful commit.
    pub(super) fn note_commit(&mut self) {
        let frames = self.frames.load(Ordering::Acquire);
        self.disk_full = false;
        if frames <= self.frames_before {
            self.note_start();
        } else if self.is_checkpointed {
            // The whole WAL was in the database, and yet the commit was appended to
            // it.
            self.held_since.get_or_insert_with(clock::now);
        }
        self.frames_before = frames;
        self.show();
    }

    /// Notes a failed commit. On a full disk, restarting the WAL may free enough
    /// blocks for the next commit.
    pub(super) fn note_failure(&mut self, error: &rusqlite::Error) {
        let code = error.sqlite_error_code();
        self.disk_full |= code == Some(rusqlite::ErrorCode::DiskFull);
    }

    /// Reports whether a checkpoint is due.
    pub(super) fn is_due(&self) -> bool {
        self.due_at <= self.frames.load(Ordering::Acquire)
    }

    /// Moves as much as possible from the WAL into the database. Returns whether
    /// all commits are in the database now. Never waits for a reader.
    ///
    /// # Errors
    ///
    /// SQLite errors; the WAL is then unchanged.
    pub(super) fn checkpoint(&mut self, connection: &Connection) -> rusqlite::Result<bool> {
        // Set first, so that a failing checkpoint is not retried at each commit.
        self.due_at = self.frames.load(Ordering::Acquire) + self.due_every;
        self.run_checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)")
    }

    /// Moves the whole WAL into the database, and empties it. Returns whether that
    /// succeeded, without being blocked by a reader.
    pub(super) fn start_again(&mut self, connection: &Connection) -> rusqlite::Result<bool> {
        // With a timeout the checkpoint would wait for readers, and every request
        // with it.
        connection.busy_timeout(Duration::ZERO)?;
        let emptied = self.run_checkpoint(connection, "PRAGMA wal_checkpoint(TRUNCATE)");
        connection.busy_timeout(BUSY_TIMEOUT)?;
        if let Ok(true) = emptied {
            self.frames.store(0, Ordering::Release);
            self.frames_before = 0;
            self.note_start();
            self.show();
        }
        emptied
    }

    /// Asks SQLite for the number of frames in use, because another process may
    /// have emptied the WAL with a checkpoint of its own.
    pub(super) fn ask(&self, connection: &Connection) -> rusqlite::Result<()> {
        let result = run(connection, "PRAGMA wal_checkpoint(NOOP)")?;
        self.frames.store(result.frames, Ordering::Release);
        Ok(())
    }

    fn run_checkpoint(&mut self, connection: &Connection, sql: &str) -> rusqlite::Result<bool> {
        let result = run(connection, sql)?;
        let is_whole = !result.is_busy && result.moved == result.frames;
        self.is_checkpointed = is_whole;
        if !is_whole {
            self.held_since.get_or_insert_with(clock::now);
        }
        Ok(is_whole)
    }

    fn note_start(&mut self) {
        self.due_at = self.due_every;
        self.is_checkpointed = false;
        self.held_since = None;
        self.failed = None;
    }

    fn show(&self) {
        self.gauge
            .set(i64::try_from(self.bytes()).unwrap_or(i64::MAX));
    }
}

/// Counts the commits after a damaged frame in the WAL at `path`. SQLite stops at
/// such a frame without an error, and overwrites what follows.
///
/// A power failure may leave one such commit that was never acknowledged, if its
/// last frame reached the disk before an earlier one.
///
/// # Errors
///
/// An I/O error. A missing file is not an error, and gives 0.
pub(super) fn commits_after_damage(path: &Path) -> io::Result<u64> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        opened => BufReader::new(opened?),
    };
    let mut header = [0; HEADER_BYTES as usize];
    if !read_whole(&mut file, &mut header)? {
        return Ok(0);
    }
    // SQLite's file format, sections 4.1 to 4.3.
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
        u32::from_be_bytes(bytes.unwrap_or_default())
    };
    let is_big_endian = word(&header, 0) & 1 == 1;
    let page_bytes = word(&header, 8) as usize;
    // A damaged header says nothing about the frames. The marker still has the last
    // number.
    if !(512..=65_536).contains(&page_bytes) {
        return Ok(0);
    }
    let mut sums = WalSums::default();
    sums.add(&header[..24], is_big_endian);
    let mut frame = vec![0; FRAME_HEADER_BYTES as usize + page_bytes];
    let (mut is_damaged, mut commits) = (false, 0);
    while read_whole(&mut file, &mut frame)? {
        // Frames of an earlier log stay in the file until they are overwritten.
        // They have different salts.
        let is_of_this_log = frame[8..16] == header[16..24];
        sums.add(&frame[..8], is_big_endian);
        sums.add(&frame[24..], is_big_endian);
        is_damaged |= !is_of_this_log || sums != WalSums(word(&frame, 16), word(&frame, 20));
        let is_commit = word(&frame, 4) != 0;
        commits += u64::from(is_damaged && is_of_this_log && is_commit);
    }
    Ok(commits)
}

/// Running checksum of a WAL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct WalSums(u32, u32);

impl WalSums {
    fn add(&mut self, bytes: &[u8], is_big_endian: bool) {
        for pair in bytes.chunks_exact(8) {
            let [first, second] = [
                [pair[0], pair[1], pair[2], pair[3]],
                [pair[4], pair[5], pair[6], pair[7]],
            ]
            .map(|word| match is_big_endian {
                true => u32::from_be_bytes(word),
                false => u32::from_le_bytes(word),
            });
            self.0 = self.0.wrapping_add(first).wrapping_add(self.1);
            self.1 = self.1.wrapping_add(second).wrapping_add(self.0);
        }
    }
}

/// Fills `buffer`; returns `false` at the end of the file.
fn read_whole(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<CheckpointResult> {
    let frames = |count: i64| u64::try_from(count).unwrap_or(0);
    connection.query_row(sql, [], |row| {
        Ok(CheckpointResult {
            is_busy: row.get::<_, i64>(0)? != 0,
            frames: frames(row.get(1)?),
            moved: frames(row.get(2)?),
        })
    })
}
