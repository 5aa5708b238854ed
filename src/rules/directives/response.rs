//! One response from its first field to the end of its head: what of it is to
//! be looked at, and what is missed.
//!
//! The caller brings the octets of the body, with content codings taken off,
//! and says when there are no more. Which directives there are is not known
//! here.

use http::header::{CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderMap, Method, StatusCode};

use super::html::{MetaScanner, Scan};
use super::{Annotation, Gathering, Reading, Why};

/// A response before its body.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// The method of the request it answers.
    pub method: &'a Method,
    /// Its status.
    pub status: StatusCode,
    /// Its fields, as the origin sent them.
    pub fields: &'a HeaderMap,
    /// Octets scanned of its body, at most.
    pub scan_limit: usize,
}

/// Reads the directives of one response, for one crawler.
///
/// ```
/// use politesse::rules::directives::{Page, Reading, Response};
///
/// let reading = Reading {
///     tokens: &["ExampleBot"],
///     now: jiff::Timestamp::UNIX_EPOCH,
///     field_limit: 32 * 1024,
/// };
/// let mut fields = http::HeaderMap::new();
/// fields.insert("content-type", http::HeaderValue::from_static("text/html"));
/// let mut page = Page::new(reading, Response {
///     method: &http::Method::GET,
///     status: http::StatusCode::OK,
///     fields: &fields,
///     scan_limit: 512 * 1024,
/// });
/// let mut body = [&b"<meta name=robots "[..], b"content=noindex>", b"<body>"].into_iter();
/// while page.wants_more() {
///     match body.next() {
///         Some(chunk) => page.push(chunk),
///         None => page.finish(),
///     }
/// }
/// let value = page.annotation().header_value();
/// assert_eq!(value, "examplebot=(noindex;src=m);state=complete");
/// ```
#[derive(Debug)]
pub struct Page<'a> {
    gathering: Gathering<'a>,
    scanner: Option<MetaScanner>,
    part: Part,
}

/// How much of the representation the body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All of it.
    Whole,
    /// Its beginning (206).
    Beginning,
}

/// What is to be done about a body.
enum Plan {
    /// It can hold no metas.
    Nothing,
    Scan(MetaScanner, Part),
    Miss(Why),
}

impl<'a> Page<'a> {
    /// Reads the fields of a response.
    pub fn new(reading: Reading<'a>, response: Response<'_>) -> Self {
        let mut gathering = Gathering::new(reading);
        for (name, value) in response.fields {
            gathering.field(name.as_str(), value.as_bytes());
        }
        let (scanner, part) = match response.plan() {
            Plan::Nothing => (None, Part::Whole),
            Plan::Scan(scanner, part) => (Some(scanner), part),
            Plan::Miss(why) => {
                gathering.miss(why);
                (None, Part::Whole)
            }
        };
        Self {
            gathering,
            scanner,
            part,
        }
    }

    /// Whether more of the body is needed. If not from the start, the body
    /// does not matter.
    pub fn wants_more(&self) -> bool {
        let scanner = self.scanner.as_ref();
        scanner.is_some_and(|scanner| scanner.outcome() == Scan::More)
    }

    /// Takes in the next octets of the body, content codings taken off.
    pub fn push(&mut self, chunk: &[u8]) {
        if let Some(scanner) = &mut self.scanner {
            scanner.push(chunk);
        }
    }

    /// Notes that the body has ended. A body that is the beginning of a page
    /// may end before the head does.
    pub fn finish(&mut self) {
        if self.part == Part::Beginning && self.wants_more() {
            self.gathering.miss(Why::Range);
        }
        if let Some(scanner) = &mut self.scanner {
            scanner.finish();
        }
    }

    /// Notes that no more of the body will be looked at, and why.
    pub fn miss(&mut self, why: Why) {
        if self.wants_more() {
            self.gathering.miss(why);
            self.finish();
        }
    }

    /// Notes a failure of ours: the annotation will say `unknown`.
    pub fn fail(&mut self) {
        self.gathering.fail();
    }

    /// What has been found. A page that still wanted more is partial.
    pub fn annotation(mut self) -> Annotation {
        if let Some(scanner) = &self.scanner {
            self.gathering.scanned(scanner);
        }
        self.gathering.annotation()
    }
}

impl Response<'_> {
    fn plan(&self) -> Plan {
        if self.status == StatusCode::NOT_MODIFIED {
            return Plan::Miss(Why::NotModified);
        }
        let is_empty = matches!(
            self.status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT
        );
        if !self.status.is_success() || is_empty {
            return Plan::Nothing;
        }
        let is_part = self.status == StatusCode::PARTIAL_CONTENT;
        if is_part && !self.holds_beginning() {
            return Plan::Miss(Why::Range);
        }
        let content_type = self.fields.get(CONTENT_TYPE).map(|value| value.as_bytes());
        let Some(scanner) = MetaScanner::for_type(content_type, self.scan_limit) else {
            return Plan::Nothing;
        };
        if self.method == Method::HEAD {
            Plan::Miss(Why::Method)
        } else if self.is_coded() {
            Plan::Miss(Why::Coding)
        } else if is_part {
            Plan::Scan(scanner, Part::Beginning)
        } else {
            Plan::Scan(scanner, Part::Whole)
        }
    }

    /// Whether the part in a 206 begins at octet 0. Parts in a multipart body
    /// have no Content-Range outside (RFC 9110, section 15.3.7.2).
    fn holds_beginning(&self) -> bool {
        let range = self.fields.get(CONTENT_RANGE);
        let range = range.map(|value| value.as_bytes().trim_ascii());
        let Some((unit, range)) = range.and_then(|range| range.split_at_checked(6)) else {
            return false;
        };
        unit.eq_ignore_ascii_case(b"bytes ") && range.trim_ascii_start().starts_with(b"0-")
    }

    fn is_coded(&self) -> bool {
        let lines = self.fields.get_all(CONTENT_ENCODING).iter();
        let mut codings = lines.flat_map(|line| line.as_bytes().split(|&octet| octet == b','));
        codings.any(|coding| {
            let coding = coding.trim_ascii();
            !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity")
        })
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use jiff::Timestamp;

    use super::*;

    fn page(method: &Method, status: u16, fields: &[(&str, &str)]) -> Page<'static> {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let reading = Reading {
            tokens: &[],
            now: Timestamp::UNIX_EPOCH,
            field_limit: 32 * 1024,
        };
        let response = Response {
            method,
            status: StatusCode::from_u16(status).unwrap(),
            fields: &map,
            scan_limit: 1024,
        };
        Page::new(reading, response)
    }

    const HTML: (&str, &str) = ("content-type", "text/html");

    macro_rules! unread {
        ($($name:ident: $method:ident $status:literal $fields:expr => $why:expr;)*) => {$(
            #[test]
            fn $name() {
                let page = page(&Method::$method, $status, &$fields);
                assert!(!page.wants_more());
                let why: Option<&str> = $why;
                assert_eq!(page.annotation().why(), why);
            }
        )*};
    }

    // Ours; of ranges, RFC 9110, section 15.3.7.
    unread! {
        a_head_request_has_no_metas: HEAD 200 [HTML] => Some("method");
        a_head_request_of_an_image_has_all: HEAD 200 [("content-type", "image/png")] => None;
        a_304_repeats_no_metas: GET 304 [] => Some("not-modified");
        an_error_page_is_not_read: GET 404 [HTML] => None;
        no_content_has_no_metas: GET 204 [] => None;
        a_coding_hides_the_page: GET 200 [HTML, ("content-encoding", "gzip")] => Some("coding");
        a_later_part_may_lack_the_head: GET 206 [HTML, ("content-range", "bytes 1-9/10")] => Some("range");
        parts_may_lack_the_head: GET 206 [("content-type", "multipart/byteranges")] => Some("range");
    }

    #[test]
    fn the_identity_coding_hides_nothing() {
        let page = page(&Method::GET, 200, &[HTML, ("content-encoding", "identity")]);
        assert!(page.wants_more());
        // The caller gave up without a word.
        assert_eq!(page.annotation().why(), Some("head-limit"));
    }

    #[test]
    fn a_beginning_is_whole_if_the_head_ends_in_it() {
        let fields = [HTML, ("content-range", "bytes 0-9/100")];
        let mut page = page(&Method::GET, 206, &fields);
        page.push(b"<p>");
        page.finish();
        assert_eq!(page.annotation().why(), None);
    }

    #[test]
    fn a_page_given_up_is_partial_unless_its_head_has_ended() {
        for (chunk, why) in [("<title>", Some("time")), ("<body>", None)] {
            let mut page = page(&Method::GET, 200, &[HTML]);
            page.push(chunk.as_bytes());
            page.miss(Why::Time);
            assert_eq!(page.annotation().why(), why);
        }
    }
}
