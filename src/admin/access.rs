//! Guards of the admin listener: the host it is asked for, and its token.
//!
//! RFC 9110 (section 11), RFC 7617 and RFC 6750 define how a request carries
//! credentials. Which pages there are, and which of them are open, is not known
//! here.

use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::token::AdminToken;
use crate::decision::digest::Digest;
use crate::metrics::{Metrics, ReasonLabel};
use politesse_robots::origin::{Host, Origin, Scheme};

/// The ways to send the token (RFC 9110, section 11.6.1).
const CHALLENGES: [&str; 2] = [
    // Basic comes first: browsers ask for a password by it. Programs send
    // Bearer.
    "Basic realm=\"politesse\", charset=\"UTF-8\"",
    "Bearer realm=\"politesse\"",
];

/// Fields of every guarded answer: no cache stores it, and no page embeds it or
/// makes a script of it.
const PRIVATE: [(HeaderName, HeaderValue); 4] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; base-uri 'none'; frame-ancestors 'none'"),
    ),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
];

/// The token in force. Wrong tokens are counted in `metrics` and not limited:
/// nobody guesses 256 bits.
#[derive(Debug)]
pub struct Access {
    token: ArcSwap<Digest>,
    metrics: Arc<Metrics>,
}

impl Access {
    /// Lets in whoever sends `token`.
    #[must_use]
    pub fn new(token: &AdminToken, metrics: Arc<Metrics>) -> Self {
        Self {
            token: ArcSwap::from_pointee(digest(token.as_str())),
            metrics,
        }
    }

    /// Replaces the token. The previous one is refused from then on.
    pub fn set_token(&self, token: &AdminToken) {
        self.token.store(Arc::new(digest(token.as_str())));
    }

    fn admits(&self, fields: &HeaderMap) -> bool {
        // Digests are compared, so that the time taken tells neither where the
        // two tokens differ nor that their lengths do.
        sent_token(fields).is_some_and(|sent| {
            let (sent, right) = (digest(&sent), self.token.load());
            verify_slices_are_equal(sent.as_bytes(), right.as_bytes()).is_ok()
        })
    }
}

fn digest(token: &str) -> Digest {
    Digest::of(token.as_bytes())
}

/// Middleware: passes a request on if it carries the token, and answers 401 if
/// not.
pub(super) async fn require_token(
    State(access): State<Arc<Access>>,
    mut request: Request,
    next: Next,
) -> Response {
    hide_token(request.headers_mut());
    let mut response = if access.admits(request.headers()) {
        next.run(request).await
    } else {
        let label = ReasonLabel {
            reason: "unauthorized",
        };
        access.metrics.admin_refused.get_or_create(&label).inc();
        unauthorized()
    };
    response.headers_mut().extend(PRIVATE);
    response
}

/// Keeps the token out of what is ever shown of a request.
fn hide_token(fields: &mut HeaderMap) {
    if let header::Entry::Occupied(mut field) = fields.entry(header::AUTHORIZATION) {
        field.iter_mut().for_each(|value| value.set_sensitive(true));
    }
}

/// Reads the token that a request carries: as a bearer token, or as the password
/// of the user `admin`.
fn sent_token(fields: &HeaderMap) -> Option<String> {
    let mut values = fields.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    // RFC 9110, section 11.6.2: there is one. Of two it is not known which is meant.
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
    // Browsers send a user with each password, so there has to be one.
    pair.strip_prefix("admin:").map(str::to_owned)
}

fn unauthorized() -> Response {
    let text = "the token is wanted: `politesse admin token` prints it\n";
    let mut response = (StatusCode::UNAUTHORIZED, text).into_response();
    for challenge in CHALLENGES {
        let value = HeaderValue::from_static(challenge);
        let fields = response.headers_mut();
        fields.append(header::WWW_AUTHENTICATE, value);
    }
    response
}

/// Reason why the host of a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostError {
    /// There is no host, there are two, or it is malformed (RFC 9112, section 3.2).
    Malformed,
    /// The host is a name other than `localhost`.
    Foreign,
}

/// Middleware: passes a request on if its host is an address or `localhost`.
///
/// A page elsewhere can make a browser send requests here under a name of its
/// own (DNS rebinding), with whatever credentials the browser has stored.
pub(super) async fn require_own_host(request: Request, next: Next) -> Response {
    match check_host(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check_host(target: &Uri, fields: &HeaderMap) -> Result<(), HostError> {
    let mut hosts = fields.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(HostError::Malformed);
    };
    let host = host.to_str().map_err(|_| HostError::Malformed)?;
    let authority = target.authority().map(|authority| authority.as_str());
    // A target in absolute form counts in place of `Host` (RFC 9112, section
    // 3.2.2), but not every proxy in front knows that: both must be right.
    for name in authority.into_iter().chain([host]) {
        let origin = Origin::new(Scheme::Http, name).map_err(|_| HostError::Malformed)?;
        let is_own = match origin.host() {
            Host::Address(_) => true,
            Host::Name(name) => **name == *"localhost",
        };
        if !is_own {
            return Err(HostError::Foreign);
        }
    }
    Ok(())
}

impl IntoResponse for HostError {
    fn into_response(self) -> Response {
        match self {
            Self::Malformed => (StatusCode::BAD_REQUEST, "one valid Host is wanted\n"),
            Self::Foreign => (
                StatusCode::MISDIRECTED_REQUEST,
                "ask by address, or as localhost\n",
            ),
        }
        .into_response()
    }
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

    // Ours: whatever prints a request later.
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
    fn a_token_comes_by_basic_or_bearer() {
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

    fn named(target: &str, hosts: &[&str]) -> Result<(), HostError> {
        let mut fields = HeaderMap::new();
        for host in hosts {
            fields.append(header::HOST, host.parse().unwrap());
        }
        check_host(&target.parse().unwrap(), &fields)
    }

    /// One test a row: what comes of these `Host` fields.
    macro_rules! hosts {
        ($($name:ident: $hosts:expr => $judged:expr;)*) => {$(
            #[test]
            fn $name() {
                for hosts in $hosts {
                    assert_eq!(named("/metrics", &hosts), $judged, "{hosts:?}");
                }
            }
        )*};
    }

    // Ours, against DNS rebinding; RFC 9110, section 7.2; RFC 9112, section 3.2.
    hosts! {
        addresses_are_ours: [["127.0.0.1:3129"], ["10.0.0.1"], ["[::1]:3129"], ["[::1]"], ["[::ffff:10.0.0.1]:1"]] => Ok(());
        localhost_is_ours: [["localhost"], ["localhost:3129"], ["LOCALHOST:3129"], ["localhost."]] => Ok(());
        names_are_not_ours: [["evil.test"], ["evil.test:3129"], ["localhost.evil.test"], ["1.evil.test"]] => Err(HostError::Foreign);
        what_only_begins_like_an_address_is_none: [["[evil.test"], ["[evil.test]"], ["[::1"], ["[::1]evil.test"], ["[::1]:80.evil.test"], ["[]"]] => Err(HostError::Malformed);
        what_resolvers_disagree_on_is_no_address: [["127.1"], ["0x7f.1"], ["2130706433"], ["127.0.0.01"]] => Err(HostError::Malformed);
        what_is_no_host_is_malformed: [[""], [":80"], ["::1"], ["localhost:x"], ["localhost:0"], ["a@localhost"], ["localhost, localhost"], ["localhost/"]] => Err(HostError::Malformed);
        two_hosts_are_malformed: [["localhost", "localhost"], ["localhost", "evil.test"]] => Err(HostError::Malformed);
        a_host_is_wanted: [[""; 0]] => Err(HostError::Malformed);
    }

    // RFC 9112, section 3.2.2.
    #[test]
    fn an_absolute_target_counts_as_well() {
        let of = |target: &str| named(target, &["localhost"]);
        assert_eq!(of("http://127.0.0.1:3129/metrics"), Ok(()));
        assert_eq!(of("http://evil.test/metrics"), Err(HostError::Foreign));
        assert_eq!(
            of("http://admin:x@localhost/metrics"),
            Err(HostError::Malformed)
        );
        assert_eq!(
            named("http://localhost/metrics", &["evil.test"]),
            Err(HostError::Foreign)
        );
    }
}
