//! Requests as received, parsed into an inquiry and the message to send.
//!
//! Nothing ambiguous is forwarded: a request that could be taken for two URLs, or framed
//! in two ways, is refused here, before any rule is considered (RFC 9112, section 3.2;
//! RFC 9110, section 7.4). Does not know the decision.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, EXPECT, FROM, HOST, TRANSFER_ENCODING, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use hyper::body::Body as _;
use hyper::body::Incoming;

use super::crawler_table::{CrawlerTable, RequestSender};
use super::credentials::{AuthMode, VerifiedCredential};
use super::embedding;
use super::fields;
use super::latest_origin::LatestOrigin;
use super::max_forwards;
use super::own_name::is_named;
use super::places::{ConnectionPlace, RequestPlace};
use super::problem::{MalformedRequest, Problem};
use super::socket::{ClientEnd, ConnectionActivity};
use super::tally::Tally;
use super::upload::{ClientUpload, UploadLimits};
use politesse_base::clients::client::Client;
use politesse_decision::decide::Inquiry;
use politesse_decision::inquiry::{Identities, Requisites};
use politesse_decision::label::CrawlLabel;
use politesse_decision::preferences::PreferenceTerms;
use politesse_directives::PurposeSet;
use politesse_net::client::{OutgoingHead, TargetForm};
use politesse_net::private::PrivateConnections;
use politesse_pace::Embedding;
use politesse_robots::crawler::ProductToken;
use politesse_robots::origin::{Host, InvalidTarget, Origin, Scheme, Target};
use politesse_robots_cache::fetch::Asker;

/// Settings for reading requests.
#[derive(Debug, Clone)]
pub struct Options {
    /// Settings for the fields that are forwarded.
    pub fields: fields::Options,
    /// Limits of uploads.
    pub upload: UploadLimits,
    /// Crawlers identified by more than their User-Agent (`crawler`).
    pub identities: Identities,
    /// Treatment of credentials (`proxy.auth`).
    pub auth: AuthMode,
    /// Name of the proxy itself (`proxy.internal_name`), if it has one.
    pub own_name: Option<Host>,
}

/// Properties of a connection and of the client that uses it.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    /// Address of the client.
    pub client: IpAddr,
    /// Client to which shares are charged.
    pub sharer: Arc<Client>,
    /// Scheme that the client uses to connect to the proxy.
    pub scheme: Scheme,
    /// Place of the connection.
    pub place: Arc<ConnectionPlace>,
    /// Inside a CONNECT, the only origin that may be requested.
    pub opened_for: Option<Origin>,
    /// Credential of the client: inside a CONNECT the one sent with the CONNECT,
    /// otherwise the one sent with the request.
    pub credential: Option<VerifiedCredential>,
    /// Label of the crawl that its requests belong to, taken from the command or the
    /// CONNECT.
    pub label: Option<CrawlLabel>,
    /// Purposes of the command that sends the requests.
    pub purposes: PurposeSet,
    /// Signals that the client has closed the connection. Unset over HTTP/2, where the
    /// client cancels each request.
    pub end: ClientEnd,
    /// Request counts, if requested.
    pub tally: Option<Arc<Tally>>,
    /// Origin of the most recent request.
    pub latest_origin: Arc<LatestOrigin>,
    /// Connections to origins that are reserved for its requests.
    pub private: Arc<PrivateConnections>,
    /// Activity on the connection.
    pub activity: Arc<ConnectionActivity>,
}

/// A parsed request: the inquiry to decide, and the message to send if it is allowed.
#[derive(Debug)]
pub struct ProxyRequest {
    /// The inquiry.
    pub inquiry: Arc<Inquiry>,
    /// Name in the `User-Agent` that the operator has pinned to other clients. The
    /// request is refused if one is set.
    pub foreign_name: Option<ProductToken>,
    /// Longest wait for turns that the operator allows this crawler (`crawler.max_wait`),
    /// if it differs from the general limit.
    pub max_wait: Option<Duration>,
    /// Relation to the page that embeds the requested URL, if requisites of this crawler
    /// follow their page (`crawler.requisites`).
    pub embedding: Option<Embedding>,
    /// Longest wait that the client wants (`Prefer: wait`).
    pub preferred_wait: Option<Duration>,
    /// Label of the crawl.
    pub label: Option<CrawlLabel>,
    /// Purposes declared for its crawler, if any.
    pub preferences: Option<PreferenceTerms>,
    /// Place of the request. Another client can take it while the request waits.
    pub place: Option<Arc<RequestPlace>>,
    /// Client for which robots.txt is fetched.
    pub asker: Asker,
    /// Method and fields to send.
    pub outgoing: OutgoingHead,
    /// Body, not read yet.
    pub upload: ClientUpload,
}

impl ProxyRequest {
    /// Reports whether the request may be sent twice: it is safe (RFC 9110, section
    /// 9.2.1) and has no body, so only GET and HEAD.
    pub fn can_be_sent_again(&self) -> bool {
        let is_safe = matches!(self.outgoing.method, Method::GET | Method::HEAD);
        is_safe && self.upload.is_end_stream()
    }

    /// Parses a request that arrived over `connection` from one of `crawlers`.
    ///
    /// # Errors
    ///
    /// [`Problem::Malformed`], [`Problem::Loop`] or [`Problem::Credential`]. These are
    /// not recorded.
    pub fn read(
        request: Request<Incoming>,
        connection: &ConnectionInfo,
        options: &Options,
        crawlers: &CrawlerTable,
    ) -> Result<Self, Problem> {
        let (parts, upload) = ClientUpload::new(request, options.upload, &connection.activity);
        let target = target(&parts, connection)?;
        refuse_own_name(&parts, &target, options.own_name.as_ref())?;
        unambiguous(&parts)?;
        // `Content-Length: 0` means no content, and ends the stream at once.
        if parts.method == Method::TRACE && !upload.is_end_stream() {
            return Err(MalformedRequest::TraceContent.into());
        }
        if fields::has_come_through(&parts.headers, &options.fields.name) {
            return Err(Problem::Loop(options.fields.name.to_string()));
        }
        let preferred_wait = preferred_wait(&parts.headers);
        let label = fields::crawl_label(&parts.headers).map_err(MalformedRequest::Label)?;
        let mut asker = Asker {
            client: Some(Arc::clone(&connection.sharer)),
            entry: None,
            user_agent: parts.headers.get(USER_AGENT).cloned(),
            from: parts.headers.get(FROM).cloned(),
        };
        let mut headers = fields::of_request(parts.headers, parts.version, &options.fields);
        max_forwards::take_one(&parts.method, &mut headers)?;
        let known = crawlers.identify(&RequestSender {
            user_agent: asker.user_agent.as_ref().map(HeaderValue::as_bytes),
            client: connection.client,
            credential: connection.credential.as_ref(),
            purposes: connection.purposes,
        })?;
        asker.entry = known.entry;
        let embedding = match known.requisites {
            Requisites::Turn => None,
            Requisites::Follow => embedding::of_request(&parts.method, &headers, &target),
        };
        Ok(Self {
            inquiry: Arc::new(Inquiry {
                crawler: known.crawler,
                target,
                method: parts.method.as_str().to_owned(),
            }),
            foreign_name: known.foreign_name,
            max_wait: known.max_wait,
            embedding,
            preferred_wait,
            // The label closest to the request takes precedence.
            label: label.or_else(|| connection.label.clone()).or(known.label),
            preferences: known.preferences,
            place: None,
            asker,
            outgoing: OutgoingHead {
                form: form(&parts.method, &parts.uri),
                path: parts.uri.into_parts().path_and_query,
                method: parts.method,
                headers,
                extensions: parts.extensions,
            },
            upload,
        })
    }
}

/// Refuses a request that names the proxy itself. Requests for its pages were answered
/// before, and nothing else under its name is served or forwarded.
fn refuse_own_name(
    parts: &Parts,
    target: &Target,
    own: Option<&Host>,
) -> Result<(), MalformedRequest> {
    let Some(own) = own else {
        return Ok(());
    };
    // A name in `Host` alone is refused, too. The target takes precedence, but such a
    // request counts on another reader using `Host`.
    let mut hosts = parts.headers.get_all(HOST).iter();
    let is_in_host = hosts.any(|host| host.to_str().is_ok_and(|host| is_named(own, host)));
    if target.origin.host() == own || is_in_host {
        return Err(MalformedRequest::OwnName(own.clone()));
    }
    Ok(())
}

fn target(parts: &Parts, connection: &ConnectionInfo) -> Result<Target, MalformedRequest> {
    match &connection.opened_for {
        Some(origin) => inner_target(parts, origin),
        None => absolute_target(parts, &connection.latest_origin),
    }
}

/// Reads the target of a request on the proxy's own port, which must be an absolute URL
/// (RFC 9112, section 3.2.2). `Host` is rewritten, but must be valid.
fn absolute_target(parts: &Parts, latest: &LatestOrigin) -> Result<Target, MalformedRequest> {
    let (Some(scheme), Some(authority)) = (parts.uri.scheme_str(), parts.uri.authority()) else {
        return Err(MalformedRequest::NotAbsolute);
    };
    // A `Host` equal to the authority needs no parsing of its own.
    if single_host(&parts.headers).is_none_or(|host| host != authority.as_str()) {
        host(parts)?;
    }
    let origin = latest.read(scheme.parse()?, authority.as_str())?;
    path_under(origin, &parts.uri)
}

/// Reads the target of a request inside a CONNECT. Every origin that the request names
/// must be the one that the CONNECT named (RFC 9110, sections 7.4 and 15.5.20).
fn inner_target(parts: &Parts, origin: &Origin) -> Result<Target, MalformedRequest> {
    let uri = &parts.uri;
    let is_http2 = parts.version == Version::HTTP_2;
    if let Some(authority) = uri.authority() {
        // An authority without a scheme is the CONNECT form (RFC 9112, section 3.2.3).
        let scheme = uri.scheme_str().ok_or(InvalidTarget::Path)?;
        same_origin(origin, &Origin::new(scheme.parse()?, authority.as_str())?)?;
    } else if is_http2 {
        return Err(MalformedRequest::Host);
    }
    // A `Host` written like the origin's authority needs no parsing of its own.
    let is_own = |host: &HeaderValue| origin.is_authority(host.as_bytes());
    if !single_host(&parts.headers).is_some_and(is_own)
        && let Some(host) = host(parts)?
    {
        same_origin(origin, &Origin::new(origin.scheme(), host)?)?;
    }
    let path = uri.path_and_query();
    match form(&parts.method, uri) {
        // A request about a whole server is decided like one for `/`.
        TargetForm::Asterisk => Ok(Target::new(origin.clone(), "/")?),
        // RFC 9113, section 8.3.1: a `:path` begins with a slash.
        TargetForm::Url if is_http2 && path.is_some_and(|path| path.as_str().starts_with('?')) => {
            Err(InvalidTarget::Path.into())
        }
        TargetForm::Url => path_under(origin.clone(), uri),
    }
}

/// Returns the form of the target. `OPTIONS *` has its own (RFC 9110, section 9.3.7).
fn form(method: &Method, uri: &Uri) -> TargetForm {
    let path = uri.path_and_query().map(|path| path.as_str());
    match path {
        Some("*") if method == Method::OPTIONS => TargetForm::Asterisk,
        _ => TargetForm::Url,
    }
}

fn path_under(origin: Origin, uri: &Uri) -> Result<Target, MalformedRequest> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok(Target::new(origin, path)?)
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

/// Returns the `Host` of a request, which only HTTP/1.1 requires (RFC 9112, section 3.2).
fn host(parts: &Parts) -> Result<Option<&str>, MalformedRequest> {
    if parts.version != Version::HTTP_11 && !parts.headers.contains_key(HOST) {
        return Ok(None);
    }
    only_host(&parts.headers).map(Some)
}

/// Returns the value of `Host` if there is exactly one such field.
fn single_host(fields: &HeaderMap) -> Option<&HeaderValue> {
    let mut values = fields.get_all(HOST).iter();
    let first = values.next();
    first.filter(|_| values.next().is_none())
}

/// Returns the value of the only `Host` field (RFC 9112, section 3.2).
///
/// # Errors
///
/// [`MalformedRequest`] if `Host` is missing, repeated, or not a valid host.
pub fn only_host(fields: &HeaderMap) -> Result<&str, MalformedRequest> {
    let field = single_host(fields).ok_or(MalformedRequest::Host)?;
    let host = field.to_str().map_err(|_| MalformedRequest::Host)?;
    match Origin::new(Scheme::Http, host) {
        Ok(_) => Ok(host),
        Err(InvalidTarget::UserInformation) => Err(InvalidTarget::UserInformation.into()),
        Err(_) => Err(MalformedRequest::Host),
    }
}

/// Refuses requests that different parsers could frame differently, as far as hyper
/// leaves that visible (RFC 9112, section 6.1).
fn unambiguous(parts: &Parts) -> Result<(), MalformedRequest> {
    let fields = &parts.headers;
    if parts.method == Method::CONNECT {
        return Err(MalformedRequest::Connect);
    }
    let (mut agents, mut codings) = (0, 0);
    for (name, value) in fields {
        match *name {
            USER_AGENT => agents += 1,
            TRANSFER_ENCODING => {
                let coding = value.as_bytes().trim_ascii();
                let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
                codings += if is_chunked { 1 } else { 2 };
            }
            EXPECT if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") => {
                return Err(MalformedRequest::Expectation);
            }
            CONNECTION if fields::nominates_framing(value) => {
                return Err(MalformedRequest::Framing(
                    "Connection names a field that frames or routes the message",
                ));
            }
            // Gateways that turn field names into variables (CGI) map dash and underscore
            // to the same character.
            _ if matches!(name.as_str(), "transfer_encoding" | "content_length") => {
                return Err(MalformedRequest::Framing(
                    "a field that some read as a framing field",
                ));
            }
            _ => {}
        }
    }
    // A server could use either User-Agent, and each may have its own rules.
    if 1 < agents {
        return Err(MalformedRequest::UserAgent);
    }
    if 1 < codings {
        return Err(MalformedRequest::Framing(
            "a transfer coding other than one chunked",
        ));
    }
    Ok(())
}

/// Field in which a client states how long it waits (RFC 7240, section 4.3).
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Returns the wait that the client prefers (`Prefer: wait=10`). Of several, the first
/// applies (RFC 7240, section 2).
fn preferred_wait(fields: &HeaderMap) -> Option<Duration> {
    let values = fields.get_all(PREFER).iter();
    let mut waits = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| unquoted_split(value, ','))
        .filter_map(|preference| {
            let (name, value) = unquoted_split(preference, ';').next()?.split_once('=')?;
            let is_wait = name.trim().eq_ignore_ascii_case("wait");
            is_wait.then(|| value.trim().trim_matches('"'))
        });
    let digits = waits.next()?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Duration::from_secs(digits.parse().unwrap_or(u64::MAX)))
}

/// Splits at separators outside quoted strings (RFC 9110, section 5.6.4).
fn unquoted_split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |letter: char| {
        let was_escaped = std::mem::take(&mut is_escaped);
        is_quoted ^= letter == '"' && !was_escaped;
        is_escaped = is_quoted && letter == '\\' && !was_escaped;
        letter == separator && !is_quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use politesse_base::clients::client::Resource;
    use politesse_base::clients::directory::ClientDirectory;
    use politesse_base::clients::shares::{DisplacementOrder, Shares};

    fn parts(uri: &str, fields: &[(&'static str, &'static str)]) -> Parts {
        let mut request = Request::builder().uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn leg(opened_for: Option<&str>) -> ConnectionInfo {
        let client = [127, 0, 0, 1].into();
        let sharer = ClientDirectory::default().at(client);
        let connections = Shares::new(
            Resource::Connections,
            1,
            DisplacementOrder::OldestFirst,
            Arc::default(),
        );
        ConnectionInfo {
            client,
            place: ConnectionPlace::new(connections.take_now(&sharer).unwrap()),
            sharer,
            scheme: Scheme::Http,
            opened_for: opened_for.map(|authority| Origin::new(Scheme::Https, authority).unwrap()),
            credential: None,
            end: ClientEnd::default(),
            label: None,
            purposes: PurposeSet::default(),
            tally: None,
            latest_origin: Arc::default(),
            private: Arc::default(),
            activity: Arc::default(),
        }
    }

    // RFC 9112, section 3.2.2: the target takes precedence over `Host`.
    #[test]
    fn the_target_names_the_origin() {
        let target = target(
            &parts("http://a.test/x?y", &[("host", "b.test")]),
            &leg(None),
        )
        .unwrap();
        assert_eq!(target.to_string(), "http://a.test/x?y");
    }

    // RFC 9112, section 3.2: a missing, repeated or malformed `Host` gets a 400. Section
    // 3.2.1 applies to origin servers only.
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
    fn inside_connect_a_bare_authority_is_not_a_target() {
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
    fn requests_that_can_be_framed_in_two_ways_are_malformed() {
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

    fn wait_of(values: &[&str]) -> Option<u64> {
        let mut fields = HeaderMap::new();
        for value in values {
            fields.append(PREFER, value.parse().unwrap());
        }
        preferred_wait(&fields).map(|wait| wait.as_secs())
    }

    // RFC 7240, sections 2 and 4.3.
    #[test]
    fn the_first_preferred_wait_applies() {
        assert_eq!(wait_of(&["wait=10"]), Some(10));
        assert_eq!(
            wait_of(&["respond-async, Wait = \"5\"; x=y", "wait=7"]),
            Some(5)
        );
        assert_eq!(wait_of(&["return=minimal", "wait=0"]), Some(0));
        assert_eq!(wait_of(&[r#"a="b, wait=0", wait=5"#]), Some(5));
        assert_eq!(
            wait_of(&[r#"a="\", wait=0"; b="c, wait=1", wait=6"#]),
            Some(6)
        );
        assert_eq!(wait_of(&[r#"a="b, wait=0"#]), None);
        assert_eq!(wait_of(&["wait=99999999999999999999"]), Some(u64::MAX));
        for value in ["", "wait", "wait=", "wait=-1", "wait=1.5", "waiting=3"] {
            assert_eq!(wait_of(&[value]), None, "{value}");
        }
    }
}
