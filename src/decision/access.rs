//! What asking for a robots.txt led to, and how long that holds.
//!
//! RFC 9309, sections 2.3.1 and 2.4. This module knows neither how the answer
//! was got nor what the rules in it say.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use jiff::Timestamp;
use thiserror::Error;

use crate::decision::digest::Digest;
use politesse_robots::crawler::ProductToken;
use politesse_robots::origin::Origin;
use politesse_robots::{Dialect, RobotsTxt, whole_lines};

/// The access result for one origin, asked for on behalf of one product token.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Whose robots.txt it is: the initial origin, whatever the redirects
    /// (RFC 9309, section 2.3.1.2).
    pub origin: Origin,
    /// The token it was fetched for; `None` if one copy serves every crawler.
    /// No crawler is judged by the file that another was given.
    pub token: Option<ProductToken>,
    /// Where it was asked last: where the answer came from, if there was one.
    pub url: String,
    /// The URLs whose redirects led there, in order, the initial one first;
    /// none without redirects.
    pub hops: Vec<String>,
    /// The status that ended the fetch, if there was an answer.
    pub status: Option<u16>,
    /// When the answer was there.
    pub fetched_at: Timestamp,
    /// From when on it may not be used any more.
    pub expires_at: Timestamp,
    /// What the answer means.
    pub result: AccessResult,
    /// Why the origin could not be asked again, if `result` is what it had
    /// said before (RFC 9309, section 2.4). `fetched_at` is when it said so.
    pub stale: Option<Cause>,
}

/// RFC 9309, section 2.3.1: the three things that asking can lead to.
#[derive(Debug, Clone)]
pub enum AccessResult {
    /// There is a file, and its rules bind (section 2.3.1.1).
    Successful(Arc<RobotsFile>),
    /// A status from 400 to 499 but 429: no rules (section 2.3.1.3).
    Unavailable,
    /// Anything else: complete disallow (section 2.3.1.4). Invariant 4.
    Unreachable(Cause),
}

/// The file as kept: the bytes that were parsed, hashed and stored.
#[derive(Debug)]
pub struct RobotsFile {
    /// The rules in it.
    pub robots: RobotsTxt,
    /// The bytes, cut at the last whole line within the limit.
    pub body: Bytes,
    /// The SHA-256 of `body`.
    pub digest: Digest,
    /// Whether `body` is all that the origin sent.
    pub whole: bool,
    /// The media type it was sent with.
    pub content_type: Option<String>,
    /// By what the origin may be asked whether it has changed.
    pub validators: Validators,
}

/// What a response can be recognised by (RFC 9110, section 8.8).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validators {
    /// Its `ETag`, as sent.
    pub etag: Option<HeaderValue>,
    /// Its `Last-Modified`, as sent.
    pub last_modified: Option<HeaderValue>,
}

/// Body of a robots.txt, as far as it was read.
#[derive(Debug, Clone)]
pub struct RobotsBody {
    /// The bytes, cut at the last whole line within the limit.
    pub bytes: Bytes,
    /// Whether `bytes` is all that the origin sent.
    pub whole: bool,
}

impl RobotsBody {
    /// Keeps the whole lines within the first `max` bytes (RFC 9309, section
    /// 2.5).
    pub fn within(mut bytes: Bytes, max: usize) -> Self {
        let kept = whole_lines(&bytes, max).len();
        let whole = kept == bytes.len();
        bytes.truncate(kept);
        Self { bytes, whole }
    }
}

impl Default for RobotsBody {
    fn default() -> Self {
        Bytes::new().into()
    }
}

impl From<Bytes> for RobotsBody {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, whole: true }
    }
}

impl RobotsFile {
    /// Reads and hashes `body`, a whole file, by RFC 9309.
    pub fn new(body: Bytes) -> Self {
        Self::read(body, Dialect::default())
    }

    /// Reads and hashes `body` by the text that `dialect` names.
    pub fn read(body: impl Into<RobotsBody>, dialect: Dialect) -> Self {
        let RobotsBody { bytes, whole } = body.into();
        let mut robots = RobotsTxt::in_dialect(bytes.clone(), dialect);
        if !whole {
            // The rules behind the cut are unknown, and explanations say so.
            robots.cut_here();
        }
        Self {
            robots,
            digest: Digest::of(&bytes),
            body: bytes,
            whole,
            content_type: None,
            validators: Validators::default(),
        }
    }

    /// Reads the same bytes by another dialect.
    #[must_use]
    pub fn read_again(&self, dialect: Dialect) -> Self {
        let body = RobotsBody {
            bytes: self.body.clone(),
            whole: self.whole,
        };
        Self {
            content_type: self.content_type.clone(),
            validators: self.validators.clone(),
            ..Self::read(body, dialect)
        }
    }
}

impl Snapshot {
    /// The result for an origin that could not be connected to at `now`. It
    /// holds no longer than the request it was made for.
    pub fn without_connection(origin: &Origin, cause: NoConnection, now: Timestamp) -> Self {
        Self {
            origin: origin.clone(),
            token: None,
            url: origin.robots_txt().to_string(),
            hops: Vec::new(),
            status: None,
            fetched_at: now,
            expires_at: now,
            result: AccessResult::Unreachable(Cause::NoConnection(cause)),
            stale: None,
        }
    }

    /// The result for an origin that was not asked for `token` at `now`, and will
    /// not be until `until`, since its client came by too many names.
    pub fn without_asking(
        (origin, token): (&Origin, &ProductToken),
        now: Timestamp,
        until: Timestamp,
    ) -> Self {
        Self {
            origin: origin.clone(),
            token: Some(token.clone()),
            url: origin.robots_txt().to_string(),
            hops: Vec::new(),
            status: None,
            fetched_at: now,
            expires_at: until,
            result: AccessResult::Unreachable(Cause::Names),
            stale: None,
        }
    }

    /// The copy of the file, if there is one.
    pub fn file(&self) -> Option<&RobotsFile> {
        match &self.result {
            AccessResult::Successful(copy) => Some(copy),
            AccessResult::Unavailable | AccessResult::Unreachable(_) => None,
        }
    }

    /// Why there was no connection to the origin at all, if that is so.
    pub fn no_connection(&self) -> Option<NoConnection> {
        match &self.result {
            AccessResult::Unreachable(Cause::NoConnection(cause)) => Some(*cause),
            AccessResult::Unreachable(_)
            | AccessResult::Successful(_)
            | AccessResult::Unavailable => None,
        }
    }
}

/// Why a robots.txt is unreachable. Each variant disallows every URL of the
/// origin until the file is asked for again (RFC 9309, section 2.3.1.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A status that tells nothing about rules: 429, 5xx and all that is not
    /// defined for robots.txt.
    Status,
    /// No whole answer within `robots.timeout`.
    Timeout,
    /// More redirects than `robots.redirects`, or a loop of them.
    Redirects,
    /// A redirect without a usable `Location`.
    RedirectTarget,
    /// A redirect to a page that its own origin disallows, or whose rules
    /// could not be told.
    RedirectDisallowed,
    /// The answer broke off, or was no HTTP.
    Broken,
    /// A content coding that is not understood, though none was asked for.
    Coding,
    /// No connection or TLS session could be made.
    NoConnection(NoConnection),
    /// It was not asked: one client came by more names than `robots.max_names`.
    Names,
    /// It was not asked: there were too many others to ask before it
    /// (`robots.max_fetches`, `robots.max_waiting`).
    Busy,
    /// Something failed on our side.
    Internal,
}

/// Why an origin could not be connected to. The crawler could not have had the
/// page either, so it is answered with 502 or 504 and the error type that
/// RFC 9209, section 2.3, has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoConnection {
    /// The name has no address.
    #[error("its name has no address")]
    Dns,
    /// The resolver did not answer in time.
    #[error("its name could not be resolved in time")]
    DnsTimeout,
    /// The origin refused the connection.
    #[error("it refuses connections")]
    Refused,
    /// No connection within `upstream.connect_timeout`.
    #[error("it did not answer in time")]
    Timeout,
    /// No route, or another failure below TCP.
    #[error("it cannot be routed to")]
    Unroutable,
    /// It was not tried: the system gives us no socket.
    #[error("there is no socket left on our side")]
    NoSocket,
    /// Its certificate does not hold.
    #[error("its certificate does not hold")]
    Certificate,
    /// TLS could not be agreed on.
    #[error("no TLS session could be agreed on")]
    Tls,
    /// Every address it has is denied.
    #[error("its address is denied")]
    Prohibited,
    /// The proxy that we go through did not connect to it. What that proxy
    /// found out about the origin it alone knows, so the type is the broad one.
    #[error("the parent proxy does not connect to it")]
    Parent,
    /// The proxy that we go through wants other credentials; the operator, not
    /// the crawler, has to mend that.
    #[error("the parent proxy does not take our credentials")]
    ParentCredentials,
}

/// The words under which causes are kept in the audit, in one list.
const CAUSES: [(&str, Cause); 21] = [
    ("status", Cause::Status),
    ("timeout", Cause::Timeout),
    ("redirects", Cause::Redirects),
    ("redirect_target", Cause::RedirectTarget),
    ("redirect_disallowed", Cause::RedirectDisallowed),
    ("broken", Cause::Broken),
    ("coding", Cause::Coding),
    ("names", Cause::Names),
    ("busy", Cause::Busy),
    ("internal", Cause::Internal),
    ("dns_error", Cause::NoConnection(NoConnection::Dns)),
    ("dns_timeout", Cause::NoConnection(NoConnection::DnsTimeout)),
    (
        "connection_refused",
        Cause::NoConnection(NoConnection::Refused),
    ),
    (
        "connection_timeout",
        Cause::NoConnection(NoConnection::Timeout),
    ),
    (
        "destination_ip_unroutable",
        Cause::NoConnection(NoConnection::Unroutable),
    ),
    (
        "tls_certificate_error",
        Cause::NoConnection(NoConnection::Certificate),
    ),
    (
        "proxy_internal_error",
        Cause::NoConnection(NoConnection::NoSocket),
    ),
    ("tls_protocol_error", Cause::NoConnection(NoConnection::Tls)),
    (
        "destination_ip_prohibited",
        Cause::NoConnection(NoConnection::Prohibited),
    ),
    (
        "destination_unavailable",
        Cause::NoConnection(NoConnection::Parent),
    ),
    (
        "proxy_configuration_error",
        Cause::NoConnection(NoConnection::ParentCredentials),
    ),
];

impl Cause {
    /// The word for it in the audit; for [`Cause::NoConnection`] the error
    /// type of RFC 9209, section 2.3.
    pub fn as_str(self) -> &'static str {
        CAUSES
            .iter()
            .find(|(_, cause)| *cause == self)
            .map_or("internal", |(word, _)| word)
    }
}

impl NoConnection {
    /// The error type of RFC 9209, section 2.3.
    pub fn as_str(self) -> &'static str {
        Cause::NoConnection(self).as_str()
    }

    /// Whether it was time that ran out: 504, else 502.
    pub fn is_timeout(self) -> bool {
        matches!(self, Self::DnsTimeout | Self::Timeout)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// No cause has this word.
#[derive(Debug, Error)]
#[error("no cause is called {0:?}")]
pub struct UnknownCause(String);

impl FromStr for Cause {
    type Err = UnknownCause;

    fn from_str(word: &str) -> Result<Self, UnknownCause> {
        CAUSES
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, cause)| *cause)
            .ok_or_else(|| UnknownCause(word.to_owned()))
    }
}

/// What a status for robots.txt means (RFC 9309, section 2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusMeaning {
    /// Its body is the file.
    Parse,
    /// It is elsewhere.
    Redirect,
    /// There is none.
    Unavailable,
    /// It cannot be told.
    Unreachable,
}

/// Reads a status for robots.txt.
///
/// 429 says "not now", not "no rules"; 206 is a part nobody asked for, and a
/// 304 repeats nothing: all three leave the rules unknown.
pub fn status_meaning(status: u16) -> StatusMeaning {
    match status {
        206 | 304 | 429 => StatusMeaning::Unreachable,
        200..=299 => StatusMeaning::Parse,
        301 | 302 | 303 | 307 | 308 => StatusMeaning::Redirect,
        400..=499 => StatusMeaning::Unavailable,
        _ => StatusMeaning::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9309, sections 2.3.1.1 to 2.3.1.4; ours for 206, 304 and 429; checklist
    // 26 to 29.
    #[test]
    fn a_status_means_what_the_standard_says() {
        for (status, meaning) in [
            (200, StatusMeaning::Parse),
            (204, StatusMeaning::Parse),
            (206, StatusMeaning::Unreachable),
            (301, StatusMeaning::Redirect),
            (300, StatusMeaning::Unreachable),
            (304, StatusMeaning::Unreachable),
            (308, StatusMeaning::Redirect),
            (400, StatusMeaning::Unavailable),
            (401, StatusMeaning::Unavailable),
            (404, StatusMeaning::Unavailable),
            (429, StatusMeaning::Unreachable),
            (499, StatusMeaning::Unavailable),
            (500, StatusMeaning::Unreachable),
            (600, StatusMeaning::Unreachable),
            (101, StatusMeaning::Unreachable),
        ] {
            assert_eq!(status_meaning(status), meaning, "{status}");
        }
    }

    #[test]
    fn every_cause_is_read_back_from_its_word() {
        for (word, cause) in CAUSES {
            assert_eq!(word.parse::<Cause>().unwrap(), cause);
            assert_eq!(cause.as_str(), word);
        }
    }
}
