//! Outcome of a fetch of robots.txt: the redirects that were followed, and what
//! the last response means.
//!
//! RFC 9309, section 2.3.1. Does not know how requests are made, nor for how
//! long an outcome is used: that is decided in `entry`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::fetch::{FetchError, RobotsResponse};
use super::lifetime::{stated_lifetime, stated_max_age};
use crate::clock;
use crate::decision::access::{Cause, NoConnection, StatusMeaning, status_meaning};
use crate::decision::snapshot::{RobotsBody, RobotsFile, Snapshot, Validators};
use crate::upstream::body::BodyError;
use crate::upstream::error::UpstreamError;
use crate::upstream::retry_after::retry_after;
use politesse_robots::Dialect;
use politesse_robots::origin::{Origin, Target};

/// Longest validator that is kept. Each conditional request would carry it, and
/// an origin may send one of any length.
const VALIDATOR_BYTES_MAX: usize = 1024;

/// Result of one fetch, all redirects included.
#[derive(Debug)]
pub(super) struct FetchOutcome {
    /// URL that was requested last.
    pub(super) url: String,
    /// Status of its response, if there was one.
    pub(super) status: Option<u16>,
    /// URLs whose redirects led to `url`, in order.
    pub(super) hops: Vec<String>,
    /// What was found there.
    pub(super) content: FetchedContent,
    /// Lifetime that the response states, or pause that the origin asks for.
    pub(super) stated: Option<Duration>,
}

/// What a fetch found.
#[derive(Debug)]
pub(super) enum FetchedContent {
    /// A file.
    File(Arc<RobotsFile>),
    /// The file of the earlier fetch is still current (a 304).
    NotModified,
    /// There is no file: a status from 400 to 499.
    Missing,
    /// The origin gave no usable answer.
    Failed(Cause),
}

impl FetchOutcome {
    /// Returns the outcome of a fetch that made no request, or that failed on
    /// our side.
    pub(super) fn failed(origin: &Origin, cause: Cause) -> Self {
        Self {
            url: origin.robots_txt().to_string(),
            status: None,
            hops: Vec::new(),
            content: FetchedContent::Failed(cause),
            stated: None,
        }
    }

    /// Returns the file, if one was found.
    pub(super) fn file(&self) -> Option<&RobotsFile> {
        match &self.content {
            FetchedContent::File(file) => Some(file),
            FetchedContent::NotModified | FetchedContent::Missing | FetchedContent::Failed(_) => {
                None
            }
        }
    }

    /// Returns the word for it in the metrics. `snapshot` is what follows from
    /// it: an earlier file may have outlived a failure.
    pub(super) fn label(&self, snapshot: &Snapshot) -> &'static str {
        match &self.content {
            FetchedContent::File(_) => "successful",
            FetchedContent::NotModified => "confirmed",
            FetchedContent::Missing => "unavailable",
            FetchedContent::Failed(Cause::Busy) => "busy",
            FetchedContent::Failed(_) if snapshot.file().is_some() => "stale",
            FetchedContent::Failed(_) => "unreachable",
        }
    }
}

/// Redirects that a fetch has followed, and where it stands.
///
/// Lives longer than the time limit of the fetch, so that a snapshot can say
/// where the time ran out.
#[derive(Debug)]
pub(super) struct RedirectTrail {
    /// URL that is requested now.
    pub(super) last: Target,
    /// URLs whose redirects were followed, in order.
    before: Vec<Target>,
    /// Status of the response from `last`.
    pub(super) status: Option<u16>,
    /// Whether the request to `last` carried validators.
    pub(super) is_conditional: bool,
    /// Whether the fetch waits for a slot before it requests `last`.
    pub(super) awaits_slot: bool,
    /// Time after which the host of the next URL has a turn free, where none
    /// came soon enough.
    pub(super) turn_in: Option<Duration>,
}

impl RedirectTrail {
    pub(super) fn new(first: Target) -> Self {
        Self {
            last: first,
            before: Vec::new(),
            status: None,
            is_conditional: false,
            awaits_slot: false,
            turn_in: None,
        }
    }

    /// Returns the cause of a failure by the time limit.
    pub(super) fn timeout_cause(&self) -> Cause {
        // For want of a slot of ours: that says nothing about the origin.
        if self.awaits_slot {
            Cause::Busy
        } else {
            Cause::Timeout
        }
    }

    /// Refuses a redirect that is one too many, or leads to a URL that was
    /// requested before.
    pub(super) fn check(&self, next: &Target, redirects_max: u8) -> Result<(), Cause> {
        let was_requested = self.last == *next || self.before.contains(next);
        if was_requested || usize::from(redirects_max) <= self.before.len() {
            return Err(Cause::Redirects);
        }
        Ok(())
    }

    pub(super) fn follow(&mut self, next: Target) {
        self.before.push(std::mem::replace(&mut self.last, next));
        (self.status, self.is_conditional) = (None, false);
    }

    /// Returns what a failed request means at this point. Only the initial
    /// origin counts as one without a connection, which is answered with 502:
    /// the crawler requested nothing from the others.
    pub(super) fn failure_cause(&self, error: &FetchError) -> Cause {
        let no_connection = |cause| match self.before.as_slice() {
            [] => Cause::NoConnection(cause),
            _ => Cause::RedirectTarget,
        };
        match error {
            FetchError::Upstream(UpstreamError::NoConnection(cause)) => no_connection(*cause),
            FetchError::Upstream(UpstreamError::Prohibited(_)) => {
                no_connection(NoConnection::Prohibited)
            }
            FetchError::Upstream(UpstreamError::Target) => Cause::RedirectTarget,
            FetchError::Upstream(UpstreamError::FirstByteTimeout)
            | FetchError::Body(BodyError::Stalled) => Cause::Timeout,
            FetchError::Coding => Cause::Coding,
            FetchError::Upstream(_) | FetchError::Body(_) => Cause::Broken,
        }
    }

    /// Reads the last response. Takes some milliseconds for a large file.
    pub(super) fn outcome(
        self,
        response: Result<RobotsResponse, Cause>,
        dialect: Dialect,
    ) -> FetchOutcome {
        let (content, stated) = match response {
            Err(cause) => (FetchedContent::Failed(cause), self.turn_in),
            Ok(response) if response.status == 304 && self.is_conditional => {
                let stated = stated_lifetime(&response.headers, clock::now());
                (FetchedContent::NotModified, stated)
            }
            Ok(response) => read(&response, dialect),
        };
        FetchOutcome {
            url: self.last.to_string(),
            status: self.status,
            hops: self.before.iter().map(Target::to_string).collect(),
            content,
            stated,
        }
    }
}

fn read(response: &RobotsResponse, dialect: Dialect) -> (FetchedContent, Option<Duration>) {
    let now = clock::now();
    let headers = &response.headers;
    match status_meaning(response.status) {
        StatusMeaning::Parse => {
            let file = file(&response.body, headers, dialect);
            let stated = stated_lifetime(headers, now);
            (FetchedContent::File(Arc::new(file)), stated)
        }
        StatusMeaning::Unavailable => (FetchedContent::Missing, stated_max_age(headers)),
        StatusMeaning::Redirect | StatusMeaning::Unreachable => {
            // On a redirect the field says when to follow it (RFC 9110, section
            // 10.2.3), not when to ask here again.
            let asks_for_pause = matches!(response.status, 429 | 503);
            let pause = retry_after(headers, now).filter(|_| asks_for_pause);
            (FetchedContent::Failed(Cause::Status), pause)
        }
    }
}

fn file(body: &RobotsBody, headers: &HeaderMap, dialect: Dialect) -> RobotsFile {
    let content_type = headers.get(CONTENT_TYPE);
    // As it came, the body is a slice of a read buffer, all of which would stay
    // allocated for as long as the file is held.
    let body = RobotsBody {
        bytes: Bytes::copy_from_slice(&body.bytes),
        whole: body.whole,
    };
    RobotsFile {
        content_type: content_type
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
        validators: Validators {
            etag: validator(headers, &ETAG),
            last_modified: validator(headers, &LAST_MODIFIED),
        },
        ..RobotsFile::read(body, dialect)
    }
}

/// Copies a validator: as it came it would keep the whole head allocated.
fn validator(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let bytes = headers.get(name)?.as_bytes();
    let fits = bytes.len() <= VALIDATOR_BYTES_MAX;
    fits.then(|| HeaderValue::from_bytes(bytes).ok()).flatten()
}
