//! The proxy's own name (`proxy.internal_name`): requests to it are answered with the
//! [`ClientPages`], and nothing else is served under it.
//!
//! The name is never resolved, and no request for it leaves the proxy: `request` refuses
//! everything but the pages, and `upstream` denies the name to all callers
//! (docs/decisions/028-own-name.md). Does not know the contents of the pages.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, DATE, HOST,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Body as HttpBody;

use super::answer::{http_date, put, status_member};
use super::body::ProxyBody;
use super::client_pages::{ClientPage, ClientPages, POLICY, PageContent};
use super::fields::PROXY_STATUS;
use politesse_base::clock;
use politesse_robots::origin::{Host, Origin, Scheme};

/// Reports whether `authority`, the value of a `Host` field or of a target, names `own`.
pub fn is_named(own: &Host, authority: &str) -> bool {
    // Most names differ in their first letters and need no parsing.
    let begins = |name: &str| {
        let start = authority.as_bytes().get(..name.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
    };
    let may_be = match own {
        Host::Name(name) => begins(name),
        Host::Address(_) => true,
    };
    may_be && Origin::new(Scheme::Http, authority).is_ok_and(|origin| origin.host() == own)
}

/// Returns the path of a request for a page of the proxy itself: GET or HEAD of an
/// `http://` URL whose authority, in target and `Host`, is exactly the own name. `None`
/// for all other requests, even if they use the name in another way.
pub fn own_path<'a, B>(own: &Host, request: &'a Request<B>) -> Option<&'a str> {
    let uri = request.uri();
    let authority = uri.authority()?.as_str();
    if !is_exact(own, authority) || uri.scheme_str() != Some("http") {
        return None;
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let mut hosts = request.headers().get_all(HOST).iter();
    let is_same_host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().is_ok_and(|host| is_exact(own, host)),
        // Only HTTP/1.1 requires a `Host` field (RFC 9112, section 3.2).
        (None, _) => request.version() == Version::HTTP_10,
        (Some(_), Some(_)) => false,
    };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    (is_read && is_same_host).then_some(path)
}

/// Reports whether `authority` is the name itself, regardless of case, with port 80 or
/// without a port.
fn is_exact(own: &Host, authority: &str) -> bool {
    let Host::Name(name) = own else {
        return false;
    };
    let host = authority.strip_suffix(":80").unwrap_or(authority);
    host.eq_ignore_ascii_case(name)
}

/// Returns the page served at a path.
pub fn page_at(path: &str) -> Option<ClientPage> {
    match path.strip_prefix('/')? {
        "" => Some(ClientPage::Guide),
        name => ClientPage::linked(name),
    }
}

/// Answers a request for a page, with 404 if the page does not exist. `name` is the
/// proxy's name in `Proxy-Status`.
pub fn answer<B: HttpBody>(
    request: &Request<B>,
    page: Option<ClientPage>,
    pages: &ClientPages,
    name: &str,
) -> Response<ProxyBody> {
    let found = page.and_then(|page| pages.content(page));
    let status = match found {
        Some(_) => StatusCode::OK,
        None => StatusCode::NOT_FOUND,
    };
    let PageContent { media_type, body } = found.unwrap_or_else(|| PageContent {
        media_type: "text/plain; charset=utf-8",
        body: "the pages here are /, /ca.pem and /proxy.pac\n".into(),
    });
    let length = body.len();
    let content = match *request.method() {
        Method::HEAD => Bytes::new(),
        _ => body,
    };
    let mut response = Response::new(ProxyBody::whole(content));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    put(fields, CONTENT_TYPE, media_type);
    fields.insert(CONTENT_LENGTH, length.into());
    put(fields, DATE, &http_date(clock::now()));
    // Not cacheable, because the name may stand for another proxy tomorrow.
    put(fields, CACHE_CONTROL, "no-store");
    put(fields, CONTENT_SECURITY_POLICY, POLICY);
    put(fields, X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(fields, REFERRER_POLICY, "no-referrer");
    let member = status_member(name, None, "answered here: a page of this proxy");
    put(fields, PROXY_STATUS, &member);
    // The body is not read, so the start of a following request would be unknown.
    if !request.body().is_end_stream() {
        fields.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Host {
        "politesse.internal".parse().unwrap()
    }

    fn request(method: &str, target: &str, hosts: &[&str]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(target);
        for host in hosts {
            request = request.header("host", *host);
        }
        request.body(()).unwrap()
    }

    const NAME: &str = "politesse.internal";

    // Ours: the exact authority, port 80, GET and HEAD only.
    #[test]
    fn only_the_exact_name_is_a_request_for_a_page() {
        for (method, target, hosts, path) in [
            ("GET", "http://politesse.internal/", &[NAME][..], Some("/")),
            (
                "HEAD",
                "http://POLITESSE.internal:80/ca.pem",
                &["Politesse.Internal"],
                Some("/ca.pem"),
            ),
            (
                "GET",
                "http://politesse.internal?x",
                &["politesse.internal:80"],
                Some("?x"),
            ),
            ("POST", "http://politesse.internal/", &[NAME], None),
            ("OPTIONS", "http://politesse.internal/", &[NAME], None),
            ("GET", "https://politesse.internal/", &[NAME], None),
            ("GET", "ws://politesse.internal/", &[NAME], None),
            ("GET", "http://politesse.internal:81/", &[NAME], None),
            ("GET", "http://politesse.internal:080/", &[NAME], None),
            ("GET", "http://politesse.internal:/", &[NAME], None),
            ("GET", "http://politesse.internal./", &[NAME], None),
            ("GET", "http://a@politesse.internal/", &[NAME], None),
            ("GET", "http://x.politesse.internal/", &[NAME], None),
            ("GET", "http://politesse.internal/", &["other.test"], None),
            (
                "GET",
                "http://politesse.internal/",
                &["politesse.internal."],
                None,
            ),
            ("GET", "http://politesse.internal/", &[NAME, NAME], None),
            ("GET", "http://politesse.internal/", &[], None),
            ("GET", "http://other.test/", &[NAME], None),
            ("GET", "/", &[NAME], None),
        ] {
            let request = request(method, target, hosts);
            assert_eq!(
                own_path(&own(), &request),
                path,
                "{method} {target} {hosts:?}"
            );
        }
    }

    // Ours: every spelling that other parts of the proxy treat as the same name.
    #[test]
    fn other_spellings_of_the_name_are_recognised() {
        for (authority, expected) in [
            ("politesse.internal", true),
            ("POLITESSE.INTERNAL:443", true),
            ("politesse.internal.", true),
            ("politesse.internal.:81", true),
            ("politesse.internal.test", false),
            ("politesse.internal..", false),
            ("x.politesse.internal", false),
            ("politesse.interna", false),
            ("[::1]", false),
            ("", false),
        ] {
            assert_eq!(is_named(&own(), authority), expected, "{authority}");
        }
    }

    // Ours: there are no other pages.
    #[test]
    fn pages_have_fixed_paths() {
        for (path, page) in [
            ("/", Some(ClientPage::Guide)),
            ("/ca.pem", Some(ClientPage::Ca)),
            ("/proxy.pac", Some(ClientPage::Pac)),
            ("/client.css", Some(ClientPage::Style)),
            ("/?x", None),
            ("/ca.pem/", None),
            ("//ca.pem", None),
            ("/metrics", None),
            ("", None),
        ] {
            assert_eq!(page_at(path), page, "{path}");
        }
    }
}
