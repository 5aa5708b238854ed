//! Reading of archives for judging: requests go to a [`Spool`], answers to fetches of
//! robots.txt to the index.
//!
//! Nothing is judged before all files are read, because the robots.txt that a request is
//! judged by may come after it in the file, or in a later file. A robots.txt may redirect
//! to any other URL, a *redirect target*, whose answer goes to the index as well. Does not
//! know the rules of a robots.txt.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use politesse_crawls::{ArchivedMessage, MessageSide};
use politesse_robots::origin::{ROBOTS_TXT, path_of};

use super::archive_file::ArchiveFile;
use super::counts::{JudgeCounts, UnreadPart};
use super::past_request::{Exchanges, PastRequest};
use super::progress::Progress;
use super::robots_index::{RobotsAnswers, redirect};
use super::scan::{ArchiveScan, ScanItem, ScannedMessage};
use super::spool::{Spool, SpoolPlace};
use crate::cli::check::context::target;

/// Number of requests that completes a batch, whose requests are judged together.
const BATCH_REQUESTS: usize = 8192;
/// Approximate memory of requests, in bytes, that completes a batch earlier.
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of redirect targets of robots.txt files in memory.
const TARGETS_MAX: usize = 100_000;
/// Maximum number of times that the archives are reread for such targets: once for each
/// redirect followed.
const ROUNDS_MAX: usize = 5;

/// Contents of the archives that judging needs.
#[derive(Default)]
pub(super) struct Gathered {
    /// Answers to fetches of robots.txt.
    pub(super) answers: RobotsAnswers,
    /// Requests to judge.
    pub(super) requests: SpooledRequests,
}

/// Requests in batches, in order. Each batch is an entry of a [`Spool`].
#[derive(Default)]
pub(super) struct SpooledRequests {
    /// Requests that are not in the spool yet.
    batch: Vec<PastRequest>,
    /// Approximate memory of `batch`, in bytes.
    batch_bytes: usize,
    spool: Spool,
    /// Places of the complete batches in the spool.
    places: Vec<SpoolPlace>,
}

impl SpooledRequests {
    fn add(&mut self, request: PastRequest) -> anyhow::Result<()> {
        self.batch_bytes += request.bytes();
        self.batch.push(request);
        if BATCH_REQUESTS <= self.batch.len() || BATCH_BYTES <= self.batch_bytes {
            self.end_batch()?;
        }
        Ok(())
    }

    /// Moves the current batch to the spool.
    fn end_batch(&mut self) -> anyhow::Result<()> {
        let bytes = serde_json::to_vec(&self.batch)?;
        self.places.push(self.spool.append(&bytes)?);
        self.batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }

    /// Reads the batches, in order.
    pub(super) fn batches(&self) -> impl Iterator<Item = anyhow::Result<Vec<PastRequest>>> {
        self.places.iter().map(|place| {
            let bytes = self.spool.read(*place)?;
            Ok(serde_json::from_slice(&bytes)?)
        })
    }
}

/// Limits on the parts of bodies that are read, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct GatherLimits {
    /// Maximum number of bytes of a robots.txt, or of the answer for a redirect target.
    pub(super) robots_bytes: usize,
    /// Maximum number of bytes of a page, for its statements; `None` if pages are not
    /// read.
    pub(super) page_bytes: Option<usize>,
}

/// Reads all of `files`. Parts of them that cannot be read are added to `counts`.
///
/// # Errors
///
/// Any error of the [`Spool`].
pub(super) fn gather(
    files: &[ArchiveFile],
    limits: GatherLimits,
    counts: &mut JudgeCounts,
) -> anyhow::Result<Gathered> {
    let targets = RedirectTargets::default();
    let mut gathering = Gathering {
        files,
        // Reading threads add targets while other threads read.
        targets: &targets,
        gathered: Gathered::default(),
        exchanges: Exchanges::new(0),
        counts,
    };
    let is_wanted = |url: &str| is_robots_txt(url) || targets.contains(url);
    gathering.scan(limits, &is_wanted, Gathering::take)?;
    gathering.end_file()?;
    gathering.gathered.requests.end_batch()?;
    // Standard input, whose length is unknown, can be read only once.
    if files.iter().all(|file| file.bytes.is_some()) {
        gathering.find_targets(limits.robots_bytes)?;
    }
    Ok(gathering.gathered)
}

/// Reports whether a URL has the path of a robots.txt.
fn is_robots_txt(url: &str) -> bool {
    path_of(url.trim()) == ROBOTS_TXT
}

/// URLs that robots.txt files redirect to, except other robots.txt files, whose answers
/// are indexed in any case.
#[derive(Default)]
struct RedirectTargets(RwLock<HashSet<String>>);

impl RedirectTargets {
    /// Adds the target of a message that redirects a robots.txt. Called as soon as the
    /// message is read, because the target is often the next record.
    fn note(&self, message: &ArchivedMessage) {
        let MessageSide::Response {
            status,
            robots: Some(robots),
            ..
        } = &message.side
        else {
            return;
        };
        let base = target(&message.url).ok();
        let to = base.and_then(|base| redirect(&base, *status, &robots.fields));
        if let Some(to) = to.filter(|to| to.path_and_query() != ROBOTS_TXT) {
            let mut targets = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if targets.len() < TARGETS_MAX {
                targets.insert(to.to_string());
            }
        }
    }

    /// Reports whether a robots.txt redirects to `url`.
    fn contains(&self, url: &str) -> bool {
        let targets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        // Nearly all archives have none, and parsing a URL takes time.
        !targets.is_empty() && target(url).is_ok_and(|url| targets.contains(&url.to_string()))
    }

    /// Returns the targets without an answer, except those in `tried`.
    fn missing(&self, answers: &RobotsAnswers, tried: &HashSet<String>) -> HashSet<String> {
        let targets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let missing = targets
            .iter()
            .filter(|url| !answers.has_redirect_target(url));
        missing
            .filter(|url| !tried.contains(*url))
            .cloned()
            .collect()
    }
}

/// State of reading archives.
struct Gathering<'a> {
    files: &'a [ArchiveFile],
    targets: &'a RedirectTargets,
    gathered: Gathered,
    /// Exchanges of the file being read.
    exchanges: Exchanges,
    counts: &'a mut JudgeCounts,
}

impl Gathering<'_> {
    /// Reads all files, and passes their messages and unreadable parts to `take`. The
    /// bodies of responses from URLs that `is_wanted` accepts are read as robots.txt.
    fn scan(
        &mut self,
        limits: GatherLimits,
        is_wanted: &(dyn Fn(&str) -> bool + Sync),
        take: fn(&mut Self, u32, ScanItem) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let progress = Progress::new(self.files.iter().map(|file| file.bytes).sum());
        let targets = self.targets;
        let scan = ArchiveScan {
            files: self.files,
            body_bytes_max: limits.robots_bytes,
            page_bytes_max: limits.page_bytes,
            is_wanted,
            look: &|message| targets.note(message),
            progress: &progress,
        };
        let outcome = scan.run(&mut |file, item| take(self, file, item));
        progress.clear();
        outcome
    }

    /// Takes a message or an unreadable part of the first pass.
    fn take(&mut self, file: u32, item: ScanItem) -> anyhow::Result<()> {
        if file != self.exchanges.file() {
            self.end_file()?;
            self.exchanges = Exchanges::new(file);
        }
        let (place, cause) = match item {
            ScanItem::Message(scanned) => {
                self.take_robots(file, &scanned.message)?;
                let ScannedMessage {
                    message,
                    statements,
                } = *scanned;
                if let Some(request) = self.exchanges.add(message, statements) {
                    self.gathered.requests.add(request)?;
                }
                return Ok(());
            }
            ScanItem::Damage(damage) => (damage.place, damage.cause.to_string()),
            ScanItem::Unread(place, error) => (place, error.to_string()),
        };
        self.add_unread(file, place, cause);
        Ok(())
    }

    /// Adds the requests of the file's last exchanges, of which only one side has been read.
    fn end_file(&mut self) -> anyhow::Result<()> {
        let mut remaining = self.exchanges.finish();
        remaining.try_for_each(|request| self.gathered.requests.add(request))
    }

    /// Adds the answer for a robots.txt, or for a URL that one redirects to.
    fn take_robots(&mut self, file: u32, message: &ArchivedMessage) -> anyhow::Result<()> {
        let MessageSide::Response {
            status,
            robots: Some(robots),
            ..
        } = &message.side
        else {
            return Ok(());
        };
        let Ok(target) = target(&message.url) else {
            return Ok(());
        };
        let Some(at) = message.at else {
            let cause = "the robots.txt has no date".to_owned();
            self.add_unread(file, message.place, cause);
            return Ok(());
        };
        self.gathered.answers.add(&target, at, robots, *status)
    }

    fn add_unread(&mut self, file: u32, place: u64, cause: String) {
        let archive = usize::try_from(file)
            .ok()
            .and_then(|file| self.files.get(file));
        self.counts.add_unread(UnreadPart {
            file: archive.map(ArchiveFile::name).unwrap_or_default(),
            place,
            cause,
        });
    }

    /// Rereads the archives for redirect targets that precede the redirect, or that
    /// were read at the same time.
    fn find_targets(&mut self, robots_bytes: usize) -> anyhow::Result<()> {
        let limits = GatherLimits {
            robots_bytes,
            page_bytes: None,
        };
        let mut tried = HashSet::new();
        for _ in 0..ROUNDS_MAX {
            let missing = self.targets.missing(&self.gathered.answers, &tried);
            if missing.is_empty() {
                break;
            }
            let is_wanted =
                |url: &str| target(url).is_ok_and(|target| missing.contains(&target.to_string()));
            self.scan(limits, &is_wanted, |gathering, file, item| {
                // Damage was counted in the first pass.
                match item {
                    ScanItem::Message(scanned) => gathering.take_robots(file, &scanned.message),
                    ScanItem::Damage(_) | ScanItem::Unread(..) => Ok(()),
                }
            })?;
            tried.extend(missing);
        }
        Ok(())
    }
}
