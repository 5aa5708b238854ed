//! Sessions of browsers that signed in with the token or by a link, until they expire.
//!
//! RFC 6265 defines how a browser stores and sends the id. Sessions are kept only in
//! memory, so a restart ends them all. Does not know which pages require one.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use tokio::time::Instant;

use politesse_base::clock;
use politesse_base::metrics::Metrics;
use politesse_decision::digest::Digest;

/// Cookie with the id of a session.
const SESSION_COOKIE: &str = "politesse_session";

/// Options of sessions.
#[derive(Debug, Clone, Copy)]
pub struct SessionOptions {
    /// Maximum number of sessions; a further one ends the oldest.
    pub most: NonZeroUsize,
    /// Time after which a session ends.
    pub lifetime: Duration,
}

/// Session of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    /// Digest of the session's id.
    key: Digest,
}

impl Session {
    /// Returns the session with this id, whether or not it is in force.
    fn of(id: &str) -> Self {
        Self {
            key: Digest::of(id.as_bytes()),
        }
    }

    /// Returns the token for forms of this session. A page of another site cannot read
    /// it, and so cannot send a valid form.
    pub(super) fn form_token(&self) -> String {
        // Derived from the digest of the id, so that reading a page reveals neither.
        Digest::of(format!("form {}", self.key).as_bytes()).to_string()
    }
}

/// Maximum number of outstanding links; a further one ends the oldest.
const LINKS_MAX: NonZeroUsize = NonZeroUsize::new(16).unwrap();

/// Time for which a link can be used: long enough to paste it into a browser.
const LINK_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// Random ids in force, each with its expiry.
#[derive(Debug)]
struct ExpiringIds {
    /// Maximum number and lifetime of the ids.
    options: SessionOptions,
    /// Expiry by the digest of the id. The time of a lookup reveals nothing about an
    /// id, because its digest cannot be chosen.
    ends: Mutex<HashMap<Digest, Instant>>,
}

impl ExpiringIds {
    fn new(options: SessionOptions) -> Self {
        Self {
            options,
            ends: Mutex::default(),
        }
    }

    /// Makes an id; `None` if the system provides no random numbers.
    fn make(&self) -> Option<String> {
        let mut random = [0; 32];
        aws_lc_rs::rand::fill(&mut random).ok()?;
        let id = Digest::from(random).to_string();
        let now = clock::instant();
        let mut ends = self.lock();
        ends.retain(|_, end| now < *end);
        while self.options.most.get() <= ends.len() {
            let oldest = ends.iter().min_by_key(|(_, end)| **end);
            let Some(key) = oldest.map(|(key, _)| *key) else {
                break;
            };
            ends.remove(&key);
        }
        ends.insert(Digest::of(id.as_bytes()), now + self.options.lifetime);
        Some(id)
    }

    /// Reports whether the id with this digest has neither ended nor expired.
    fn is_in_force(&self, key: Digest) -> bool {
        let end = self.lock().get(&key).copied();
        end.is_some_and(|end| clock::instant() < end)
    }

    /// Ends an id. Returns whether it was in force.
    fn end(&self, key: Digest) -> bool {
        let end = self.lock().remove(&key);
        end.is_some_and(|end| clock::instant() < end)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Instant>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All sessions, and the links that begin one without the token.
#[derive(Debug)]
pub(super) struct Sessions {
    /// Ids of sessions.
    ids: ExpiringIds,
    /// Codes of sign-in links.
    links: ExpiringIds,
    metrics: Arc<Metrics>,
}

impl Sessions {
    pub(super) fn new(options: SessionOptions, metrics: Arc<Metrics>) -> Self {
        let links = SessionOptions {
            most: LINKS_MAX,
            lifetime: LINK_LIFETIME,
        };
        Self {
            ids: ExpiringIds::new(options),
            links: ExpiringIds::new(links),
            metrics,
        }
    }

    /// Begins a session. Returns its id, or `None` if the system provides no random
    /// numbers.
    pub(super) fn begin(&self) -> Option<String> {
        let id = self.ids.make();
        self.count();
        id
    }

    /// Makes the code of a link that signs a browser in, once and within ten minutes.
    /// Returns `None` if the system provides no random numbers.
    pub(super) fn make_link(&self) -> Option<String> {
        self.links.make()
    }

    /// Uses up the code of a link. Returns whether the link was valid.
    pub(super) fn spend_link(&self, code: &str) -> bool {
        self.links.end(Digest::of(code.as_bytes()))
    }

    /// Finds the session named by the cookies of a request.
    pub(super) fn find(&self, fields: &HeaderMap) -> Option<Session> {
        let session = Session::of(cookie(fields, SESSION_COOKIE)?);
        self.ids.is_in_force(session.key).then_some(session)
    }

    /// Ends a session.
    pub(super) fn end(&self, session: &Session) {
        self.ids.end(session.key);
        self.count();
    }

    /// Ends all sessions and links, because the token that began them is no longer
    /// valid.
    pub(super) fn end_all(&self) {
        self.ids.lock().clear();
        self.links.lock().clear();
        self.count();
    }

    /// Writes the cookie that names the session `id`, for the path `path`. Without an
    /// `id`, writes the cookie that deletes it.
    pub(super) fn cookie(&self, id: Option<&str>, path: &str) -> String {
        let age = id.map_or(0, |_| self.ids.options.lifetime.as_secs());
        let id = id.unwrap_or_default();
        format!("{SESSION_COOKIE}={id}; Path={path}; Max-Age={age}; HttpOnly; SameSite=Strict")
    }

    /// Updates the metric of open sessions.
    fn count(&self) {
        let open = i64::try_from(self.ids.lock().len()).unwrap_or(i64::MAX);
        self.metrics.admin_sessions.set(open);
    }
}

/// Finds the value of a cookie (RFC 6265, section 4.2.1). If the name occurs twice, the
/// first value counts, because its path is longer.
pub(super) fn cookie<'a>(fields: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = fields.get_all(header::COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs.filter(|(found, _)| *found == name);
    values.next().map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(most: usize) -> Sessions {
        let options = SessionOptions {
            most: NonZeroUsize::new(most).unwrap(),
            lifetime: Duration::from_secs(60),
        };
        Sessions::new(options, Arc::default())
    }

    fn with(cookies: &str) -> HeaderMap {
        let mut fields = HeaderMap::new();
        fields.insert(header::COOKIE, cookies.parse().unwrap());
        fields
    }

    fn named(id: &str) -> HeaderMap {
        with(&format!("a=b; politesse_session={id}"))
    }

    // Ours.
    #[tokio::test(start_paused = true)]
    async fn a_session_ends_on_expiry_on_sign_out_and_when_displaced() {
        let sessions = sessions(2);
        let (one, two) = (sessions.begin().unwrap(), sessions.begin().unwrap());
        assert_ne!(one, two);
        assert!(sessions.find(&named(&one)).is_some());
        assert!(sessions.find(&named(&one.to_uppercase())).is_none());
        assert!(sessions.find(&with("politesse_session=")).is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        let three = sessions.begin().unwrap();
        assert_eq!(sessions.ids.lock().len(), 2);
        let session = sessions.find(&named(&three)).unwrap();
        sessions.end(&session);
        assert!(sessions.find(&named(&three)).is_none());
        let four = sessions.begin().unwrap();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(sessions.find(&named(&four)).is_none());
        let five = sessions.begin().unwrap();
        sessions.end_all();
        assert!(sessions.find(&named(&five)).is_none());
        assert_eq!(sessions.metrics.admin_sessions.get(), 0);
    }

    // Ours: a link is for one browser, for a short time.
    #[tokio::test(start_paused = true)]
    async fn a_link_is_valid_once_and_for_ten_minutes() {
        let sessions = sessions(1);
        let (used, late) = (sessions.make_link().unwrap(), sessions.make_link().unwrap());
        assert!(!sessions.spend_link("") && !sessions.spend_link(&used.to_uppercase()));
        assert!(sessions.spend_link(&used));
        assert!(!sessions.spend_link(&used));
        tokio::time::advance(LINK_LIFETIME).await;
        assert!(!sessions.spend_link(&late));
        let ended = sessions.make_link().unwrap();
        sessions.end_all();
        assert!(!sessions.spend_link(&ended));
        let first = sessions.make_link().unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let others: Vec<_> = (0..LINKS_MAX.get()).map(|_| sessions.make_link()).collect();
        assert!(!sessions.spend_link(&first));
        assert!(
            others
                .iter()
                .flatten()
                .all(|code| sessions.spend_link(code))
        );
    }

    // Ours: neither the id nor its digest appears on a page.
    #[test]
    fn each_session_has_a_token_of_its_own_for_forms() {
        let (one, two) = (Session::of("a"), Session::of("b"));
        assert_ne!(one.form_token(), two.form_token());
        assert_ne!(one.form_token(), one.key.to_string());
    }
}
