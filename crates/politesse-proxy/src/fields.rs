//! Fields of a message that are passed on, and those that end at this proxy.
//!
//! RFC 9110, section 7.6.1. A map of which every field is passed on is passed on
//! itself. From any other a new one is built in the order received, because
//! `HeaderMap::remove` would move the last field into the gap. Does not know the
//! annotation, but for the name of its field.

use std::sync::Arc;

use http::header::Entry;
use http::header::{
    ACCEPT_ENCODING, ALT_SVC, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TE, TRANSFER_ENCODING, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use sfv::{FieldType, Item, List, ListEntry, Parser};

use politesse_decision::label::{CrawlLabel, InvalidLabel};
use politesse_directives::{accepts_only_decoded, narrow_accept_encoding};

/// Field of RFC 9209.
pub const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Field of a request that states the label of its crawl. It ends at this proxy.
const POLITESSE_CRAWL: HeaderName = HeaderName::from_static("politesse-crawl");

/// Settings of the fields that are passed on.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of this proxy (`proxy.name`).
    pub name: Arc<str>,
    /// Entry that the proxy adds to `Via`, if it adds one (`proxy.via`). Written
    /// once, because each message gets it twice: as a request and as a response.
    pub via: Option<HeaderValue>,
    /// Content codings that are asked for (`directives.accept_encoding`).
    pub accept_encoding: AcceptEncoding,
}

/// Content codings that an origin is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptEncoding {
    /// Codings that the client accepts and that can be decoded here, so that
    /// pages can be scanned.
    Decodable,
    /// All of the client's.
    AsIs,
}

/// Returns the entry of the proxy `name` in `Via`; `None` if it is no field
/// value.
pub fn via_entry(name: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("1.1 {name}")).ok()
}

/// Reports whether a field is about one connection, even if `Connection` does
/// not name it.
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

/// Returns the names of the fields that `Connection` says to be about this
/// connection.
fn nominated(fields: &HeaderMap) -> Vec<HeaderName> {
    let lines = fields.get_all(CONNECTION).iter();
    lines.flat_map(names_in).collect()
}

fn names_in(connection: &HeaderValue) -> impl Iterator<Item = HeaderName> {
    let names = connection.as_bytes().split(|byte| *byte == b',');
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
}

/// Reports whether this value of `Connection` names a field that frames or
/// routes the message. Without that field other readers would understand the
/// message differently.
pub fn nominates_framing(connection: &HeaderValue) -> bool {
    names_in(connection).any(|name| matches!(name, CONTENT_LENGTH | HOST | TRANSFER_ENCODING))
}

/// Reports whether a message has come through the proxy `name` before, as its
/// `Via` says (RFC 9110, section 7.6.3).
pub fn has_come_through(fields: &HeaderMap, name: &str) -> bool {
    fields
        .get_all(VIA)
        .iter()
        .filter_map(|value| value.to_str().ok())
        // A name in a comment is no hop.
        .map(without_comments)
        .any(|value| is_hop_of(&value, name))
}

/// Removes comments, which stand in parentheses (RFC 9110, section 5.6.5).
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

/// Returns the label of the crawl that a request belongs to, if it states one.
///
/// # Errors
///
/// [`InvalidLabel`], also for two such fields.
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

/// Returns the fields of a request that are passed on to the origin, without
/// those that frame it. `Host` is among them with the value received, or empty at
/// the top if there was none: it is written anew from the permit, in its place.
pub fn of_request(received: HeaderMap, version: Version, options: &Options) -> HeaderMap {
    let mut fields = if is_passed_on(&received, version) {
        received
    } else {
        end_to_end(&received, version)
    };
    if options.accept_encoding == AcceptEncoding::Decodable {
        // What cannot be decoded cannot be scanned, so that it is not asked
        // for.
        narrow(&mut fields);
    }
    append_via(&mut fields, options);
    fields
}

/// Reports whether every field of a request is passed on as it is.
fn is_passed_on(received: &HeaderMap, version: Version) -> bool {
    let is_joined = |name: &HeaderName| version == Version::HTTP_2 && name == COOKIE;
    let mut names = received.keys();
    // `Connection` is no end-to-end field, so that here it names none.
    received.contains_key(HOST)
        && names.all(|name| {
            let is_framing = name == CONTENT_LENGTH || is_joined(name);
            !is_framing && name != POLITESSE_CRAWL && !is_hop_by_hop(name)
        })
}

/// Returns the fields of a request that are not about one connection, in order.
fn end_to_end(received: &HeaderMap, version: Version) -> HeaderMap {
    let nominated = nominated(received);
    // With room for `Via`, `TE` and `Host`.
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
        // `TE` is about one connection and was left out. Trailers are passed on
        // here, so the origin may send them.
        fields.append(TE, HeaderValue::from_static("trailers"));
    }
    fields
}

/// Removes the content codings that pages could not be scanned in.
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

/// Joins a cookie that HTTP/2 has split into several fields, which HTTP/1.1 may
/// not do (RFC 9113, section 8.2.3).
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

/// Length that a response may state.
#[derive(Debug, Clone, Copy)]
pub enum AllowedLength {
    /// Any: there is no body to measure (HEAD, 304), or its length is unknown.
    Any,
    /// That of the body.
    Exactly(u64),
    /// None: it is a 204 (RFC 9110, section 8.6), whose stream HTTP/2 clients would reset.
    None,
}

/// Returns the fields of a response that are passed on to the client. `reserved`
/// is the name of the annotation field, which no origin may use.
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

/// Reports whether every field of a response is passed on as it is.
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
        // `Connection` is no end-to-end field, so that here it names none.
        !is_ours(name) && !is_hop_by_hop(name)
    })
}

/// Returns the fields of a response that are for its client, in order.
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

/// Returns the trailers of an upload that are passed on: none that frames,
/// routes, or is about one connection (RFC 9110, section 6.5.1).
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

/// Returns the trailers of a response that are passed on, without those that use
/// our name `own`.
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

/// Keeps a `Content-Length` in its place if it says the length that the body has.
fn keep_length(fields: &mut HeaderMap, value: &HeaderValue, length: AllowedLength) {
    // A list of equal lengths is left out, and hyper writes one.
    let stated = stated_length(value, length);
    if let Some(stated) = stated.filter(|_| !fields.contains_key(CONTENT_LENGTH)) {
        fields.append(CONTENT_LENGTH, stated.into());
    }
}

/// Returns the length that a `Content-Length` states, unless the body has
/// another.
fn stated_length(value: &HeaderValue, length: AllowedLength) -> Option<u64> {
    let stated = value.to_str().ok()?.parse().ok()?;
    let is_true = match length {
        AllowedLength::Any => true,
        AllowedLength::Exactly(length) => stated == length,
        AllowedLength::None => false,
    };
    is_true.then_some(stated)
}

/// Reports whether a length is spelled as it would be written here: without
/// zeros or a sign before it.
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

/// Removes from a line of an origin's `Proxy-Status` the members with our own name.
/// Returns `None` if nothing is left, or if the line is no list by itself: whoever joins
/// it with the others (RFC 9651, section 4.2) would read another one, with our name in
/// it perhaps, or none at all.
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
    fn what_is_about_the_connection_ends_here_and_the_order_is_kept() {
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
        // A name that is none leaves the others what they are.
        let mut asked = asked;
        asked.append(
            CONNECTION,
            HeaderValue::from_bytes(b"X-Other, \xe4").unwrap(),
        );
        assert!(asked.contains_key(UPGRADE));
        let forwarded = of_request(asked, Version::HTTP_11, &options());
        assert_eq!(names(&forwarded), ["a", "host", "z", "te", "via"]);
    }

    // RFC 9112, section 3.2: `Host` comes first if the client sent none. Framing
    // is for the connection to the origin to write.
    #[test]
    fn a_request_without_host_gets_a_place_for_it() {
        let asked = fields(&[("a", "1"), ("content-length", "3")]);
        let forwarded = of_request(asked, Version::HTTP_2, &options());
        assert_eq!(names(&forwarded), ["host", "a", "via"]);
    }

    // Ours: a map that is passed on whole equals one that is built anew.
    #[test]
    fn fields_that_all_pass_are_passed_on_in_order() {
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
    fn a_loop_is_seen_by_our_own_name() {
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

    // RFC 9209, section 2: an origin must not speak in our name.
    #[test]
    fn an_origin_cannot_speak_in_our_name() {
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

    // RFC 9651, section 4.2: lines are one list, and a string may begin in one of them and
    // end in another.
    #[test]
    fn an_origin_cannot_speak_in_our_name_over_several_lines() {
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
    fn trailers_neither_frame_nor_speak_in_our_name() {
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

    // RFC 9112, section 6.3: one framing, and it is ours.
    #[test]
    fn a_length_is_kept_only_if_it_is_the_bodys() {
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
