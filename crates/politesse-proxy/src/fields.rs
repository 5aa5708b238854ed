//! Message fields: those that are forwarded, and those that end at this proxy.
//!
//! RFC 9110, section 7.6.1. If every field may be forwarded, the received map is reused.
//! Otherwise a new map is built in the order received, because `HeaderMap::remove` would
//! move the last field into the gap. Knows the annotation only by the name of its field.

use std::sync::Arc;

use http::header::Entry;
use http::header::{
    ACCEPT_ENCODING, ALT_SVC, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TE, TRANSFER_ENCODING, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use sfv::{FieldType, Item, List, ListEntry, Parser};

use politesse_decision::label::{CrawlLabel, InvalidLabel};
use politesse_directives::{accepts_only_decoded, narrow_accept_encoding};

/// `Proxy-Status` field (RFC 9209).
pub const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Request field that states the label of the crawl. It ends at this proxy.
const POLITESSE_CRAWL: HeaderName = HeaderName::from_static("politesse-crawl");

/// Settings for forwarded fields.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of this proxy (`proxy.name`).
    pub name: Arc<str>,
    /// Entry that the proxy adds to `Via`, if any (`proxy.via`). Built once, because
    /// every request and response gets it.
    pub via: Option<HeaderValue>,
    /// Content codings to request from origins (`directives.accept_encoding`).
    pub accept_encoding: AcceptEncoding,
}

/// Content codings to request from an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptEncoding {
    /// Only codings that the client accepts and that can be decoded here, so that pages
    /// can be scanned.
    Decodable,
    /// All codings that the client accepts.
    AsIs,
}

/// Returns the `Via` entry of the proxy `name`; `None` if the name is not allowed in a
/// field value.
pub fn via_entry(name: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("1.1 {name}")).ok()
}

/// Reports whether a field concerns one connection only, even if `Connection` does not
/// name it.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("proxy-") && name != PROXY_STATUS
        || matches!(
            name,
            "connection"
                | "keep-alive"
                | "te"
                | "transfer-encoding"
                | "upgrade"
                | "http2-settings"
                | "alt-used"
        )
}

/// Returns the names of the fields that `Connection` declares to concern this connection
/// only.
fn nominated(fields: &HeaderMap) -> Vec<HeaderName> {
    let lines = fields.get_all(CONNECTION).iter();
    lines.flat_map(names_in).collect()
}

fn names_in(connection: &HeaderValue) -> impl Iterator<Item = HeaderName> {
    let names = connection.as_bytes().split(|byte| *byte == b',');
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
}

/// Reports whether this value of `Connection` names a field that frames or routes the
/// message. Readers that remove that field would understand the message differently.
pub fn nominates_framing(connection: &HeaderValue) -> bool {
    names_in(connection).any(|name| matches!(name, CONTENT_LENGTH | HOST | TRANSFER_ENCODING))
}

/// Reports whether a message has already passed through the proxy `name`, according to
/// its `Via` (RFC 9110, section 7.6.3).
pub fn has_come_through(fields: &HeaderMap, name: &str) -> bool {
    fields
        .get_all(VIA)
        .iter()
        .filter_map(|value| value.to_str().ok())
        // A name inside a comment is not a hop.
        .map(without_comments)
        .any(|value| is_hop_of(&value, name))
}

/// Removes comments, which are in parentheses (RFC 9110, section 5.6.5).
fn without_comments(value: &str) -> String {
    let mut depth = 0_usize;
    value
        .chars()
        .filter(|letter| {
            match letter {
                '(' => depth += 1,
                ')' => {
                    depth = depth.saturating_sub(1);
                    return false;
                }
                _ => {}
            }
            depth == 0
        })
        .collect()
}

fn is_hop_of(value: &str, name: &str) -> bool {
    let mut hops = value.split(',');
    hops.any(|hop| {
        let pseudonym = hop.split_whitespace().nth(1);
        pseudonym.is_some_and(|pseudonym| pseudonym.eq_ignore_ascii_case(name))
    })
}

/// Returns the crawl label that a request states, if any.
///
/// # Errors
///
/// [`InvalidLabel`], also if the field occurs twice.
pub fn crawl_label(received: &HeaderMap) -> Result<Option<CrawlLabel>, InvalidLabel> {
    let mut values = received.get_all(&POLITESSE_CRAWL).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => text.parse().map(Some),
        _ => Err(InvalidLabel),
    }
}

/// Returns the request fields to forward to the origin, without those that frame the
/// message. `Host` keeps its received value, or comes first and empty if there was none:
/// the sender rewrites it in place, from the permit.
pub fn of_request(received: HeaderMap, version: Version, options: &Options) -> HeaderMap {
    let mut fields = if is_passed_on(&received, version) {
        received
    } else {
        end_to_end(&received, version)
    };
    if options.accept_encoding == AcceptEncoding::Decodable {
        // Codings that cannot be decoded here are not requested, because such pages
        // cannot be scanned.
        narrow(&mut fields);
    }
    append_via(&mut fields, options);
    fields
}

/// Reports whether every request field can be forwarded unchanged.
fn is_passed_on(received: &HeaderMap, version: Version) -> bool {
    let is_joined = |name: &HeaderName| version == Version::HTTP_2 && name == COOKIE;
    let mut names = received.keys();
    // `Connection` itself is hop-by-hop, so past this check it cannot name other fields.
    received.contains_key(HOST)
        && names.all(|name| {
            let is_framing = name == CONTENT_LENGTH || is_joined(name);
            !is_framing && name != POLITESSE_CRAWL && !is_hop_by_hop(name)
        })
}

/// Returns the end-to-end fields of a request, in order.
fn end_to_end(received: &HeaderMap, version: Version) -> HeaderMap {
    let nominated = nominated(received);
    // Capacity for `Via`, `TE` and `Host` as well.
    let mut fields = HeaderMap::with_capacity(received.len() + 3);
    if !received.contains_key(HOST) {
        fields.append(HOST, HeaderValue::from_static(""));
    }
    for (name, value) in received {
        if version == Version::HTTP_2 && name == COOKIE {
            join_cookie(&mut fields, value);
        } else if ![CONTENT_LENGTH, POLITESSE_CRAWL].contains(name)
            && !is_hop_by_hop(name)
            && !nominated.contains(name)
        {
            fields.append(name, value.clone());
        }
    }
    if received
        .get_all(TE)
        .iter()
        .any(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"))
    {
        // `TE` is hop-by-hop and was dropped. This proxy forwards trailers, so the origin
        // may send them.
        fields.append(TE, HeaderValue::from_static("trailers"));
    }
    fields
}

/// Removes the content codings that cannot be decoded for scanning.
fn narrow(fields: &mut HeaderMap) {
    let mut asked = fields.get_all(ACCEPT_ENCODING).iter();
    if asked.all(|line| accepts_only_decoded(line.as_bytes())) {
        return;
    }
    let Entry::Occupied(mut lines) = fields.entry(ACCEPT_ENCODING) else {
        return;
    };
    let values: Vec<HeaderValue> = lines.iter().cloned().collect();
    let asked: Vec<&[u8]> = values.iter().map(HeaderValue::as_bytes).collect();
    for (line, narrowed) in lines.iter_mut().zip(narrow_accept_encoding(&asked)) {
        if let Ok(narrowed) = HeaderValue::from_bytes(&narrowed) {
            *line = narrowed;
        }
    }
}

/// Joins a cookie that HTTP/2 has split into several fields, because HTTP/1.1 allows only
/// one (RFC 9113, section 8.2.3).
fn join_cookie(fields: &mut HeaderMap, value: &HeaderValue) {
    let joined = match fields.get(COOKIE) {
        None => value.clone(),
        Some(first) => {
            let bytes = [first.as_bytes(), b"; ", value.as_bytes()].concat();
            HeaderValue::from_bytes(&bytes).unwrap_or_else(|_| first.clone())
        }
    };
    fields.insert(COOKIE, joined);
}

/// `Content-Length` that a response may have.
#[derive(Debug, Clone, Copy)]
pub enum AllowedLength {
    /// Any value: there is no body to measure (HEAD, 304), or its length is unknown.
    Any,
    /// Only the length of the body.
    Exactly(u64),
    /// No `Content-Length`: the response is a 204 (RFC 9110, section 8.6), and HTTP/2
    /// clients would reset the stream.
    None,
}

/// Returns the response fields to forward to the client. `reserved` is the name of the
/// annotation field, which origins may not use.
pub fn of_response(
    got: HeaderMap,
    reserved: &HeaderName,
    length: AllowedLength,
    options: &Options,
) -> HeaderMap {
    let mut fields = if is_passed_back(&got, reserved, length) {
        got
    } else {
        end_to_end_back(&got, reserved, length, options)
    };
    append_via(&mut fields, options);
    fields
}

/// Reports whether every response field can be forwarded unchanged.
fn is_passed_back(got: &HeaderMap, reserved: &HeaderName, length: AllowedLength) -> bool {
    let is_ours = |name: &HeaderName| name == reserved || name == PROXY_STATUS || name == ALT_SVC;
    let mut lengths = 0;
    got.iter().all(|(name, value)| {
        if name == CONTENT_LENGTH {
            lengths += 1;
            return lengths == 1
                && is_only_spelling(value)
                && stated_length(value, length).is_some();
        }
        // `Connection` itself is hop-by-hop, so past this check it cannot name other
        // fields.
        !is_ours(name) && !is_hop_by_hop(name)
    })
}

/// Returns the response fields for the client, in order.
fn end_to_end_back(
    got: &HeaderMap,
    reserved: &HeaderName,
    length: AllowedLength,
    options: &Options,
) -> HeaderMap {
    let nominated = nominated(got);
    let mut fields = HeaderMap::with_capacity(got.len() + 2);
    for (name, value) in got {
        if name == CONTENT_LENGTH {
            keep_length(&mut fields, value, length);
        } else if name == PROXY_STATUS {
            if let Some(value) = without_member(value, &options.name) {
                fields.append(name, value);
            }
        } else if !is_hop_by_hop(name)
            && name != ALT_SVC
            && name != reserved
            && !nominated.contains(name)
        {
            fields.append(name, value.clone());
        }
    }
    fields
}

/// Returns the upload trailers to forward: none that frame or route the message, or that
/// are hop-by-hop (RFC 9110, section 6.5.1).
pub fn of_upload_trailers(sent: &HeaderMap) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(sent.len());
    for (name, value) in sent {
        let ours = *name == HOST || *name == CONTENT_LENGTH || *name == VIA;
        if !ours && !is_hop_by_hop(name) {
            fields.append(name, value.clone());
        }
    }
    fields
}

/// Returns the response trailers to forward, without those that use the proxy's own name
/// `own`.
pub fn of_trailers(got: &HeaderMap, reserved: &HeaderName, own: &str) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(got.len());
    for (name, value) in &of_upload_trailers(got) {
        let value = if name == PROXY_STATUS {
            without_member(value, own)
        } else {
            Some(value.clone())
        };
        if let Some(value) = value.filter(|_| name != ALT_SVC && name != reserved) {
            fields.append(name, value);
        }
    }
    fields
}

/// Keeps a `Content-Length` in its position if it states the actual length of the body.
fn keep_length(fields: &mut HeaderMap, value: &HeaderValue, length: AllowedLength) {
    // A list of equal lengths is dropped, and hyper writes a single one.
    let stated = stated_length(value, length);
    if let Some(stated) = stated.filter(|_| !fields.contains_key(CONTENT_LENGTH)) {
        fields.append(CONTENT_LENGTH, stated.into());
    }
}

/// Returns the length that a `Content-Length` states, or `None` if the body has a
/// different one.
fn stated_length(value: &HeaderValue, length: AllowedLength) -> Option<u64> {
    let stated = value.to_str().ok()?.parse().ok()?;
    let is_true = match length {
        AllowedLength::Any => true,
        AllowedLength::Exactly(length) => stated == length,
        AllowedLength::None => false,
    };
    is_true.then_some(stated)
}

/// Reports whether a length is spelled as the proxy would write it: without leading zeros
/// or a sign.
fn is_only_spelling(value: &HeaderValue) -> bool {
    let text = value.as_bytes();
    text == b"0"
        || text
            .first()
            .is_some_and(|digit| (b'1'..=b'9').contains(digit))
}

fn append_via(fields: &mut HeaderMap, options: &Options) {
    if let Some(entry) = &options.via {
        fields.append(VIA, entry.clone());
    }
}

/// Removes the members with the proxy's own name from a `Proxy-Status` line of an origin.
/// Returns `None` if nothing is left, or if the line is not a list by itself: a client
/// that joins it with other lines (RFC 9651, section 4.2) would read a different list,
/// possibly with our name in it, or no valid list.
fn without_member(value: &HeaderValue, name: &str) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    let mut members: List = Parser::new(text).parse().ok()?;
    if members.is_empty() {
        return None;
    }
    if !members.iter().any(|member| is_named(member, name)) {
        return Some(value.clone());
    }
    members.retain(|member| !is_named(member, name));
    HeaderValue::from_str(&members.serialize()?).ok()
}

fn is_named(member: &ListEntry, name: &str) -> bool {
    let ListEntry::Item(Item { bare_item, .. }) = member else {
        return false;
    };
    let token = bare_item.as_token().map(|token| token.as_str());
    let string = || bare_item.as_string().map(|string| string.as_str());
    let stated = token.or_else(string);
    stated.is_some_and(|stated| stated.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use http::header::UPGRADE;

    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    fn names(fields: &HeaderMap) -> Vec<&str> {
        fields.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn options() -> Options {
        Options {
            accept_encoding: AcceptEncoding::Decodable,
            name: "politesse".into(),
            via: via_entry("politesse"),
        }
    }

    // RFC 9110, section 7.6.1; RFC 9112, section 3.2.2.
    #[test]
    fn hop_by_hop_fields_end_here_and_the_order_is_kept() {
        let asked = fields(&[
            ("a", "1"),
            ("proxy-connection", "keep-alive"),
            ("host", "h.test"),
            ("connection", "close, X-Private"),
            ("x-private", "1"),
            ("x-other", "1"),
            ("proxy-authorization", "Basic x"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("z", "1"),
        ]);
        // An invalid name does not invalidate the others.
        let mut asked = asked;
        asked.append(
            CONNECTION,
            HeaderValue::from_bytes(b"X-Other, \xe4").unwrap(),
        );
        assert!(asked.contains_key(UPGRADE));
        let forwarded = of_request(asked, Version::HTTP_11, &options());
        assert_eq!(names(&forwarded), ["a", "host", "z", "te", "via"]);
    }

    // RFC 9112, section 3.2: `Host` comes first if the client sent none. The connection
    // to the origin writes its own framing.
    #[test]
    fn a_request_without_host_gets_an_empty_one_at_the_top() {
        let asked = fields(&[("a", "1"), ("content-length", "3")]);
        let forwarded = of_request(asked, Version::HTTP_2, &options());
        assert_eq!(names(&forwarded), ["host", "a", "via"]);
    }

    // Ours: a reused map equals one that is built anew.
    #[test]
    fn reused_fields_equal_rebuilt_ones() {
        let asked = fields(&[
            ("user-agent", "x"),
            ("host", "h.test"),
            ("x-a", "1"),
            ("accept-encoding", "gzip, br"),
            ("x-a", "2"),
        ]);
        assert!(is_passed_on(&asked, Version::HTTP_11));
        let built = end_to_end(&asked, Version::HTTP_11);
        assert!(built.iter().eq(asked.iter()));
        let got = fields(&[
            ("content-length", "3"),
            ("server", "x"),
            ("set-cookie", "a"),
        ]);
        let reserved = HeaderName::from_static("robots-directives");
        assert!(is_passed_back(&got, &reserved, AllowedLength::Exactly(3)));
        let built_back = end_to_end_back(&got, &reserved, AllowedLength::Exactly(3), &options());
        assert!(built_back.iter().eq(got.iter()));
    }

    // RFC 9113, section 8.2.3.
    #[test]
    fn a_cookie_split_by_http2_is_joined() {
        let asked = fields(&[("cookie", "a=1"), ("cookie", "b=2")]);
        let forwarded = of_request(asked, Version::HTTP_2, &options());
        assert_eq!(forwarded.get(COOKIE).unwrap(), "a=1; b=2");
    }

    // RFC 9110, section 7.6.3.
    #[test]
    fn a_loop_is_detected_by_our_own_name() {
        assert!(has_come_through(
            &fields(&[("via", "1.0 a, 1.1 Politesse (x)")]),
            "politesse"
        ));
        assert!(!has_come_through(
            &fields(&[("via", "1.1 edge (behind, the politesse (x) team)")]),
            "politesse"
        ));
        assert!(!has_come_through(
            &fields(&[("via", "1.1 politesse-2")]),
            "politesse"
        ));
    }

    // RFC 9209, section 2: an origin may not use the name of this proxy.
    #[test]
    fn an_origin_cannot_use_our_name_in_proxy_status() {
        let got = fields(&[
            (
                "proxy-status",
                "other; error=dns_error, politesse; error=http_request_denied",
            ),
            ("robots-directives", "x=()"),
            ("alt-svc", "h3=\":443\""),
        ]);
        let reserved = HeaderName::from_static("robots-directives");
        let passed = of_response(got, &reserved, AllowedLength::Any, &options());
        assert_eq!(names(&passed), ["proxy-status", "via"]);
        assert_eq!(passed.get(PROXY_STATUS).unwrap(), "other;error=dns_error");
    }

    // RFC 9651, section 4.2: several lines form one list, and a string may begin in one
    // line and end in another.
    #[test]
    fn an_origin_cannot_use_our_name_across_several_lines() {
        let got = fields(&[
            ("proxy-status", "o;details=\""),
            (
                "proxy-status",
                "a;d=\" ,politesse;error=http_request_denied, b;e=\"",
            ),
            ("proxy-status", "\""),
            ("proxy-status", ""),
            ("proxy-status", "other;error=dns_error"),
        ]);
        let reserved = HeaderName::from_static("robots-directives");
        for passed in [
            of_response(got.clone(), &reserved, AllowedLength::Any, &options()),
            of_trailers(&got, &reserved, "politesse"),
        ] {
            let lines: Vec<_> = passed.get_all(PROXY_STATUS).iter().collect();
            let joined = lines
                .iter()
                .map(|line| line.to_str().unwrap())
                .collect::<Vec<_>>();
            let list: List = Parser::new(&joined.join(", ")).parse().unwrap();
            assert!(
                !list.iter().any(|member| is_named(member, "politesse")),
                "{joined:?}"
            );
            assert!(joined.contains(&"other;error=dns_error"));
        }
    }

    // RFC 9110, section 6.5.1; RFC 9209, section 2.
    #[test]
    fn trailers_cannot_frame_or_use_our_name() {
        let sent = fields(&[
            ("content-length", "9"),
            ("proxy-authorization", "Basic x"),
            ("connection", "close"),
            ("via", "1.1 x"),
            ("x-sum", "1"),
        ]);
        assert_eq!(names(&of_upload_trailers(&sent)), ["x-sum"]);
        let got = fields(&[
            ("proxy-status", "politesse; error=http_request_denied"),
            ("robots-directives", "x=()"),
            ("alt-svc", "h3"),
            ("x-sum", "1"),
        ]);
        let reserved = HeaderName::from_static("robots-directives");
        assert_eq!(names(&of_trailers(&got, &reserved, "politesse")), ["x-sum"]);
    }

    // RFC 9112, section 6.3: there is one framing, written by the proxy.
    #[test]
    fn content_length_is_kept_only_if_it_matches_the_body() {
        let got = fields(&[("content-length", "03"), ("content-length", "3")]);
        let reserved = HeaderName::from_static("robots-directives");
        let passed = of_response(
            got.clone(),
            &reserved,
            AllowedLength::Exactly(3),
            &options(),
        );
        assert_eq!(
            passed.get_all(CONTENT_LENGTH).iter().collect::<Vec<_>>(),
            ["3"]
        );
        assert!(
            !of_response(got, &reserved, AllowedLength::Exactly(4), &options())
                .contains_key(CONTENT_LENGTH)
        );
    }
}
