//! Access to guarded pages: the token for programs, the session for browsers, and the
//! response fields that keep other sites away from the pages.
//!
//! Requests carry credentials as in RFC 9110 (section 11), RFC 7617 and RFC 6750.
//! Browsers state the origin of a request as in Fetch Metadata and RFC 6454. Does not
//! know which pages exist, or which of them are open.

use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::arrival::AdminArrival;
use super::sessions::{Session, SessionOptions, Sessions};
use super::token::AdminToken;
use politesse_base::command_line::command;
use politesse_base::inert::inert;
use politesse_base::metrics::{Metrics, ReasonLabel};
use politesse_decision::digest::Digest;

/// Ways to send the token (RFC 9110, section 11.6.1).
const CHALLENGES: [&str; 2] = [
    // Basic comes first, because it makes browsers ask for a password. Programs send
    // Bearer.
    "Basic realm=\"politesse\", charset=\"UTF-8\"",
    "Bearer realm=\"politesse\"",
];

/// Fields of every page. They keep caches from storing it and other sites from
/// embedding it or learning of it, and let it load and run only our own files.
const PRIVATE: [(HeaderName, &str); 7] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
         connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    // With `no-referrer` a browser would send even its own forms with `Origin: null`.
    (header::REFERRER_POLICY, "same-origin"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-embedder-policy"),
        "require-corp",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Longest form, in bytes: a robots.txt of 500 KiB fits (RFC 9309, section 2.5).
const FORM_BYTES_MAX: usize = 2 << 20;

/// Form field with the token of a session's forms.
pub(super) const FORM_TOKEN: &str = "form_token";

/// The token in force, and the sessions that were begun with it. Wrong tokens are
/// counted in `metrics` and not limited: 256 bits cannot be guessed.
#[derive(Debug)]
pub struct Access {
    /// Digest of the token in force.
    token: ArcSwap<Digest>,
    /// Sessions of browsers.
    pub(super) sessions: Sessions,
    metrics: Arc<Metrics>,
}

impl Access {
    /// Admits requests with `token` or with the id of a session.
    #[must_use]
    pub fn new(token: &AdminToken, sessions: SessionOptions, metrics: Arc<Metrics>) -> Self {
        Self {
            token: ArcSwap::from_pointee(digest(token.as_str())),
            sessions: Sessions::new(sessions, Arc::clone(&metrics)),
            metrics,
        }
    }

    /// Replaces the token. From then on the previous token is refused, and the sessions
    /// begun with it have ended.
    pub fn set_token(&self, token: &AdminToken) {
        let new = digest(token.as_str());
        let previous = self.token.swap(Arc::new(new));
        if *previous != new {
            self.sessions.end_all();
        }
    }

    /// Makes the path of a link that signs a browser in without the token, once and
    /// within ten minutes. Returns `None` if the system provides no random numbers.
    #[must_use]
    pub fn sign_in_path(&self, base_path: &str) -> Option<String> {
        let code = self.sessions.make_link()?;
        Some(format!("{base_path}/login?once={code}"))
    }

    /// Reports whether `code` belongs to a usable link, and uses the link up. An
    /// invalid code is counted as a refusal.
    pub(super) fn spend_link(&self, code: &str) -> bool {
        let is_good = self.sessions.spend_link(code);
        if !is_good {
            self.count_refusal("unauthorized");
        }
        is_good
    }

    /// Reports whether `sent` is the token. A wrong token is counted as a refusal.
    pub(super) fn is_token(&self, sent: &str) -> bool {
        // Digests are compared, so that the time taken reveals neither the position of
        // the first difference nor the length of the token.
        let (sent, right) = (digest(sent), self.token.load());
        let is_right = verify_slices_are_equal(sent.as_bytes(), right.as_bytes()).is_ok();
        if !is_right {
            self.count_refusal("unauthorized");
        }
        is_right
    }

    fn count_refusal(&self, reason: &'static str) {
        let label = ReasonLabel { reason };
        self.metrics.admin_refused.get_or_create(&label).inc();
    }

    /// Finds the token or the session of a request; `None` if there is neither.
    fn pass(&self, fields: &HeaderMap) -> Option<Pass> {
        // A field outweighs a cookie, because programs send it on purpose.
        if fields.contains_key(header::AUTHORIZATION) {
            let is_right = match sent_token(fields) {
                Some(sent) => self.is_token(&sent),
                None => {
                    self.count_refusal("unauthorized");
                    false
                }
            };
            return is_right.then_some(Pass::Token);
        }
        let session = self.sessions.find(fields);
        if session.is_none() {
            self.count_refusal("unauthorized");
        }
        session.map(Pass::Session)
    }
}

/// Proof that admitted a request. Pages find it as an extension of the request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pass {
    /// The token itself.
    Token,
    /// A session.
    Session(Session),
}

fn digest(token: &str) -> Digest {
    Digest::of(token.as_bytes())
}

/// Reason why a request is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AccessRefusal {
    /// The request has neither the token nor a session.
    NoPass,
    /// The request changes something, and another site may have made the browser send
    /// it.
    CrossSite {
        /// Origin of this listener, as used in the request.
        own: String,
        /// Origin named by the request.
        sent: Option<String>,
    },
    /// The form is longer than any form of the dashboard.
    FormTooLong,
}

impl Access {
    /// Admits a request and adds its [`Pass`].
    ///
    /// # Errors
    ///
    /// [`AccessRefusal`].
    pub(super) async fn admit(&self, mut request: Request) -> Result<Request, AccessRefusal> {
        hide_token(request.headers_mut());
        let pass = self.pass(request.headers()).ok_or(AccessRefusal::NoPass)?;
        let checked = check_origin_of_change(&pass, request).await;
        if let Err(AccessRefusal::CrossSite { .. }) = checked {
            self.count_refusal("cross_site");
        }
        let mut request = checked?;
        request.extensions_mut().insert(pass);
        Ok(request)
    }
}

impl IntoResponse for AccessRefusal {
    fn into_response(self) -> Response {
        match self {
            Self::NoPass => unauthorized(),
            Self::CrossSite { own, sent } => {
                let named = sent.map_or_else(String::new, |sent| format!(" (Origin: {sent})"));
                let text = format!(
                    "this was sent by a page of another site{named}, or by an outdated page of \
                     {own}: open the page again"
                );
                (StatusCode::FORBIDDEN, format!("{}\n", inert(&text))).into_response()
            }
            Self::FormTooLong => {
                let text = format!("a form has {FORM_BYTES_MAX} bytes at most\n");
                (StatusCode::PAYLOAD_TOO_LARGE, text).into_response()
            }
        }
    }
}

/// Middleware for programs: passes a request on if it has a [`Pass`], and otherwise
/// answers 401.
pub(super) async fn require_token(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Response {
    match access.admit(request).await {
        Ok(request) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Middleware: makes responses private.
pub(super) async fn make_private(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let fields = response.headers_mut();
    for (name, value) in PRIVATE {
        // A response that never changes sets its own cache control.
        fields
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Middleware for requests that a browser may send without a session: refuses changes
/// that another site requests.
pub(super) async fn require_own_origin(request: Request, next: Next) -> Response {
    // A link from any site may lead to the sign-in page.
    match is_own_origin(&request) {
        Some(false) if !is_safe(&request) => cross_site(&request).into_response(),
        _ => next.run(request).await,
    }
}

/// Makes the refusal of a request that another site may have caused.
fn cross_site(request: &Request) -> AccessRefusal {
    let arrival = request.extensions().get::<AdminArrival>();
    let sent = request.headers().get(header::ORIGIN);
    AccessRefusal::CrossSite {
        own: arrival.map(AdminArrival::origin).unwrap_or_default(),
        sent: sent.map(|sent| String::from_utf8_lossy(sent.as_bytes()).into_owned()),
    }
}

/// Reports whether a request changes nothing (RFC 9110, section 9.2.1).
fn is_safe(request: &Request) -> bool {
    matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    )
}

/// Refuses a request that changes something if another site may have made a browser
/// send it. A request with a session must also carry the token of the session's forms.
async fn check_origin_of_change(pass: &Pass, request: Request) -> Result<Request, AccessRefusal> {
    if is_safe(&request) {
        return Ok(request);
    }
    match (pass, is_own_origin(&request)) {
        // Browsers also store a password for Basic and send it from any site. A browser
        // that has cookies states where the request comes from.
        (_, Some(false)) | (Pass::Session(_), None) => Err(cross_site(&request)),
        (Pass::Token, _) => Ok(request),
        (Pass::Session(session), Some(true)) => with_form_token(session, request).await,
    }
}

/// Reports whether a request comes from a page of this listener; `None` if the request
/// does not say.
fn is_own_origin(request: &Request) -> Option<bool> {
    let fields = request.headers();
    let is_own_site = fields
        .get("sec-fetch-site")
        .map(|site| site == "same-origin" || site == "none");
    let own = request
        .extensions()
        .get::<AdminArrival>()
        .map(AdminArrival::origin);
    let is_own_origin = fields.get(header::ORIGIN).map(|origin| {
        let own = own.as_deref().unwrap_or_default();
        origin.as_bytes().eq_ignore_ascii_case(own.as_bytes())
    });
    match (is_own_site, is_own_origin) {
        (Some(site), Some(origin)) => Some(site && origin),
        (one, other) => one.or(other),
    }
}

/// Passes on a request whose form carries the token of `session`.
async fn with_form_token(
    session: &Session,
    mut request: Request,
) -> Result<Request, AccessRefusal> {
    let arriving = std::mem::take(request.body_mut());
    let body = to_bytes(arriving, FORM_BYTES_MAX)
        .await
        .map_err(|_| AccessRefusal::FormTooLong)?;
    let mut fields = form_urlencoded::parse(&body);
    let token = fields.find(|(name, _)| name == FORM_TOKEN);
    let sent = token.map(|(_, sent)| sent).unwrap_or_default();
    let right = session.form_token();
    if verify_slices_are_equal(sent.as_bytes(), right.as_bytes()).is_err() {
        return Err(cross_site(&request));
    }
    *request.body_mut() = Body::from(body);
    Ok(request)
}

/// Keeps the token out of any debug output of a request.
fn hide_token(fields: &mut HeaderMap) {
    if let header::Entry::Occupied(mut field) = fields.entry(header::AUTHORIZATION) {
        field.iter_mut().for_each(|value| value.set_sensitive(true));
    }
}

/// Reads the token that a request carries, as a bearer token or as the password of the
/// user `admin`.
fn sent_token(fields: &HeaderMap) -> Option<String> {
    let mut values = fields.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    // RFC 9110, section 11.6.2 allows one value. Of two, it is unclear which is meant.
    if values.next().is_some() {
        return None;
    }
    let (scheme, credentials) = value.split_once(' ')?;
    let credentials = credentials.trim_matches(' ');
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(credentials.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(credentials).ok()?).ok()?;
    // Browsers send a user with each password, so a user must be defined.
    pair.strip_prefix("admin:").map(str::to_owned)
}

fn unauthorized() -> Response {
    let text = format!(
        "the token is wanted: `{}` prints it\n",
        command("admin token")
    );
    let mut response = (StatusCode::UNAUTHORIZED, text).into_response();
    for challenge in CHALLENGES {
        let value = HeaderValue::from_static(challenge);
        let fields = response.headers_mut();
        fields.append(header::WWW_AUTHENTICATE, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(values: &[&str]) -> Option<String> {
        let mut fields = HeaderMap::new();
        for value in values {
            fields.append(header::AUTHORIZATION, value.parse().unwrap());
        }
        sent_token(&fields)
    }

    // Ours: any later debug output of a request must not show the token.
    #[test]
    fn the_token_of_a_request_is_not_shown() {
        let mut fields = HeaderMap::new();
        for value in ["Bearer secret", "Basic c2VjcmV0"] {
            fields.append(header::AUTHORIZATION, value.parse().unwrap());
        }
        hide_token(&mut fields);
        let text = format!("{fields:?}");
        assert!(
            !text.contains("secret") && !text.contains("c2VjcmV0"),
            "{text}"
        );
        assert!(text.contains("authorization"), "{text}");
    }

    // RFC 7617, section 2; RFC 6750, section 2.1; RFC 9110, section 11.1.
    #[test]
    fn a_token_is_accepted_by_basic_or_bearer() {
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        let of = |value: &str| sent(&[value]);
        assert_eq!(of("Bearer a:b"), Some("a:b".to_owned()));
        assert_eq!(of("bEARER  a"), Some("a".to_owned()));
        assert_eq!(of(&basic("admin:a:b é")), Some("a:b é".to_owned()));
        assert_eq!(
            of(&basic("admin:").replace("Basic", "basic")),
            Some(String::new())
        );
        for pair in ["admin", "root:a", "Admin:a", ":a", ""] {
            assert_eq!(of(&basic(pair)), None, "{pair}");
        }
        for value in ["Bearer", "Basic ???", "Digest a", "a", ""] {
            assert_eq!(of(value), None, "{value}");
        }
        assert_eq!(sent(&[]), None);
        assert_eq!(sent(&["Bearer a", "Bearer a"]), None);
    }
}
