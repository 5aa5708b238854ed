//! From a request as received to an inquiry, or why there is none.
//!
//! Nothing ambiguous goes on: what could be taken for two URLs or framed in two
//! ways is refused here, before any rule is asked (RFC 9112, section 3.2;
//! RFC 9110, section 7.4).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{EXPECT, FROM, HOST, TRANSFER_ENCODING, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;

use super::body::ClientUpload;
use super::fields::{self, RequestFields};
use super::max_forwards;
use super::patience::preferred;
use super::problem::{MalformedRequest, Problem};
use super::socket::ClientEnd;
use super::tally::Tally;
use crate::decision::decide::Inquiry;
use crate::decision::identity::Identities;
use crate::robots_cache::fetch::Asker;
use crate::upstream::client::{Form, Outgoing};
use politesse_robots::origin::{InvalidTarget, Origin, Scheme, Target};

/// How requests are read.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name in `Via`, by which a loop is known.
    pub fields: fields::Options,
    /// The longest an upload may stall (`proxy.idle_timeout`).
    pub upload_idle: Duration,
    /// Who is who (`crawler`).
    pub identities: Identities,
}

/// What a connection says about each of its requests.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    /// The crawler's address.
    pub client: IpAddr,
    /// Inside CONNECT, the one origin that may be asked for.
    pub opened_for: Option<Origin>,
    /// Where it is seen that the crawler has gone; over HTTP/2, which cancels
    /// its requests, there is none.
    pub end: ClientEnd,
    /// Where its requests are counted, if they are.
    pub tally: Option<Arc<Tally>>,
}

/// A request taken apart: what is decided, and what goes on if it may.
#[derive(Debug)]
pub struct ProxyRequest {
    /// Who asks for what.
    pub inquiry: Arc<Inquiry>,
    /// The crawler's address.
    pub client: IpAddr,
    /// How long it may wait for a turn, if its crawler has a time of its own
    /// (`crawler.max_wait`).
    pub max_wait: Option<Duration>,
    /// How long the crawler says that it waits (`Prefer: wait`).
    pub patience: Option<Duration>,
    /// Where it is seen that it waits no longer.
    pub end: ClientEnd,
    /// On whose behalf robots.txt is asked for.
    pub asker: Asker,
    /// Method and fields as they go on.
    pub outgoing: Outgoing,
    /// The body, unread.
    pub upload: ClientUpload,
}

impl ProxyRequest {
    /// Reads a request that came over `leg`.
    ///
    /// # Errors
    ///
    /// [`Problem::Malformed`] or [`Problem::Loop`]: what is not recorded.
    pub fn read(
        request: Request<Incoming>,
        leg: &ConnectionInfo,
        options: &Options,
    ) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let target = target(&parts, leg)?;
        unambiguous(&parts)?;
        // `Content-Length: 0` is no content, and ends the stream at once.
        if parts.method == Method::TRACE && !body.is_end_stream() {
            return Err(MalformedRequest::TraceContent.into());
        }
        if fields::has_come_through(&parts.headers, &options.fields.name) {
            return Err(Problem::Loop(options.fields.name.to_string()));
        }
        let RequestFields {
            mut fields,
            host_at,
        } = fields::of_request(
            &parts.headers,
            parts.version,
            (&options.fields, body.size_hint().exact()),
        );
        max_forwards::take_one(&parts.method, &mut fields)?;
        // There is no second one: it would be ambiguous.
        let user_agent = parts.headers.get(USER_AGENT);
        let said = user_agent.map(HeaderValue::as_bytes);
        let (crawler, max_wait) = options.identities.known(said, Some(leg.client));
        if crawler.is_cut() {
            return Err(MalformedRequest::Names.into());
        }
        Ok(Self {
            inquiry: Arc::new(Inquiry {
                crawler,
                target,
                method: parts.method.as_str().to_owned(),
            }),
            client: leg.client,
            max_wait,
            patience: preferred(&parts.headers),
            end: leg.end.clone(),
            asker: Asker {
                client: Some(leg.client),
                user_agent: user_agent.cloned(),
                from: parts.headers.get(FROM).cloned(),
            },
            outgoing: Outgoing {
                form: form(&parts.method, &parts.uri),
                method: parts.method,
                headers: fields,
                host_at,
                extensions: parts.extensions,
            },
            upload: ClientUpload::new(body, options.upload_idle),
        })
    }
}

fn target(parts: &Parts, leg: &ConnectionInfo) -> Result<Target, MalformedRequest> {
    match &leg.opened_for {
        Some(origin) => inner_target(parts, origin),
        None => absolute_target(parts),
    }
}

/// On the proxy's own port: absolute-form alone (RFC 9112, section 3.2.2). The
/// target counts and `Host` is written anew, but it must still be one.
fn absolute_target(parts: &Parts) -> Result<Target, MalformedRequest> {
    if parts.uri.scheme().is_none() || parts.uri.authority().is_none() {
        return Err(MalformedRequest::NotAbsolute);
    }
    if parts.version == Version::HTTP_11 || parts.headers.contains_key(HOST) {
        only_host(&parts.headers)?;
    }
    absolute(&parts.uri)
}

fn absolute(uri: &Uri) -> Result<Target, MalformedRequest> {
    let scheme: Scheme = uri.scheme_str().unwrap_or_default().parse()?;
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    path_under(Origin::new(scheme, authority)?, uri)
}

/// `OPTIONS *` (RFC 9110, section 9.3.7) has a form of its own.
fn form(method: &Method, uri: &Uri) -> Form {
    let path = uri.path_and_query().map(|path| path.as_str());
    match path {
        Some("*") if method == Method::OPTIONS => Form::Asterisk,
        _ => Form::Url,
    }
}

fn path_under(origin: Origin, uri: &Uri) -> Result<Target, MalformedRequest> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok(Target::new(origin, path)?)
}

/// Inside CONNECT: whatever names an origin must name the one it was opened
/// for (RFC 9110, sections 7.4 and 15.5.20).
fn inner_target(parts: &Parts, origin: &Origin) -> Result<Target, MalformedRequest> {
    if parts.uri.authority().is_some() {
        // A host alone is the form of CONNECT (RFC 9112, section 3.2.3).
        let scheme = parts.uri.scheme_str().ok_or(InvalidTarget::Path)?;
        let authority = parts
            .uri
            .authority()
            .map_or("", |authority| authority.as_str());
        same_origin(origin, &Origin::new(scheme.parse()?, authority)?)?;
    } else if parts.version == Version::HTTP_2 {
        return Err(MalformedRequest::Host);
    }
    if (parts.version != Version::HTTP_2 || parts.headers.contains_key(HOST))
        && let Some(host) = only_host_unless_old(parts)?
    {
        same_origin(origin, &Origin::new(origin.scheme(), host)?)?;
    }
    // What is asked about a server as a whole is judged as its `/`.
    match form(&parts.method, &parts.uri) {
        Form::Asterisk => Ok(Target::new(origin.clone(), "/")?),
        // RFC 9113, section 8.3.1: a `:path` has its slash.
        Form::Url if parts.version == Version::HTTP_2 && is_query_alone(&parts.uri) => {
            Err(InvalidTarget::Path.into())
        }
        Form::Url => path_under(origin.clone(), &parts.uri),
    }
}

fn is_query_alone(uri: &Uri) -> bool {
    let path = uri.path_and_query();
    path.is_some_and(|path| path.as_str().starts_with('?'))
}

fn same_origin(opened_for: &Origin, asked_for: &Origin) -> Result<(), MalformedRequest> {
    if opened_for == asked_for {
        return Ok(());
    }
    Err(MalformedRequest::Misdirected {
        opened_for: opened_for.to_string(),
        asked_for: asked_for.to_string(),
    })
}

/// HTTP/1.0 knows no `Host`, so inside CONNECT it may be absent.
fn only_host_unless_old(parts: &Parts) -> Result<Option<&str>, MalformedRequest> {
    if parts.version < Version::HTTP_11 && !parts.headers.contains_key(HOST) {
        return Ok(None);
    }
    only_host(&parts.headers).map(Some)
}

/// The one `Host` there must be (RFC 9112, section 3.2).
///
/// # Errors
///
/// [`MalformedRequest`] if there is none, there are two, or it is no host.
pub fn only_host(fields: &HeaderMap) -> Result<&str, MalformedRequest> {
    let mut values = fields.get_all(HOST).iter();
    let (Some(host), None) = (values.next(), values.next()) else {
        return Err(MalformedRequest::Host);
    };
    let host = host.to_str().map_err(|_| MalformedRequest::Host)?;
    match Origin::new(Scheme::Http, host) {
        Ok(_) => Ok(host),
        Err(InvalidTarget::UserInformation) => Err(InvalidTarget::UserInformation.into()),
        Err(_) => Err(MalformedRequest::Host),
    }
}

/// What hyper leaves visible of a request that readers frame differently
/// (RFC 9112, section 6.1).
fn unambiguous(parts: &Parts) -> Result<(), MalformedRequest> {
    if parts.method == Method::CONNECT {
        return Err(MalformedRequest::Connect);
    }
    if parts.headers.get_all(USER_AGENT).iter().nth(1).is_some() {
        return Err(MalformedRequest::UserAgent);
    }
    let mut codings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next()
        && (codings.next().is_some()
            || !coding
                .as_bytes()
                .trim_ascii()
                .eq_ignore_ascii_case(b"chunked"))
    {
        return Err(MalformedRequest::Framing(
            "a transfer coding other than one chunked",
        ));
    }
    if parts
        .headers
        .keys()
        .any(|name| name.as_str() == "transfer_encoding" || name.as_str() == "content_length")
    {
        return Err(MalformedRequest::Framing(
            "a field that some read as a framing field",
        ));
    }
    if fields::nominates_framing(&parts.headers) {
        return Err(MalformedRequest::Framing(
            "Connection names a field that frames or routes the message",
        ));
    }
    let expected = parts.headers.get_all(EXPECT).iter();
    if expected
        .into_iter()
        .any(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
    {
        return Err(MalformedRequest::Expectation);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(uri: &str, fields: &[(&'static str, &'static str)]) -> Parts {
        let mut request = Request::builder().uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn leg(opened_for: Option<&str>) -> ConnectionInfo {
        ConnectionInfo {
            client: [127, 0, 0, 1].into(),
            opened_for: opened_for.map(|authority| Origin::new(Scheme::Https, authority).unwrap()),
            end: ClientEnd::default(),
            tally: None,
        }
    }

    // RFC 9112, section 3.2.2: the target counts, not Host.
    #[test]
    fn the_target_names_the_origin() {
        let target = target(
            &parts("http://a.test/x?y", &[("host", "b.test")]),
            &leg(None),
        )
        .unwrap();
        assert_eq!(target.to_string(), "http://a.test/x?y");
    }

    // RFC 9112, section 3.2: 400 for no Host, two, or a bad one; 3.2.1 is for
    // origin servers alone.
    #[test]
    fn a_request_that_names_no_single_origin_is_malformed() {
        for (uri, fields) in [
            ("/x", &[("host", "a.test")][..]),
            ("http://a.test/x", &[]),
            ("http://a.test/x", &[("host", "a.test"), ("host", "a.test")]),
            ("http://a.test/x", &[("host", "a.test/x")]),
            ("http://u@a.test/x", &[("host", "a.test")]),
            ("ftp://a.test/x", &[("host", "a.test")]),
        ] {
            assert!(
                target(&parts(uri, fields), &leg(None)).is_err(),
                "{uri} {fields:?}"
            );
        }
    }

    // RFC 9110, section 15.5.20.
    #[test]
    fn inside_connect_another_authority_is_misdirected() {
        let leg = leg(Some("a.test:443"));
        let inner = |uri, host| target(&parts(uri, &[("host", host)]), &leg);
        assert_eq!(
            inner("/x", "a.test").unwrap().to_string(),
            "https://a.test/x"
        );
        assert!(inner("/x", "A.test.:443").is_ok());
        for (uri, host) in [
            ("/x", "b.test"),
            ("http://a.test/x", "a.test"),
            ("/x", "a.test:444"),
        ] {
            assert!(
                matches!(inner(uri, host), Err(MalformedRequest::Misdirected { .. })),
                "{uri} {host}"
            );
        }
    }

    // RFC 9112, section 3.2.3.
    #[test]
    fn inside_connect_a_host_is_no_target() {
        let leg = leg(Some("a.test:443"));
        for uri in ["a.test:443", "a.test", "a"] {
            assert!(
                matches!(
                    target(&parts(uri, &[("host", "a.test")]), &leg),
                    Err(MalformedRequest::Target(InvalidTarget::Path))
                ),
                "{uri}"
            );
        }
    }

    // RFC 9112, section 6.1; RFC 9110, sections 7.6.1 and 10.1.1.
    #[test]
    fn what_can_be_framed_in_two_ways_is_malformed() {
        for field in [
            ("transfer-encoding", "gzip, chunked"),
            ("transfer-encoding", "chunked, chunked"),
            ("transfer_encoding", "chunked"),
            ("connection", "close, content-length"),
            ("expect", "200-ok"),
        ] {
            assert!(
                unambiguous(&parts("http://a.test/", &[field])).is_err(),
                "{field:?}"
            );
        }
        assert!(
            unambiguous(&parts(
                "http://a.test/",
                &[("transfer-encoding", "Chunked")]
            ))
            .is_ok()
        );
    }
}
