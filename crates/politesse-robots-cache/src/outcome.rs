//! Outcome of a robots.txt fetch: the meaning of the last response.
//!
//! RFC 9309, section 2.3.1. Does not know how requests are made. `entry` decides how long
//! an outcome is used.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use jiff::Timestamp;

use super::lifetime::{stated_lifetime, stated_max_age};
use politesse_base::clock::{self, passed};
use politesse_decision::access::{Cause, StatusMeaning, is_challenge, status_meaning};
use politesse_decision::snapshot::{
    AccessResult, CacheKey, RobotsBody, RobotsFile, Snapshot, Validators,
};
use politesse_net::retry_after::retry_after;
use politesse_robots::origin::Origin;
use politesse_robots::{Dialect, FileSource};

/// Largest number of bytes of a Content-Type that are stored.
const CONTENT_TYPE_BYTES_MAX: usize = 256;

/// Longest validator that is stored. Each conditional request would carry it, and an
/// origin may send one of any length.
const VALIDATOR_BYTES_MAX: usize = 1024;

/// Result of one fetch, including all redirects.
#[derive(Debug)]
pub(super) struct FetchOutcome {
    /// Snapshot without a lifetime: it expires at the moment it is created.
    pub(super) snapshot: Snapshot,
    /// Lifetime that the response states, or pause that the origin asks for.
    pub(super) stated: Option<Duration>,
    /// Whether the file is the one of the earlier fetch (a 304).
    pub(super) is_confirmed: bool,
    /// Whether the response was a bot challenge instead of the file.
    pub(super) is_challenge: bool,
}

impl FetchOutcome {
    /// Returns the outcome of a fetch that made no request, or that failed on our side.
    pub(super) fn failed(key: &CacheKey, cause: Cause) -> Self {
        Snapshot::unreachable(key.clone(), cause, clock::now()).into()
    }

    /// Reads the last response; `unread` describes where it came from. `earlier` is
    /// present if the request carried the validators of its file.
    ///
    /// Takes some milliseconds for a large file.
    pub(super) fn read(
        response: &Response<RobotsBody>,
        dialect: Dialect,
        unread: Snapshot,
        earlier: Option<&Snapshot>,
    ) -> Self {
        let (fields, now) = (response.headers(), clock::now());
        let status = response.status().as_u16();
        if let Some(earlier) = earlier.filter(|_| status == 304) {
            let snapshot = Snapshot {
                fetched_at: now,
                stale: None,
                // This fetch may have followed other redirects than the earlier one.
                hops: unread.hops,
                ..earlier.clone()
            };
            return Self {
                snapshot,
                stated: confirmed_lifetime(fields, earlier, now),
                is_confirmed: true,
                is_challenge: false,
            };
        }
        let is_challenge = is_challenge(fields);
        let (result, stated) = match status_meaning(status) {
            StatusMeaning::Parse if is_challenge => {
                (AccessResult::Unreachable(Cause::Challenge), None)
            }
            StatusMeaning::Parse => {
                let file = Arc::new(file(response, dialect, &unread.key.origin));
                (AccessResult::Successful(file), stated_lifetime(fields, now))
            }
            StatusMeaning::Unavailable => (AccessResult::Unavailable, stated_max_age(fields)),
            StatusMeaning::Redirect | StatusMeaning::Unreachable => {
                // On a redirect, `Retry-After` says when to follow it (RFC 9110, section
                // 10.2.3), not when to ask here again.
                let asks_for_pause = matches!(status, 429 | 503);
                let pause = retry_after(fields, now).filter(|_| asks_for_pause);
                (AccessResult::Unreachable(Cause::Status), pause)
            }
        };
        Self {
            stated,
            is_challenge,
            ..Self::from(Snapshot { result, ..unread })
        }
    }

    /// Returns the label of the outcome in the metrics. `entry` is the resulting
    /// snapshot: it may still hold an earlier file after a failure.
    pub(super) fn label(&self, entry: &Snapshot) -> &'static str {
        if self.is_challenge {
            return "challenge";
        }
        match self.snapshot.result {
            AccessResult::Successful(_) if self.is_confirmed => "confirmed",
            AccessResult::Successful(_) => "successful",
            AccessResult::Unavailable => "unavailable",
            AccessResult::Unreachable(Cause::Busy) => "busy",
            AccessResult::Unreachable(_) if entry.file().is_some() => "stale",
            AccessResult::Unreachable(_) => "unreachable",
        }
    }
}

impl From<Snapshot> for FetchOutcome {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            stated: None,
            is_confirmed: false,
            is_challenge: false,
        }
    }
}

impl AsRef<Snapshot> for FetchOutcome {
    fn as_ref(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// Returns the lifetime that a 304 states. A 304 without one keeps the earlier lifetime
/// (RFC 9111, section 3.2), which is unknown if the origin failed in the meantime.
fn confirmed_lifetime(fields: &HeaderMap, earlier: &Snapshot, now: Timestamp) -> Option<Duration> {
    let is_stated = [CACHE_CONTROL, EXPIRES]
        .iter()
        .any(|name| fields.contains_key(name));
    if is_stated || earlier.stale.is_some() {
        return stated_lifetime(fields, now);
    }
    Some(passed(earlier.fetched_at, earlier.expires_at))
}

fn file(response: &Response<RobotsBody>, dialect: Dialect, origin: &Origin) -> RobotsFile {
    let headers = response.headers();
    let content_type = headers.get(CONTENT_TYPE);
    // The body is a slice of a read buffer. Without a copy the whole buffer would stay
    // allocated as long as the file is held.
    let body = RobotsBody {
        bytes: Bytes::copy_from_slice(&response.body().bytes),
        whole: response.body().whole,
    };
    let content_type = content_type.map(|value| {
        let bytes = value.as_bytes();
        let start = &bytes[..bytes.len().min(CONTENT_TYPE_BYTES_MAX)];
        String::from_utf8_lossy(start).into_owned()
    });
    let source = FileSource::new(origin, content_type.as_deref());
    RobotsFile {
        content_type,
        validators: Validators {
            etag: validator(headers, &ETAG),
            last_modified: validator(headers, &LAST_MODIFIED),
        },
        ..RobotsFile::from_source(body, dialect, source)
    }
}

/// Copies a validator. A slice of the head would keep the whole head allocated.
fn validator(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let bytes = headers.get(name)?.as_bytes();
    let fits = bytes.len() <= VALIDATOR_BYTES_MAX;
    fits.then(|| HeaderValue::from_bytes(bytes).ok()).flatten()
}
