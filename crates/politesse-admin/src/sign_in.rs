//! Signing in and out, and the choice of theme and zone: the requests that a browser
//! may send without a session.
//!
//! Does not know how sessions are kept.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};
use politesse_robots::origin::Scheme;
use serde_json::json;

use super::access::{Access, AccessRefusal, Pass};
use super::api;
use super::arrival::AdminArrival;
use super::layout::{DashboardPage, layout};
use super::visit::{ShownZone, THEME_COOKIE, Theme, Visit, ZONE_COOKIE};
use politesse_base::command_line::command;

/// Maximum bytes of a form: a token and a path.
const FORM_BYTES_MAX: usize = 16 << 10;

/// Seconds for which a browser keeps theme and zone: a year.
const CHOICE_AGE: u32 = 31_536_000;

/// State of these pages.
#[derive(Debug, Clone)]
pub(super) struct SignInState {
    pub(super) access: Arc<Access>,
    /// Path below which browsers see the pages; empty for `/`.
    pub(super) base_path: Arc<str>,
}

/// Middleware for pages: passes a request on if it has a [`Pass`], and otherwise
/// redirects a browser to the sign-in page.
pub(super) async fn require_sign_in(
    State(state): State<SignInState>,
    request: Request,
    next: Next,
) -> Response {
    // A program gets the error for a wrong token instead.
    let may_sign_in = !request.headers().contains_key(header::AUTHORIZATION);
    let is_linked = is_linked(&request);
    let target = match *request.method() {
        Method::GET => request.uri().path_and_query(),
        // A form cannot be repeated after its session has ended.
        _ => None,
    };
    let here = target.map_or_else(|| "/".to_owned(), ToString::to_string);
    match state.access.admit(request).await {
        Ok(request) => next.run(request).await,
        Err(AccessRefusal::NoPass) if is_linked => {
            go_on(&format!("{}{}", state.base_path, own_path(Some(&here))))
        }
        Err(AccessRefusal::NoPass) if may_sign_in => {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("to", &here)
                .finish();
            see_other(&format!("{}/login?{query}", state.base_path), [])
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Reports whether a browser follows a link from another site. It then does not send
/// the session cookie (`SameSite=Strict`, RFC 6265bis).
fn is_linked(request: &Request) -> bool {
    let field = |name| request.headers().get(name);
    let is_foreign =
        field("sec-fetch-site").is_some_and(|site| site == "cross-site" || site == "same-site");
    is_foreign
        && *request.method() == Method::GET
        && field("sec-fetch-mode").is_some_and(|mode| mode == "navigate")
        && field("sec-fetch-dest").is_some_and(|place| place == "document")
}

/// Sends a browser to one of our pages from one of our pages, so that it sends its
/// cookie.
fn go_on(to: &str) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "politesse" }
                meta http-equiv="refresh" content=(format!("0; url={to}"));
            }
            body { p { a href=(to) { "Continue to the page" } } }
        }
    };
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], page.into_string()).into_response()
}

/// Shows the sign-in page. Showing it does not use up a link, so that a program that
/// previews links does not invalidate them before a person follows them.
pub(super) async fn show(Extension(visit): Extension<Visit>, uri: Uri) -> Response {
    let query = uri.query().unwrap_or_default();
    let to = own_path(api::query_value(query, "to").as_deref());
    match api::query_value(query, "once") {
        Some(code) => linked_page(&visit, &code, &to),
        None => page(&visit, &to, None),
    }
}

/// Makes a sign-in link, for `politesse dashboard`.
pub(super) async fn make_link(
    State(SignInState { access, base_path }): State<SignInState>,
) -> Response {
    match access.sign_in_path(&base_path) {
        Some(path) => api::json(&json!({ "path": path })),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Begins a session with the token of a form or the code of a link.
pub(super) async fn sign_in(
    State(SignInState { access, .. }): State<SignInState>,
    Extension(visit): Extension<Visit>,
    request: Request,
) -> Response {
    let is_secure = is_secure(&request);
    let form = form(request.into_body()).await;
    let to = own_path(api::query_value(&form, "to").as_deref());
    let refusal = match api::query_value(&form, "once") {
        Some(code) if access.spend_link(&code) => None,
        Some(_) => Some(format!(
            "This link was used before, or is older than ten minutes. `{}` prints another.",
            command("dashboard")
        )),
        None => {
            let token = api::query_value(&form, "token").unwrap_or_default();
            // A token copied from a terminal often has trailing whitespace.
            (!access.is_token(token.trim())).then(|| {
                format!(
                    "This token is wrong. `{}` prints the right one.",
                    command("admin token")
                )
            })
        }
    };
    if let Some(text) = refusal {
        return (StatusCode::FORBIDDEN, page(&visit, &to, Some(&text))).into_response();
    }
    // A new id each time: an id that an attacker has planted in the browser stays
    // worthless (session fixation).
    let Some(id) = access.sessions.begin() else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let cookie = access.sessions.cookie(Some(&id), &visit.link("/"));
    see_other(&visit.link(&to), [secured(cookie, is_secure)])
}

/// Ends the session.
pub(super) async fn sign_out(
    State(SignInState { access, .. }): State<SignInState>,
    Extension(visit): Extension<Visit>,
    Extension(pass): Extension<Pass>,
    request: Request,
) -> Response {
    if let Pass::Session(session) = pass {
        access.sessions.end(&session);
    }
    let cookie = access.sessions.cookie(None, &visit.link("/"));
    // Without `Secure` it would not replace a cookie that has it (RFC 6265bis).
    let secured_cookie = secured(cookie, is_secure(&request));
    see_other(&visit.link("/login"), [secured_cookie])
}

/// Stores the chosen theme.
pub(super) async fn choose_theme(Extension(visit): Extension<Visit>, request: Request) -> Response {
    let choice = |form: &str| {
        let theme = Theme::named(&api::query_value(form, "theme").unwrap_or_default()).as_str();
        format!("{THEME_COOKIE}={theme}")
    };
    keep_choice(&visit, request, choice).await
}

/// Stores the chosen time zone.
pub(super) async fn choose_zone(Extension(visit): Extension<Visit>, request: Request) -> Response {
    let choice = |form: &str| {
        let zone = ShownZone::named(&api::query_value(form, "zone").unwrap_or_default()).as_str();
        format!("{ZONE_COOKIE}={zone}")
    };
    keep_choice(&visit, request, choice).await
}

/// Sets the cookie that `choice` makes from the form, and redirects back to the page.
async fn keep_choice(
    visit: &Visit,
    request: Request,
    choice: impl FnOnce(&str) -> String,
) -> Response {
    let is_secure = is_secure(&request);
    let form = form(request.into_body()).await;
    let to = own_path(api::query_value(&form, "to").as_deref());
    let (pair, path) = (choice(&form), visit.link("/"));
    let cookie = format!("{pair}; Path={path}; Max-Age={CHOICE_AGE}; HttpOnly; SameSite=Strict");
    see_other(&visit.link(&to), [secured(cookie, is_secure)])
}

fn page(visit: &Visit, to: &str, error: Option<&str>) -> Response {
    sign_in_page(visit, sign_in_form(visit, to, error))
}

/// Shows a button that uses up the code of a link.
fn linked_page(visit: &Visit, code: &str, to: &str) -> Response {
    let body = html! {
        form method="post" action=(visit.link("/login")) class="sign-in" {
            input type="hidden" name="once" value=(code);
            input type="hidden" name="to" value=(to);
            p { "This link signs you in, once." }
            button class="primary" { "Sign in" }
        }
    };
    sign_in_page(visit, body)
}

fn sign_in_page(visit: &Visit, body: Markup) -> Response {
    let content = DashboardPage {
        title: "Sign in".to_owned(),
        section: None,
        body,
    };
    layout(visit, &content)
}

fn sign_in_form(visit: &Visit, to: &str, error: Option<&str>) -> Markup {
    html! {
        @if let Some(error) = error {
            p class="error" role="alert" { (error) }
        }
        form method="post" action=(visit.link("/login")) class="sign-in" {
            input type="hidden" name="to" value=(to);
            // Password managers store a token under a user name.
            input type="text" name="user" value="admin" autocomplete="username" hidden;
            label for="token" { "Token of the admin listener" }
            input id="token" type="password" name="token" required
                autocomplete="current-password" aria-describedby="where";
            p id="where" class="small" {
                code { (command("dashboard")) } " prints a link that needs no token, and "
                code { (command("admin token")) } " the token, on the machine of the proxy."
            }
            button class="primary" { "Sign in" }
        }
    }
}

/// Returns the path to continue at: one of ours, or `/`.
fn own_path(wanted: Option<&str>) -> String {
    // Browsers take `//` and `/\` for the beginning of a host.
    let is_own = |path: &&str| {
        path.starts_with('/')
            && !path.starts_with("//")
            && path
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
    };
    wanted.filter(is_own).unwrap_or("/").to_owned()
}

async fn form(body: Body) -> String {
    let bytes = to_bytes(body, FORM_BYTES_MAX).await.unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn is_secure(request: &Request) -> bool {
    let arrival = request.extensions().get::<AdminArrival>();
    arrival.is_some_and(|arrival| arrival.scheme == Scheme::Https)
}

fn secured(mut cookie: String, is_secure: bool) -> String {
    if is_secure {
        // Writing to a `String` cannot fail.
        let _ = write!(cookie, "; Secure");
    }
    cookie
}

/// Redirects a browser by a GET (RFC 9110, section 15.4.4).
fn see_other<const N: usize>(to: &str, cookies: [String; N]) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    let fields = response.headers_mut();
    let Ok(location) = HeaderValue::from_str(to) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    fields.insert(header::LOCATION, location);
    for cookie in cookies {
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            fields.append(header::SET_COOKIE, cookie);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: the sign-in page never redirects to another site.
    #[test]
    fn a_browser_is_redirected_only_to_paths_of_this_listener() {
        for path in ["/", "/decisions?host=a.test", "/hosts/a.test#L12"] {
            assert_eq!(own_path(Some(path)), path);
        }
        for path in [
            "//evil.test",
            "/\\evil.test",
            "https://evil.test/",
            "",
            "a",
            "/a\r\nb",
            "/ ",
        ] {
            assert_eq!(own_path(Some(path)), "/", "{path:?}");
        }
        assert_eq!(own_path(None), "/");
    }
}
