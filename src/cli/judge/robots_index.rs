//! Index of the robots.txt answers in an archive, by URL and time.
//!
//! RFC 9309, section 2.3.1, defines what a status means. Redirects are followed within the
//! archive, so answers for their targets are indexed as well. Memory holds only the
//! position of each answer; the bytes are in a [`Spool`]. The *number* of an answer is its
//! index in the list of positions, sorted by URL and time. Does not know the requests.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::Context as _;
use http::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};
use jiff::Timestamp;
use moka::sync::Cache;
use politesse_crawls::{ArchivedAnswer, BodyEnd};
use politesse_directives::BodyDecoder;
use serde::{Deserialize, Serialize};

use super::outcome::UnknownReason;
use super::spool::{Spool, SpoolPlace};
use crate::cli::check::context::CheckContext;
use crate::cli::check::saved::{SavedAnswer, snapshot_weight};
use politesse_decision::access::{Cause, StatusMeaning, is_challenge, status_meaning};
use politesse_decision::snapshot::{CacheKey, Snapshot};
use politesse_net::location::redirect_target;
use politesse_robots::origin::{Origin, ROBOTS_TXT, Target};

/// Maximum number of redirects followed (RFC 9309, section 2.3.1.2): the default of
/// `robots.redirects`.
const REDIRECTS_MAX: usize = 5;
/// Approximate limit on the memory of parsed files, in bytes.
const CACHE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Maximum number of answers in the index, which takes 50 bytes for each. A crawl of
/// more hosts must be judged in parts.
const ANSWERS_MAX: usize = 20_000_000;

/// Answer to a fetch of a robots.txt or of a redirect's target, without its body.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct AnswerHead {
    /// URL that was requested.
    url: String,
    /// Time of the capture.
    at: Timestamp,
    /// Status; `None` if the record has no readable status line.
    status: Option<u16>,
    /// URL that the answer redirects to; `None` if the answer is no redirect, or if its
    /// `Location` is unusable.
    redirect_target: Option<String>,
    /// Values of `Content-Encoding`, joined by commas.
    coding: Option<String>,
    /// Whether a bot challenge was sent in place of the file.
    is_challenge: bool,
    end: AnswerEnd,
}

/// End of a body; the serialisable form of [`BodyEnd`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum AnswerEnd {
    /// The archive contains the whole body.
    Whole,
    /// A limit cut the body: the archive contains only its beginning.
    Long,
    /// The connection broke before the end of the body.
    Broken,
    /// The body is stored with an earlier answer of the same URL (`revisit`).
    Elsewhere,
}

/// Position of an answer in the spool, with the key that it is found by.
#[derive(Debug, Clone, Copy)]
struct AnswerPosition {
    url: UrlHash,
    at: Timestamp,
    spooled: SpoolPlace,
}

/// Hash of a URL, long enough (128 bits) to rule out collisions.
type UrlHash = [u64; 2];

/// Rule that selects the answer that a request is judged by, among the robots.txt answers
/// of its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerChoice {
    /// Latest answer before the request, or at the same time.
    Before,
    /// Answer of [`AnswerChoice::Before`], or else the first one after the request.
    BeforeElseAfter,
}

/// All answers of an archive, while they are being added.
#[derive(Default)]
pub(super) struct RobotsAnswers {
    spool: Spool,
    positions: Vec<AnswerPosition>,
    /// Hash functions of a [`UrlHash`], one for each half.
    hashers: [RandomState; 2],
    /// URLs with an answer, other than `/robots.txt`. They are the targets of robots.txt
    /// redirects.
    redirect_targets: HashSet<UrlHash>,
    /// Number of answers left out because of [`ANSWERS_MAX`].
    left_out: u64,
}

impl RobotsAnswers {
    /// Adds the answer for `target` at the time `at`. `target` is a robots.txt, or a URL
    /// that one redirects to.
    ///
    /// # Errors
    ///
    /// As [`Spool::append`].
    pub(super) fn add(
        &mut self,
        target: &Target,
        at: Timestamp,
        answer: &ArchivedAnswer,
        status: Option<u16>,
    ) -> anyhow::Result<()> {
        if self.positions.len() == ANSWERS_MAX {
            self.left_out += 1;
            return Ok(());
        }
        let codings = answer.fields.get_all(CONTENT_ENCODING).iter();
        let coding: Vec<_> = codings.filter_map(|value| value.to_str().ok()).collect();
        let head = AnswerHead {
            url: target.to_string(),
            at,
            status,
            redirect_target: redirect(target, status, &answer.fields).map(|to| to.to_string()),
            coding: (!coding.is_empty()).then(|| coding.join(", ")),
            is_challenge: is_challenge(&answer.fields),
            end: answer.end.into(),
        };
        let mut bytes = serde_json::to_vec(&head)?;
        // Compact JSON has no line feed, so the first one ends the head.
        bytes.push(b'\n');
        bytes.extend_from_slice(&answer.body);
        let position = AnswerPosition {
            url: hash(&self.hashers, &head.url),
            at,
            spooled: self.spool.append(&bytes)?,
        };
        if target.path_and_query() != ROBOTS_TXT {
            self.redirect_targets.insert(position.url);
        }
        self.positions.push(position);
        Ok(())
    }

    /// Reports whether there is an answer for `url`, a URL other than `/robots.txt` that a
    /// robots.txt redirects to.
    pub(super) fn has_redirect_target(&self, url: &str) -> bool {
        self.redirect_targets.contains(&hash(&self.hashers, url))
    }

    /// Returns the number of answers that were left out because of [`ANSWERS_MAX`].
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Builds the index for finding answers.
    pub(super) fn index(mut self, context: &CheckContext, choice: AnswerChoice) -> RobotsIndex<'_> {
        // A stable sort: of two answers with the same time, the later one in the
        // archive wins.
        self.positions
            .sort_by_key(|position| (position.url, position.at));
        let cache = Cache::builder()
            .max_capacity(CACHE_BYTES_MAX)
            .weigher(|_: &usize, found: &FoundRobots| weight(found))
            .build();
        RobotsIndex {
            answers: self,
            context,
            choice,
            cache,
        }
    }
}

/// Returns the URL that a response from `base` redirects to; `None` if the response is no
/// redirect, or if its `Location` is unusable.
pub(super) fn redirect(base: &Target, status: Option<u16>, fields: &HeaderMap) -> Option<Target> {
    let is_redirect = status_meaning(status?) == StatusMeaning::Redirect;
    is_redirect.then(|| redirect_target(base, fields))?
}

fn hash(hashers: &[RandomState; 2], url: &str) -> UrlHash {
    hashers.each_ref().map(|hasher| hasher.hash_one(url))
}

/// Robots.txt to judge a request by, or the reason why it is unknown.
pub(super) type FoundRobots = Result<Arc<Snapshot>, UnknownReason>;

/// Answers of an archive, indexed by URL and time.
pub(super) struct RobotsIndex<'a> {
    answers: RobotsAnswers,
    context: &'a CheckContext,
    choice: AnswerChoice,
    /// Parsed files, by the number of the answer for `/robots.txt`, which may redirect to
    /// them.
    cache: Cache<usize, FoundRobots>,
}

impl RobotsIndex<'_> {
    /// Finds the robots.txt that a request to `origin` at the time `at` is judged by.
    pub(super) fn find(&self, origin: &Origin, at: Option<Timestamp>) -> FoundRobots {
        let Some(number) = self.chosen(origin, at)? else {
            return Err(UnknownReason::NoRobots);
        };
        self.cache.get_with(number, || self.read(number, origin))
    }

    /// Returns the number of the answer for `/robots.txt` that [`AnswerChoice`] selects;
    /// `None` if the archive has none for the origin.
    ///
    /// # Errors
    ///
    /// [`UnknownReason::NoTime`] if the time of the request is unknown,
    /// [`UnknownReason::RobotsLater`] if there are only later answers, which do not count.
    fn chosen(
        &self,
        origin: &Origin,
        at: Option<Timestamp>,
    ) -> Result<Option<usize>, UnknownReason> {
        let url = self.hash(&origin.robots_txt().to_string());
        let answers = self.range(url);
        if answers.is_empty() {
            return Ok(None);
        }
        let Some(at) = at else {
            return Err(UnknownReason::NoTime);
        };
        let first_after = self.first_after(url, at);
        match self.choice {
            _ if answers.start < first_after => Ok(Some(first_after - 1)),
            AnswerChoice::BeforeElseAfter => Ok(Some(first_after)),
            AnswerChoice::Before => Err(UnknownReason::RobotsLater),
        }
    }

    fn hash(&self, url: &str) -> UrlHash {
        hash(&self.answers.hashers, url)
    }

    /// Returns the numbers of the answers for a URL, by time.
    fn range(&self, url: UrlHash) -> std::ops::Range<usize> {
        let positions = &self.answers.positions;
        let start = positions.partition_point(|position| position.url < url);
        let length = positions[start..].partition_point(|position| position.url == url);
        start..start + length
    }

    /// Returns the number of the first answer for a URL after a time, or the number that
    /// such an answer would have.
    fn first_after(&self, url: UrlHash, at: Timestamp) -> usize {
        let positions = &self.answers.positions;
        positions.partition_point(|position| (position.url, position.at) <= (url, at))
    }

    /// Returns the number of the answer for a redirect's target that is nearest to the time
    /// of the redirect, before or after it. If two are equally near, the later one wins,
    /// because a redirect is followed after it was received.
    fn nearest(&self, url: UrlHash, at: Timestamp) -> Option<usize> {
        let distance = |number: &usize| {
            let position = self.answers.positions.get(*number);
            position.map(|position| position.at.duration_since(at).abs())
        };
        let range = self.range(url);
        let not_before = self
            .answers
            .positions
            .partition_point(|position| (position.url, position.at) < (url, at));
        // `min_by_key` returns the first of two equal ones, which is the later answer.
        let around = [Some(not_before), not_before.checked_sub(1)];
        let candidates = around
            .into_iter()
            .flatten()
            .filter(|number| range.contains(number));
        candidates.min_by_key(distance)
    }

    /// Follows the redirects of the answer with the number `first`, and makes a snapshot of
    /// the last answer.
    fn read(&self, first: usize, origin: &Origin) -> FoundRobots {
        let mut answer = self.answer(first)?;
        let fetched_at = answer.head.at;
        let mut hops = Vec::new();
        let outcome = loop {
            answer = self.with_body(answer)?;
            // Nothing is known about an answer without a readable status line. (If it is a
            // `revisit`, `with_body` has replaced it by the answer that it repeats.)
            let Some(status) = answer.head.status else {
                break Err(Cause::Broken);
            };
            if status_meaning(status) != StatusMeaning::Redirect {
                break Ok(());
            }
            hops.push(answer.head.url.clone());
            let Some(to) = answer.head.redirect_target.as_deref() else {
                break Err(Cause::RedirectTarget);
            };
            if REDIRECTS_MAX < hops.len() || hops.iter().any(|hop| hop == to) {
                break Err(Cause::Redirects);
            }
            let next = self.nearest(self.hash(to), answer.head.at);
            answer = self.answer(next.ok_or(UnknownReason::NoRedirectTarget)?)?;
        };
        let snapshot = match outcome {
            Ok(()) => answer.snapshot(origin, self.context),
            Err(cause) => unreachable_snapshot(origin, cause),
        };
        // The time is that of the first answer, because the redirect's target may have
        // been stored long before or after.
        Ok(Arc::new(Snapshot {
            url: answer.head.url,
            hops,
            status: answer.head.status,
            fetched_at,
            ..snapshot
        }))
    }

    /// Reads an answer from the spool.
    fn answer(&self, number: usize) -> Result<StoredAnswer, UnknownReason> {
        let position = self
            .answers
            .positions
            .get(number)
            .ok_or(UnknownReason::Unreadable)?;
        let bytes = self.answers.spool.read(position.spooled);
        let stored = bytes
            .ok()
            .and_then(|bytes| StoredAnswer::parse(number, &bytes).ok());
        stored.ok_or(UnknownReason::Unreadable)
    }

    /// Returns the answer whose body counts for `answer`: the earlier one of the same URL
    /// that it repeats if it is a 304 or a `revisit`, otherwise `answer` itself.
    fn with_body(&self, answer: StoredAnswer) -> Result<StoredAnswer, UnknownReason> {
        let is_unchanged = answer.head.status == Some(304);
        // A `revisit` record may be stored without an HTTP head, and so without a status.
        // It then repeats the file like one with a status of success.
        let may_be_success = answer
            .head
            .status
            .is_none_or(|status| (200..300).contains(&status));
        // The body of an error or a redirect does not matter.
        let lacks_body = answer.head.end == AnswerEnd::Elsewhere && may_be_success;
        if !is_unchanged && !lacks_body {
            return Ok(answer);
        }
        // Newest first: a conditional request refers to the answer received last.
        let range = self.range(self.hash(&answer.head.url));
        let earlier = range.start..answer.number;
        for number in earlier.rev() {
            let found = self.answer(number)?;
            let has_body = found.head.end != AnswerEnd::Elsewhere;
            if has_body
                && !found.head.is_challenge
                && found
                    .head
                    .status
                    .is_some_and(|status| status_meaning(status) == StatusMeaning::Parse)
            {
                return Ok(found);
            }
        }
        Err(UnknownReason::NoBody)
    }
}

/// Creates the snapshot of a robots.txt that is unreachable because of `cause`. The caller
/// replaces its time.
fn unreachable_snapshot(origin: &Origin, cause: Cause) -> Snapshot {
    let key = CacheKey::new(origin.clone(), None);
    Snapshot::unreachable(key, cause, Timestamp::UNIX_EPOCH)
}

/// Answer with its body.
struct StoredAnswer {
    number: usize,
    head: AnswerHead,
    body: Vec<u8>,
}

impl StoredAnswer {
    fn parse(number: usize, bytes: &[u8]) -> anyhow::Result<Self> {
        let line_end = bytes.iter().position(|byte| *byte == b'\n');
        let end = line_end.context("an answer has no head")?;
        Ok(Self {
            number,
            head: serde_json::from_slice(&bytes[..end])?,
            body: bytes[end + 1..].to_vec(),
        })
    }

    /// Makes the snapshot of the answer, as `check` does for a saved file. An answer without
    /// a status counts as unreachable.
    fn snapshot(&self, origin: &Origin, context: &CheckContext) -> Snapshot {
        // No status has the number 0, which `status_meaning` takes as unreachable.
        let status = self.head.status.unwrap_or_default();
        let is_file = status_meaning(status) == StatusMeaning::Parse;
        if is_file && self.head.is_challenge {
            return unreachable_snapshot(origin, Cause::Challenge);
        }
        if is_file && self.head.end == AnswerEnd::Broken {
            return unreachable_snapshot(origin, Cause::Broken);
        }
        let body = match &self.head.coding {
            Some(coding) if is_file => decode(coding, &self.body, context.bytes_max),
            _ => Ok(self.body.clone()),
        };
        match body {
            Err(cause) => unreachable_snapshot(origin, cause),
            Ok(body) => {
                let answer = SavedAnswer {
                    status,
                    body: body.into(),
                    whole: self.head.end != AnswerEnd::Long,
                };
                answer.snapshot(origin, context)
            }
        }
    }
}

/// First bytes of a gzip member (RFC 1952, section 2.3.1).
pub(super) const GZIP_BEGINS: [u8; 2] = [0x1f, 0x8b];

/// Removes the content coding of a body.
///
/// Decodes at most `bytes_max + 1` bytes, so that a small body cannot fill the memory. The
/// one byte too many shows later that the body exceeds the limit. A body that is not coded
/// is returned at its full length.
fn decode(coding: &str, body: &[u8], bytes_max: usize) -> Result<Vec<u8>, Cause> {
    // Many archives store the decoded body and leave the field in place.
    if coding.eq_ignore_ascii_case("gzip") && !body.starts_with(&GZIP_BEGINS) {
        return Ok(body.to_vec());
    }
    let value = HeaderValue::from_str(coding).map_err(|_| Cause::Coding)?;
    let fields = HeaderMap::from_iter([(CONTENT_ENCODING, value)]);
    let decoded_max = bytes_max.saturating_add(1);
    let decoder = BodyDecoder::for_fields(&fields, decoded_max).map_err(|_| Cause::Coding)?;
    let Some(mut decoder) = decoder else {
        return Ok(body.to_vec());
    };
    let mut decoded = Vec::new();
    let outcome = decoder.push(body, &mut |piece| {
        decoded.extend_from_slice(&piece[..piece.len().min(decoded_max - decoded.len())]);
        if decoded.len() < decoded_max {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    // An error after the last byte that counts does not matter.
    let is_enough = decoded.len() == decoded_max;
    match outcome.and_then(|()| decoder.finish()) {
        Err(_) if !is_enough => Err(Cause::Coding),
        Ok(()) | Err(_) => Ok(decoded),
    }
}

impl From<BodyEnd> for AnswerEnd {
    fn from(end: BodyEnd) -> Self {
        match end {
            BodyEnd::Whole => Self::Whole,
            BodyEnd::Long => Self::Long,
            BodyEnd::Broken => Self::Broken,
            BodyEnd::Elsewhere => Self::Elsewhere,
        }
    }
}

/// Returns the approximate memory used by a cached result, in bytes.
fn weight(found: &FoundRobots) -> u32 {
    found.as_ref().map_or(64, |found| snapshot_weight(found))
}
