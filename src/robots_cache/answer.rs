//! What asking for a robots.txt came to, and how long that holds.
//!
//! RFC 9309, sections 2.3.1 and 2.4. How the answer was got is not known here,
//! nor who waits for it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http::header::{CONTENT_TYPE, ETAG, LAST_MODIFIED};

use crate::clock;
use crate::decision::access::{
    AccessResult, Cause, NoConnection, RobotsFile, Snapshot, StatusMeaning, Validators,
    status_meaning,
};
use crate::decision::stored_snapshot::CacheKey;
use crate::robots_cache::fetch::Hop;
use crate::robots_cache::held::{CacheEntry, Span};
use crate::robots_cache::lifetimes::{Lifetimes, later};
use crate::upstream::freshness::{lifetime, max_age, retry_after};
use politesse_robots::Dialect;

/// A longer validator is not kept: each request would carry it.
const VALIDATOR_BYTES_MAX: usize = 1024;

/// When an origin is sought again that there was no room to ask.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// The same where it is a redirect that leads to such a host: whoever comes
/// sooner would have the first one asked in vain.
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(60 * 60);

/// What asking came to, before it is read.
#[derive(Debug)]
pub(super) struct Answer {
    /// Where it was asked last, the status there, which redirects led there.
    pub(super) place: Place,
    /// The last response, or why it cannot be used.
    pub(super) result: Result<Hop, Cause>,
    /// How long the host that was not asked could not be, if that is known.
    pub(super) not_before: Option<Duration>,
}

/// Where an answer came from.
#[derive(Debug)]
pub(super) struct Place {
    /// Where it was asked last.
    pub(super) url: String,
    /// The status there, if there was an answer.
    pub(super) status: Option<u16>,
    /// The URLs whose redirects led there, in order.
    pub(super) hops: Vec<String>,
    /// Whether it was asked only for what has changed (RFC 9110, section 13).
    pub(super) conditional: bool,
}

/// An answer as read.
#[derive(Debug)]
pub(super) struct ReadAnswer {
    place: Place,
    said: Said,
    /// How long it said that this holds, or is to be waited.
    stated: Option<Duration>,
}

/// What an answer says.
#[derive(Debug)]
enum Said {
    File(Arc<RobotsFile>),
    /// The earlier copy is still the file.
    Confirmed,
    NoFile,
    Nothing(Cause),
}

impl Answer {
    /// The answer of a fetch that failed on our side.
    pub(super) fn internal(key: &CacheKey) -> Self {
        Self::none(key, Cause::Internal)
    }

    /// No answer, since nobody was asked.
    pub(super) fn none(key: &CacheKey, cause: Cause) -> Self {
        Self {
            place: Place {
                url: key.origin.robots_txt().to_string(),
                status: None,
                hops: Vec::new(),
                conditional: false,
            },
            result: Err(cause),
            not_before: None,
        }
    }

    /// How much there is to read.
    pub(super) fn bytes(&self) -> usize {
        self.result.as_ref().map_or(0, |hop| hop.body.len())
    }

    /// Reads it. This takes time where it is a large file.
    pub(super) fn read(self, dialect: Dialect) -> ReadAnswer {
        let (said, stated) = match &self.result {
            Err(cause) => (Said::Nothing(*cause), self.not_before),
            Ok(hop) => said(hop, (&self.place, dialect)),
        };
        ReadAnswer {
            place: self.place,
            said,
            stated,
        }
    }
}

impl ReadAnswer {
    /// The file, if it is one.
    pub(super) fn file(&self) -> Option<&RobotsFile> {
        match &self.said {
            Said::File(copy) => Some(copy),
            Said::Confirmed | Said::NoFile | Said::Nothing(_) => None,
        }
    }

    /// The word for it in the metrics, if it led to `held`.
    pub(super) fn word(&self, held: &CacheEntry) -> &'static str {
        match &self.said {
            Said::File(_) => "successful",
            Said::Confirmed => "confirmed",
            Said::NoFile => "unavailable",
            Said::Nothing(Cause::Busy) => "busy",
            Said::Nothing(_) if held.snapshot.file().is_some() => "stale",
            Said::Nothing(_) => "unreachable",
        }
    }
}

fn said(hop: &Hop, (place, dialect): (&Place, Dialect)) -> (Said, Option<Duration>) {
    let now = clock::now();
    if hop.status == 304 && place.conditional {
        return (Said::Confirmed, lifetime(&hop.headers, now));
    }
    match status_meaning(hop.status) {
        StatusMeaning::Parse => {
            let copy = Arc::new(copy(hop, dialect));
            (Said::File(copy), lifetime(&hop.headers, now))
        }
        StatusMeaning::Unavailable => (Said::NoFile, max_age(&hop.headers)),
        StatusMeaning::Redirect | StatusMeaning::Unreachable => {
            let wait = matches!(hop.status, 429 | 503)
                .then(|| retry_after(&hop.headers, now))
                .flatten();
            (Said::Nothing(Cause::Status), wait)
        }
    }
}

fn copy(hop: &Hop, dialect: Dialect) -> RobotsFile {
    let content_type = hop.headers.get(CONTENT_TYPE);
    // A slice of a larger read buffer would keep all of that alive for a day.
    let body = Bytes::copy_from_slice(&hop.body);
    let mut copy = RobotsFile::in_dialect(body, dialect);
    if !hop.whole {
        copy.robots.cut_here();
    }
    RobotsFile {
        whole: hop.whole,
        content_type: content_type
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
        validators: Validators {
            etag: validator(hop.headers.get(ETAG)),
            last_modified: validator(hop.headers.get(LAST_MODIFIED)),
        },
        ..copy
    }
}

/// A validator in bytes of its own: as it came it would keep the head alive.
fn validator(value: Option<&HeaderValue>) -> Option<HeaderValue> {
    let bytes = value?.as_bytes();
    let fits = bytes.len() <= VALIDATOR_BYTES_MAX;
    fits.then(|| HeaderValue::from_bytes(bytes).ok()).flatten()
}

impl ReadAnswer {
    /// What holds by it from now on, where `earlier` held before.
    pub(super) fn hold(
        &self,
        key: CacheKey,
        lifetimes: &Lifetimes,
        earlier: Option<&CacheEntry>,
    ) -> CacheEntry {
        let (result, lifetime) = match (&self.said, earlier) {
            (Said::File(copy), _) => {
                let result = AccessResult::Successful(Arc::clone(copy));
                (result, lifetimes.of_file(self.stated))
            }
            (Said::NoFile, _) => (AccessResult::Unavailable, lifetimes.of_none(self.stated)),
            (Said::Confirmed, Some(earlier)) => {
                let lifetime = lifetimes.of_file(self.stated);
                let snapshot = Snapshot {
                    fetched_at: clock::now(),
                    ..again(&earlier.snapshot, (None, lifetime))
                };
                return CacheEntry::new(snapshot, Span::whole(lifetime), 0);
            }
            // Only who has an earlier copy asks whether it has changed.
            (Said::Confirmed, None) => {
                return self.without_answer(key, (lifetimes, Cause::Status), None);
            }
            (Said::Nothing(cause), earlier) => {
                return self.without_answer(key, (lifetimes, *cause), earlier);
            }
        };
        let snapshot = self.snapshot(key, (result, lifetime));
        CacheEntry::new(snapshot, Span::whole(lifetime), 0)
    }

    /// What holds while the origin does not answer: what it said, as long as
    /// that does; then the copy of it; then nothing is allowed.
    fn without_answer(
        &self,
        key: CacheKey,
        (lifetimes, cause): (&Lifetimes, Cause),
        earlier: Option<&CacheEntry>,
    ) -> CacheEntry {
        let before = earlier.map_or(0, |earlier| earlier.failures);
        // It is no failure of an origin that was not asked.
        let not_asked = matches!(
            cause,
            Cause::Busy | Cause::NoConnection(NoConnection::NoSocket)
        );
        let (pause, failures) = if not_asked {
            let pause = self.stated.unwrap_or_default();
            (pause.clamp(BUSY_PAUSE, BUSY_PAUSE_MAX), before)
        } else {
            let pause = lifetimes.pause(before, self.stated);
            (pause, before.saturating_add(1))
        };
        let left = earlier.and_then(|earlier| earlier.copy_left(lifetimes.stale));
        let next = match (earlier, left) {
            (Some(earlier), Some(left)) => {
                let lifetime = pause.min(left);
                let snapshot = again(&earlier.snapshot, (Some(cause), lifetime));
                CacheEntry::new(snapshot, Span::whole(lifetime), failures).with_age_of(earlier)
            }
            (Some(_) | None, _) => {
                let result = AccessResult::Unreachable(cause);
                let snapshot = self.snapshot(key, (result, pause));
                CacheEntry::new(snapshot, Span::whole(pause), failures)
            }
        };
        match earlier {
            Some(earlier) if earlier.is_fresh() => earlier.followed_by(next),
            Some(_) | None => next,
        }
    }

    fn snapshot(&self, key: CacheKey, (result, lifetime): (AccessResult, Duration)) -> Snapshot {
        let now = clock::now();
        Snapshot {
            origin: key.origin,
            token: key.token,
            url: self.place.url.clone(),
            hops: self.place.hops.clone(),
            status: self.place.status,
            fetched_at: now,
            expires_at: later(now, lifetime),
            result,
            stale: None,
        }
    }
}

/// What the origin said before, in force for longer; why, if it did not say so
/// again.
fn again(earlier: &Snapshot, (stale, lifetime): (Option<Cause>, Duration)) -> Snapshot {
    Snapshot {
        origin: earlier.origin.clone(),
        token: earlier.token.clone(),
        url: earlier.url.clone(),
        hops: earlier.hops.clone(),
        status: earlier.status,
        fetched_at: earlier.fetched_at,
        expires_at: later(clock::now(), lifetime),
        result: earlier.result.clone(),
        stale,
    }
}
