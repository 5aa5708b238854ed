//! Snapshot: the result of fetching a robots.txt, how long it may be used, and the key
//! that it is cached under.
//!
//! RFC 9309, sections 2.3.1 and 2.4. Does not know how a file is fetched, or the meaning
//! of its rules.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use jiff::Timestamp;

use super::access::{Cause, NoConnection};
use super::digest::Digest;
use super::tdm::TdmSnapshot;
use politesse_robots::crawler::ProductToken;
use politesse_robots::origin::Origin;
use politesse_robots::{Dialect, FileSource, RecordKind, RobotsTxt, RuleKind, whole_lines};

/// Cache key of a snapshot. It separates crawlers that may get different answers, so that
/// each is judged only by answers for it (docs/decisions/031-shared-robots.md).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// Initial origin of the file, before any redirects (RFC 9309, section 2.3.1.2).
    pub origin: Origin,
    /// Product token that the file was fetched for; `None` if one file serves
    /// all crawlers.
    pub token: Option<ProductToken>,
    /// Digest of the entry of `crawler` that the token comes from; `None` if it comes from
    /// `User-Agent`.
    pub entry: Option<Digest>,
    /// Digest of the fields of the only sender that the answer applies to; `None` if it
    /// applies to every sender of the token.
    pub sender: Option<Digest>,
}

impl CacheKey {
    /// Creates the key of an answer shared by all senders of a product token.
    pub fn new(origin: Origin, token: Option<ProductToken>) -> Self {
        Self {
            origin,
            token,
            entry: None,
            sender: None,
        }
    }

    /// Returns the key of the answer that all senders share.
    #[must_use]
    pub fn shared(&self) -> Self {
        Self {
            sender: None,
            ..self.clone()
        }
    }

    /// Returns the text form used in stores, which excludes the origin: the token, then
    /// entry and sender on two more lines if the key has either.
    pub fn scope(&self) -> String {
        let token = self.token.as_ref().map_or("", ProductToken::as_str);
        if self.entry.is_none() && self.sender.is_none() {
            return token.to_owned();
        }
        let text = |digest: Option<Digest>| digest.map_or_else(String::new, |it| it.to_string());
        format!("{token}\n{}\n{}", text(self.entry), text(self.sender))
    }

    /// Parses the text form from [`CacheKey::scope`]; `None` if it is malformed.
    pub fn of_scope(origin: Origin, scope: &str) -> Option<Self> {
        let mut lines = scope.split('\n');
        let token = match lines.next()? {
            "" => None,
            token => Some(ProductToken::new(token).ok()?),
        };
        let mut digest = || match lines.next() {
            None | Some("") => Some(None),
            Some(digits) => digits.parse().ok().map(Some),
        };
        Some(Self {
            origin,
            token,
            entry: digest()?,
            sender: digest()?,
        })
    }
}

/// Access result for one origin and product token.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Initial origin, and the product token that the file was fetched for.
    pub key: CacheKey,
    /// URL that was requested last, and so the source of the answer if there was one.
    pub url: String,
    /// URLs whose redirects led to `url`, in order, the initial one first.
    pub hops: Vec<String>,
    /// Status that ended the fetch, if there was an answer.
    pub status: Option<u16>,
    /// Time of the answer.
    pub fetched_at: Timestamp,
    /// Time at which the snapshot expires.
    pub expires_at: Timestamp,
    /// Meaning of the answer.
    pub result: AccessResult,
    /// Cause of the failed refetch, if `result` is an earlier answer (RFC 9309, section
    /// 2.4). `fetched_at` is the time of that earlier answer.
    pub stale: Option<Cause>,
    /// Answer for the TDM file of the origin, if it was requested.
    pub tdm: Option<Arc<TdmSnapshot>>,
}

/// Result of fetching a robots.txt (RFC 9309, section 2.3.1).
#[derive(Debug, Clone)]
pub enum AccessResult {
    /// There is a file, and its rules bind (section 2.3.1.1).
    Successful(Arc<RobotsFile>),
    /// A status from 400 to 499 except 429: no rules (section 2.3.1.3).
    Unavailable,
    /// Anything else: complete disallow (section 2.3.1.4).
    Unreachable(Cause),
}

/// Rank of answers by how much they refuse, the most permissive first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strictness {
    /// There is no file: everything is allowed.
    Unavailable,
    /// The rules of a file decide.
    Rules,
    /// The status of the file is 401 or 403, which may refuse everything
    /// (`robots.status.unauthorized`).
    Restricted,
    /// Everything is refused.
    Unreachable,
}

impl Snapshot {
    /// Creates a snapshot that refuses everything and has already expired at `now`.
    /// It needs no request and serves one decision.
    pub fn unreachable(key: CacheKey, cause: Cause, now: Timestamp) -> Self {
        Self {
            url: key.origin.robots_txt().to_string(),
            key,
            hops: Vec::new(),
            status: None,
            fetched_at: now,
            // Expires at once, so that no later decision uses it.
            expires_at: now,
            result: AccessResult::Unreachable(cause),
            stale: None,
            tdm: None,
        }
    }

    /// Returns `snapshot` with an answer for the TDM file of its origin.
    #[must_use]
    pub fn with_tdm(snapshot: &Self, tdm: Arc<TdmSnapshot>) -> Arc<Self> {
        Arc::new(Self {
            tdm: Some(tdm),
            ..snapshot.clone()
        })
    }

    /// Parses the file of `snapshot` in `dialect`, unless it already is.
    #[must_use]
    pub fn read_by(snapshot: Arc<Self>, dialect: Dialect) -> Arc<Self> {
        let Some(file) = snapshot.file() else {
            return snapshot;
        };
        // Worth avoiding: parsing a large file takes up to 8 ms
        // (docs/decisions/006-bounded-judgement.md).
        if file.robots.dialect() == dialect {
            return snapshot;
        }
        Arc::new(Self {
            result: AccessResult::Successful(Arc::new(file.read_again(dialect))),
            ..(*snapshot).clone()
        })
    }

    /// Returns the file, if there is one.
    pub fn file(&self) -> Option<&RobotsFile> {
        match &self.result {
            AccessResult::Successful(file) => Some(file),
            AccessResult::Unavailable | AccessResult::Unreachable(_) => None,
        }
    }

    /// Returns the cause of unreachability: of this answer, or of the failed refetch if
    /// the answer is an earlier one.
    pub fn cause(&self) -> Option<Cause> {
        match &self.result {
            AccessResult::Unreachable(cause) => Some(*cause),
            AccessResult::Successful(_) | AccessResult::Unavailable => self.stale,
        }
    }

    /// Reports whether two answers are equal: by the bytes of the file, or by the status
    /// if neither has a file.
    pub fn is_same_answer(&self, other: &Self) -> bool {
        match (self.file(), other.file()) {
            (Some(own), Some(other)) => own.digest == other.digest,
            (None, None) => self.status == other.status,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Reports whether the latest fetch got an answer from the origin.
    pub fn is_answer(&self) -> bool {
        self.stale.is_none() && !matches!(self.result, AccessResult::Unreachable(_))
    }

    /// Reports whether the answer applies only to the sender that it was fetched for. That
    /// is so for every status except 2xx: an origin may refuse one sender and serve another.
    pub fn is_for_one_sender(&self) -> bool {
        let is_other = |status| !(200..300).contains(&status);
        self.file().is_none() && self.status.is_some_and(is_other)
    }

    /// Returns how much the answer refuses.
    pub fn strictness(&self) -> Strictness {
        match (&self.result, self.status) {
            (AccessResult::Unreachable(_), _) => Strictness::Unreachable,
            (AccessResult::Unavailable, Some(401 | 403)) => Strictness::Restricted,
            (AccessResult::Unavailable, _) => Strictness::Unavailable,
            (AccessResult::Successful(_), _) => Strictness::Rules,
        }
    }

    /// Returns why no connection was made; `None` if one was made.
    pub fn no_connection(&self) -> Option<NoConnection> {
        match &self.result {
            AccessResult::Unreachable(Cause::NoConnection(cause)) => Some(*cause),
            AccessResult::Unreachable(_)
            | AccessResult::Successful(_)
            | AccessResult::Unavailable => None,
        }
    }
}

/// Change of the answer for one origin and product token.
#[derive(Debug, Clone)]
pub struct AnswerChange {
    /// The previous answer.
    pub before: Arc<Snapshot>,
    /// The new answer, which has the same key.
    pub after: Arc<Snapshot>,
}

/// robots.txt file: the bytes, their digest and the parsed rules.
#[derive(Debug)]
pub struct RobotsFile {
    /// Parsed rules.
    pub robots: RobotsTxt,
    /// Bytes, cut after the last complete line within the limit.
    pub body: Bytes,
    /// SHA-256 of `body`.
    pub digest: Digest,
    /// Whether `body` is everything that the origin sent.
    pub whole: bool,
    /// Media type of the response.
    pub content_type: Option<String>,
    /// Validators for conditional requests to the origin.
    pub validators: Validators,
}

/// Validators of a response (RFC 9110, section 8.8).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validators {
    /// `ETag`, as sent.
    pub etag: Option<HeaderValue>,
    /// `Last-Modified`, as sent.
    pub last_modified: Option<HeaderValue>,
}

/// Body of a robots.txt, as far as it was read.
#[derive(Debug, Clone)]
pub struct RobotsBody {
    /// The bytes, cut after the last complete line within the limit.
    pub bytes: Bytes,
    /// Whether `bytes` is everything that the origin sent.
    pub whole: bool,
}

impl RobotsBody {
    /// Keeps the complete lines within the first `max` bytes (RFC 9309, section
    /// 2.5).
    pub fn within(mut bytes: Bytes, max: usize) -> Self {
        // Half a line could have another meaning than the whole: `Disallow: /a` is
        // not `Disallow: /a/b`.
        let kept = whole_lines(&bytes, max).len();
        let whole = kept == bytes.len();
        bytes.truncate(kept);
        Self { bytes, whole }
    }

    /// Keeps the complete lines within the first `max` bytes of a file whose end may be
    /// missing (RFC 9112, section 9.8).
    ///
    /// A last line without a line end counts unless it could allow something. Half an
    /// Allow line allows more than the whole line, and half an agent line could bind a
    /// crawler to a group without rules.
    pub fn unclosed(bytes: Bytes, max: usize) -> Self {
        let body = Self::within(bytes, max);
        let Some((last, before)) = body.bytes.split_last() else {
            return body;
        };
        let is_ended = matches!(last, b'\r' | b'\n');
        if !body.whole || is_ended || !last_record_may_allow(&body.bytes) {
            return body;
        }
        let most = before.len();
        Self::within(body.bytes, most)
    }
}

fn last_record_may_allow(file: &Bytes) -> bool {
    let robots = RobotsTxt::in_dialect(file.clone(), Dialect::default());
    let last = robots.records().last().map(|record| record.kind);
    matches!(
        last,
        Some(RecordKind::UserAgent | RecordKind::Rule(RuleKind::Allow))
    )
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
    /// Parses and hashes `body`, a complete file, by RFC 9309.
    pub fn new(body: Bytes) -> Self {
        Self::read(body, Dialect::default())
    }

    /// Parses `body` in `dialect` and hashes it. The origin of the file is unknown.
    pub fn read(body: impl Into<RobotsBody>, dialect: Dialect) -> Self {
        Self::from_source(body, dialect, FileSource::default())
    }

    /// Parses `body`, a file from `source`, in `dialect` and hashes it.
    pub fn from_source(body: impl Into<RobotsBody>, dialect: Dialect, source: FileSource) -> Self {
        let RobotsBody { bytes, whole } = body.into();
        let mut robots = RobotsTxt::from_source(bytes.clone(), dialect, source);
        if !whole {
            // Lets explanations say that the rules after the cut are unknown.
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

    /// Parses the same bytes in another dialect.
    #[must_use]
    pub fn read_again(&self, dialect: Dialect) -> Self {
        let body = RobotsBody {
            bytes: self.body.clone(),
            whole: self.whole,
        };
        Self {
            content_type: self.content_type.clone(),
            validators: self.validators.clone(),
            ..Self::from_source(body, dialect, self.robots.source().clone())
        }
    }
}

/// Snapshot as stored, which may have expired.
#[derive(Debug, Clone)]
pub struct StoredSnapshot {
    /// The snapshot. Its times say whether it is still in force.
    pub snapshot: Arc<Snapshot>,
    /// Consecutive failures of the origin.
    pub failures: u32,
    /// Address given by `upstream.resolve` or a parent proxy, if the origin was not asked
    /// at its own address, and the TLS exception of the origin, if it has one. An answer
    /// obtained under one such setting does not apply under another.
    pub led_to: Option<String>,
}

impl StoredSnapshot {
    /// Reports whether the snapshot is worth keeping across a restart: it comes from an
    /// answer or a failure of the origin. A failure on our side, or a prohibited address,
    /// costs nothing to detect again, and the restart may have fixed it.
    pub fn is_of_the_origin(&self) -> bool {
        match &self.snapshot.result {
            AccessResult::Unreachable(
                Cause::Internal
                | Cause::Busy
                | Cause::NoConnection(
                    NoConnection::Prohibited
                    | NoConnection::NoSocket
                    | NoConnection::Parent
                    | NoConnection::ParentCredentials,
                ),
            ) => false,
            AccessResult::Unreachable(_)
            | AccessResult::Successful(_)
            | AccessResult::Unavailable => true,
        }
    }

    /// Parses the file of the snapshot in `dialect`, unless it already is.
    #[must_use]
    pub fn read_by(self, dialect: Dialect) -> Self {
        Self {
            snapshot: Snapshot::read_by(self.snapshot, dialect),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use politesse_robots::origin::Target;

    // Ours: entries that an earlier version stored must still be found.
    #[test]
    fn a_scope_identifies_one_key_and_is_the_bare_token_without_entry_and_sender() {
        let origin = "http://a.test/".parse::<Target>().unwrap().origin;
        let token = Some(ProductToken::new("Foo web spider").unwrap());
        let (some, other) = (Some(Digest::of(b"1")), Some(Digest::of(b"2")));
        let mut scopes = Vec::new();
        for token in [None, token] {
            for (entry, sender) in [(None, None), (some, None), (None, some), (some, other)] {
                let key = CacheKey {
                    entry,
                    sender,
                    ..CacheKey::new(origin.clone(), token.clone())
                };
                let scope = key.scope();
                assert_eq!(CacheKey::of_scope(origin.clone(), &scope), Some(key));
                scopes.push(scope);
            }
        }
        assert_eq!((&*scopes[0], &*scopes[4]), ("", "Foo web spider"));
        scopes.sort_unstable();
        scopes.dedup();
        assert_eq!(scopes.len(), 8);
        assert_eq!(CacheKey::of_scope(origin, "Foo\nx\n"), None);
    }
}
