//! Who may ask what names hosts.
//!
//! Basic with the name `admin`, or a bearer token (RFC 7617, RFC 6750), each
//! held against `admin.password_file`. Without one nobody may.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::Admin;
use super::password::Password;
use super::tries::Tries;
use crate::clock;
use crate::metrics::ReasonLabel;

/// Passwords hashed at a time: each takes tens of megabytes and of milliseconds.
const HASHINGS_MAX: usize = 1;

/// The ways to give a password (RFC 9110, section 11.6.1).
const CHALLENGES: [&str; 2] = [
    "Basic realm=\"politesse\", charset=\"UTF-8\"",
    "Bearer realm=\"politesse\"",
];

/// What goes with each answer: nobody keeps it, and no page makes anything of
/// it.
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

/// The password in force, and who has tried it.
#[derive(Debug)]
pub struct Access {
    password: ArcSwapOption<Password>,
    tries: Tries,
    hashings: Arc<Semaphore>,
}

/// Why somebody may not ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Denied {
    /// There is no password to give.
    Closed,
    /// None was given, or a wrong one.
    Unauthorized,
    /// Too many wrong ones were given; after so long there may be another.
    Tries(Duration),
}

impl Access {
    /// Lets in who knows `password`; nobody if there is none.
    #[must_use]
    pub fn new(password: Option<Password>) -> Self {
        Self {
            password: ArcSwapOption::new(password.map(Arc::new)),
            tries: Tries::default(),
            hashings: Arc::new(Semaphore::new(HASHINGS_MAX)),
        }
    }

    /// Puts another password in force.
    pub fn change(&self, password: Option<Password>) {
        self.password.store(password.map(Arc::new));
    }

    async fn judge(&self, fields: &HeaderMap, from: IpAddr) -> Result<(), Denied> {
        let password = self.password.load_full().ok_or(Denied::Closed)?;
        let given = given(fields).ok_or(Denied::Unauthorized)?;
        if password.is_token() {
            let is_right = password.knows(&given) == Some(true);
            return is_right.then_some(()).ok_or(Denied::Unauthorized);
        }
        self.tries
            .begin(from, clock::instant())
            .map_err(Denied::Tries)?;
        if !self.is_right(password, given).await {
            return Err(Denied::Unauthorized);
        }
        self.tries.succeeded(from);
        Ok(())
    }

    async fn is_right(&self, password: Arc<Password>, given: String) -> bool {
        if let Some(known) = password.knows(&given) {
            return known;
        }
        let Ok(place) = Arc::clone(&self.hashings).acquire_owned().await else {
            return false;
        };
        // The place goes with the hashing, which does not end with who asked.
        let hashing = spawn_blocking(move || {
            let is_right = password.hashes_to(&given);
            drop(place);
            is_right
        });
        hashing.await.unwrap_or(false)
    }
}

/// The password that a request brings. With two of them it is not known which
/// is meant.
fn given(fields: &HeaderMap) -> Option<String> {
    let mut values = fields.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, rest) = value.split_once(' ')?;
    let rest = rest.trim_matches(' ');
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
    pair.strip_prefix("admin:").map(str::to_owned)
}

/// Answers who may ask, and turns the others away.
pub(super) async fn guard(
    State(admin): State<Arc<Admin>>,
    Extension(from): Extension<IpAddr>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match admin.access.judge(request.headers(), from).await {
        Ok(()) => next.run(request).await,
        Err(denied) => {
            let reason = denied.reason();
            let refused = &admin.metrics.admin_refused;
            refused.get_or_create(&ReasonLabel { reason }).inc();
            denied.into_response()
        }
    };
    response.headers_mut().extend(PRIVATE);
    response
}

impl Denied {
    /// The word for it among the metrics.
    fn reason(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Unauthorized => "unauthorized",
            Self::Tries(_) => "tries",
        }
    }
}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        match self {
            Self::Closed => (
                StatusCode::FORBIDDEN,
                "this names hosts: set admin.password_file to a file with a password\n",
            )
                .into_response(),
            Self::Unauthorized => {
                let mut response =
                    (StatusCode::UNAUTHORIZED, "the password is wanted\n").into_response();
                for challenge in CHALLENGES {
                    let value = HeaderValue::from_static(challenge);
                    response
                        .headers_mut()
                        .append(header::WWW_AUTHENTICATE, value);
                }
                response
            }
            Self::Tries(wait) => {
                let seconds = wait.as_millis().div_ceil(1000).max(1).to_string();
                let told = "too many wrong passwords: try again later\n";
                let fields = [(header::RETRY_AFTER, seconds)];
                (StatusCode::TOO_MANY_REQUESTS, fields, told).into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brought(values: &[&str]) -> Option<String> {
        let mut fields = HeaderMap::new();
        for value in values {
            fields.append(header::AUTHORIZATION, value.parse().unwrap());
        }
        given(&fields)
    }

    // RFC 7617, section 2; RFC 6750, section 2.1; RFC 9110, section 11.1.
    #[test]
    fn a_password_comes_by_basic_or_bearer() {
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        let of = |value: &str| brought(&[value]);
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
        assert_eq!(brought(&[]), None);
        assert_eq!(brought(&["Bearer a", "Bearer a"]), None);
    }
}
