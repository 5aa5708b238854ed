//! One response from its first field to the end of its head: what of it is to
//! be looked at, and what is missed.
//!
//! The caller brings the bytes of the body as they came, and says when there
//! are no more. Which directives there are is not known here.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use http::header::{CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::annotation::{Annotation, Known, Why};
use super::coding::BodyDecoder;
use super::gathering::Gathering;
use super::head_reader::ScanStatus;
use super::meta_scanner::MetaScanner;
use super::{Limits, Reading};

/// A response before its body.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// The method of the request it answers.
    pub method: &'a Method,
    /// Its status.
    pub status: StatusCode,
    /// Its fields, as the origin sent them.
    pub fields: &'a HeaderMap,
    /// What is known of the representation that a 304 speaks of.
    pub known: Option<&'a Known>,
}

/// Reads the directives of one response, for one crawler.
///
/// ```
/// use politesse_directives::{Form, Limits, Page, Reading, Response};
///
/// let reading = Reading {
///     tokens: &["ExampleBot"],
///     now: jiff::Timestamp::UNIX_EPOCH,
///     robots: None,
///     limits: Limits::default(),
/// };
/// let mut fields = http::HeaderMap::new();
/// fields.insert("content-type", http::HeaderValue::from_static("text/html"));
/// let mut page = Page::new(reading, Response {
///     method: &http::Method::GET,
///     status: http::StatusCode::OK,
///     fields: &fields,
///     known: None,
/// });
/// let mut body = [&b"<meta name=robots "[..], b"content=noindex>", b"<body>"].into_iter();
/// while page.wants_more() {
///     match body.next() {
///         Some(chunk) => page.push(chunk),
///         None => page.finish(),
///     }
/// }
/// let value = page.annotation().header_value(&Form::default());
/// assert_eq!(value, "examplebot=(noindex;src=m);state=complete");
/// ```
#[derive(Debug)]
pub struct Page<'a> {
    gathering: Gathering<'a>,
    body: Option<Box<Body>>,
}

/// A body that is looked at.
#[derive(Debug)]
struct Body {
    decoding: Option<BodyDecoder>,
    scanner: MetaScanner,
    part: Part,
}

/// How much of the representation a body is.
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
    Scan(Box<Body>),
    Miss(Why),
}

impl<'a> Page<'a> {
    /// Reads the fields of a response.
    pub fn new(reading: Reading<'a>, response: Response<'_>) -> Self {
        let mut gathering = Gathering::new(reading);
        let known = response.known;
        if let Some(known) = known.filter(|_| response.is_not_modified()) {
            gathering.repeat(known);
        }
        gathering.fields(response.fields);
        let body = match response.plan(&reading.limits) {
            Plan::Nothing => None,
            Plan::Scan(body) => Some(body),
            Plan::Miss(why) => {
                gathering.miss(why);
                None
            }
        };
        Self { gathering, body }
    }

    /// Whether more of the body is needed. If not from the start, the body
    /// does not matter.
    pub fn wants_more(&self) -> bool {
        let body = self.body.as_ref();
        body.is_some_and(|body| body.wants_more())
    }

    /// About how many bytes of memory looking at the body takes now; 0 if it
    /// is not looked at.
    pub fn memory(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.memory())
    }

    /// Takes in the next bytes of the body, as they came.
    pub fn push(&mut self, chunk: &[u8]) {
        self.guarded(|page| page.look_at(chunk));
    }

    /// Notes that the body has ended. A body that is the beginning of a page
    /// may end before the head does.
    pub fn finish(&mut self) {
        self.guarded(Self::end);
    }

    /// Looks at bytes of an origin's making. What panics in a library over
    /// them costs the annotation alone.
    fn guarded(&mut self, look: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| look(self))).is_err() {
            self.fail();
        }
    }

    fn look_at(&mut self, chunk: &[u8]) {
        let Some(body) = self.body.as_mut().filter(|body| body.wants_more()) else {
            return;
        };
        if let Err(why) = body.push(chunk) {
            self.miss(why);
        }
    }

    fn end(&mut self) {
        let Some(body) = self.body.as_mut().filter(|body| body.wants_more()) else {
            return;
        };
        let decoding = body.decoding.as_ref();
        let ended = decoding.map_or(Ok(()), BodyDecoder::finish);
        match (body.part, ended) {
            _ if body.scanner.has_head_ended() => {}
            (Part::Beginning, _) => self.gathering.miss(Why::Range),
            (Part::Whole, Err(why)) => self.gathering.miss(why),
            (Part::Whole, Ok(())) => {}
        }
        body.scanner.finish();
    }

    /// Notes that no more of the body will be looked at, and why.
    pub fn miss(&mut self, why: Why) {
        if let Some(body) = self.body.as_mut().filter(|body| body.wants_more()) {
            if !body.scanner.has_head_ended() {
                self.gathering.miss(why);
            }
            body.scanner.finish();
        }
    }

    /// Notes a failure of ours: the annotation will say `unknown`, and no more
    /// of the body is looked at.
    pub fn fail(&mut self) {
        self.gathering.fail();
        self.body = None;
    }

    /// Takes in a field in our name, which no origin may use.
    pub fn forged(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.gathering.forged(name, value);
    }

    /// What has been found. A page that still wanted more is partial.
    pub fn annotation(mut self) -> Annotation {
        if let Some(body) = &self.body {
            body.tell(&mut self.gathering);
        }
        self.gathering.annotation()
    }
}

impl Body {
    fn wants_more(&self) -> bool {
        self.scanner.status() == ScanStatus::More
    }

    fn memory(&self) -> usize {
        let decoding = self.decoding.as_ref();
        self.scanner.memory() + decoding.map_or(0, BodyDecoder::memory)
    }

    fn push(&mut self, chunk: &[u8]) -> Result<(), Why> {
        let scanner = &mut self.scanner;
        match &mut self.decoding {
            None => {
                scanner.push(chunk);
                Ok(())
            }
            Some(decoding) => decoding.push(chunk, &mut |bytes| scanned(scanner, bytes)),
        }
    }

    /// Tells what the scan found, and whether it found all.
    fn tell(&self, gathering: &mut Gathering<'_>) {
        let scanner = &self.scanner;
        scanner.metas().iter().for_each(|meta| gathering.meta(meta));
        let outside = scanner.outside().iter();
        outside.for_each(|meta| gathering.meta_outside(meta));
        let notices = scanner.notices().iter();
        notices.for_each(|notice| gathering.notice(notice));
        if !scanner.is_readable() {
            gathering.miss(Why::Charset);
        }
        if scanner.status() != ScanStatus::Done && !scanner.has_head_ended() {
            gathering.miss(Why::HeadLimit);
        }
    }
}

fn scanned(scanner: &mut MetaScanner, bytes: &[u8]) -> ControlFlow<()> {
    match scanner.push(bytes) {
        ScanStatus::More => ControlFlow::Continue(()),
        ScanStatus::Done | ScanStatus::Limit => ControlFlow::Break(()),
    }
}

impl Response<'_> {
    fn is_not_modified(&self) -> bool {
        self.status == StatusCode::NOT_MODIFIED
    }

    fn plan(&self, limits: &Limits) -> Plan {
        if self.is_not_modified() {
            return match self.known {
                Some(_) => Plan::Nothing,
                None => Plan::Miss(Why::NotModified),
            };
        }
        let is_empty = matches!(
            self.status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT
        );
        if !self.status.is_success() || is_empty {
            return Plan::Nothing;
        }
        let is_part = self.status == StatusCode::PARTIAL_CONTENT;
        let lines = self.fields.get_all(CONTENT_TYPE).into_iter();
        let lines: Vec<&[u8]> = lines.map(HeaderValue::as_bytes).collect();
        let content_type = lines.join(&b", "[..]);
        if is_part && is_parts(&content_type) {
            return Plan::Miss(Why::Range);
        }
        let Some(scanner) = MetaScanner::for_type(Some(&content_type), limits.scan()) else {
            return Plan::Nothing;
        };
        if is_part && !self.holds_beginning() {
            return Plan::Miss(Why::Range);
        }
        if self.method == Method::HEAD {
            return Plan::Miss(Why::Method);
        }
        match BodyDecoder::for_fields(self.fields, limits.scan_limit) {
            Err(why) => Plan::Miss(why),
            Ok(decoding) => Plan::Scan(Box::new(Body {
                decoding,
                scanner,
                part: if is_part {
                    Part::Beginning
                } else {
                    Part::Whole
                },
            })),
        }
    }

    /// Whether the part in a 206 begins at byte 0.
    fn holds_beginning(&self) -> bool {
        let range = self.fields.get(CONTENT_RANGE);
        let range = range.map(|value| value.as_bytes().trim_ascii());
        let Some((unit, range)) = range.and_then(|range| range.split_at_checked(6)) else {
            return false;
        };
        unit.eq_ignore_ascii_case(b"bytes ") && range.trim_ascii_start().starts_with(b"0-")
    }
}

/// Whether a 206 has several parts, which each have a type of their own (RFC
/// 9110, section 15.3.7.2).
fn is_parts(content_type: &[u8]) -> bool {
    const PARTS: &[u8] = b"multipart/byteranges";
    let start = content_type.trim_ascii_start().get(..PARTS.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(PARTS))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::{Form, Listed, MetaScope};
    use super::*;

    fn page(method: &Method, status: u16, fields: &[(&str, &str)]) -> Page<'static> {
        page_within(Limits::default(), (method, status), fields)
    }

    fn page_within(
        limits: Limits,
        (method, status): (&Method, u16),
        fields: &[(&str, &str)],
    ) -> Page<'static> {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let reading = Reading {
            tokens: &[],
            now: Timestamp::UNIX_EPOCH,
            robots: None,
            limits,
        };
        let response = Response {
            method,
            status: StatusCode::from_u16(status).unwrap(),
            fields: &map,
            known: None,
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
        a_coding_may_hide_the_page: GET 200 [HTML, ("content-encoding", "dcz")] => Some("coding");
        a_later_part_may_lack_the_head: GET 206 [HTML, ("content-range", "bytes 1-9/10")] => Some("range");
        a_later_part_of_an_image_has_all: GET 206 [("content-type", "image/png"), ("content-range", "bytes 1-9/10")] => None;
        parts_may_lack_the_head: GET 206 [("content-type", "multipart/byteranges")] => Some("range");
    }

    #[test]
    fn the_identity_coding_hides_nothing() {
        let page = page(&Method::GET, 200, &[HTML, ("content-encoding", "identity")]);
        assert!(page.wants_more());
        // The caller gave up without a word.
        assert_eq!(page.annotation().why(), Some("head-limit"));
    }

    // Ours: whichever of the two a reader believes.
    #[test]
    fn one_of_several_types_may_say_html() {
        let fields = [("content-type", "text/plain"), HTML];
        assert!(page(&Method::GET, 200, &fields).wants_more());
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

    /// The annotation of a page that comes whole, for a crawler without a name.
    fn annotation(limits: Limits, fields: &[(&str, &str)], body: &str) -> Annotation {
        let mut page = page_within(limits, (&Method::GET, 200), fields);
        page.push(body.as_bytes());
        page.finish();
        page.annotation()
    }

    // Fetch standard, section 3.5: the last line counts there, elsewhere the first.
    #[test]
    fn a_page_of_two_types_is_html_if_one_is() {
        for types in [["image/png", "text/html"], ["text/html", "image/png"]] {
            let fields = types.map(|it| ("content-type", it));
            let body = "<meta name=robots content=noindex>";
            let value = annotation(Limits::default(), &fields, body).header_value(&Form::default());
            assert_eq!(value, "*=(noindex;src=m);state=complete");
        }
    }

    // Directives.md, section 4.3: our failure; the response is still forwarded.
    #[test]
    fn a_panic_costs_the_annotation_alone() {
        let mut page = page(&Method::GET, 200, &[HTML]);
        assert!(page.wants_more());
        page.guarded(|_| panic!("as a library might"));
        assert!(!page.wants_more());
        let value = page.annotation().header_value(&Form::default());
        assert_eq!(value, "*=();state=unknown;why=internal");
    }

    // Directives.md, section 2.4: `directives.meta_scope`.
    #[test]
    fn a_meta_behind_the_head_is_told_on_demand() {
        let body = "<title>x</title><p><meta name=robots content=noindex>";
        let value = annotation(Limits::default(), &[HTML], body).header_value(&Form::default());
        assert_eq!(value, "*=();state=complete");
        let limits = Limits {
            meta_scope: MetaScope::Prefix,
            ..Limits::default()
        };
        let value = annotation(limits, &[HTML], body).header_value(&Form::default());
        assert_eq!(value, "*=();state=complete, outside=(noindex;src=m)");
    }

    // Ours: the head was seen to end, whatever becomes of what stands behind.
    #[test]
    fn what_is_missed_behind_the_head_is_not_missed() {
        let limits = Limits {
            meta_scope: MetaScope::Prefix,
            ..Limits::default()
        };
        let mut page = page_within(limits, (&Method::GET, 200), &[HTML]);
        page.push(b"<title>x</title><p>");
        assert!(page.wants_more());
        page.miss(Why::Time);
        assert!(!page.wants_more());
        assert_eq!(page.annotation().why(), None);
    }

    // Directives.md, sections 2.4 and 4.3.
    #[test]
    fn a_page_in_letters_that_are_not_read_is_not_complete() {
        let html = ("content-type", "text/html; charset=utf-32le");
        let annotation = annotation(Limits::default(), &[html], "<\0\0\0");
        assert_eq!(annotation.why(), Some("charset"));
    }

    // Directives.md, sections 2.4 and 4.3; RFC 2781, section 4.3, reads what has
    // no mark as big-endian, the Encoding standard as little-endian.
    #[test]
    fn a_page_in_two_bytes_a_letter_must_say_so() {
        let utf16 = |big: bool| -> String {
            let page = "<meta name=robots content=noindex><body>";
            let letters = page.chars().map(|letter| match big {
                true => format!("\0{letter}"),
                false => format!("{letter}\0"),
            });
            letters.collect()
        };
        let why = |content_type: &str, body: &str| {
            let fields = [("content-type", content_type)];
            let mut single = page_within(Limits::default(), (&Method::GET, 200), &fields);
            body.bytes().for_each(|byte| single.push(&[byte]));
            single.finish();
            let whole = annotation(Limits::default(), &fields, body);
            let single = single.annotation();
            assert_eq!(
                (whole.why(), whole.directives()),
                (single.why(), single.directives())
            );
            (whole.why(), whole.directives().len())
        };
        for big in [true, false] {
            assert_eq!(why("text/html", &utf16(big)), (Some("charset"), 0));
            assert_eq!(
                why("text/html; charset=utf-8", &utf16(big)),
                (Some("charset"), 0)
            );
            // Without a type, what begins so is no HTML.
            assert_eq!(why("", &utf16(big)), (None, 0));
        }
        assert_eq!(
            why("text/html; charset=utf-16", &utf16(true)),
            (Some("charset"), 0)
        );
        assert_eq!(why("text/html; charset=utf-16", &utf16(false)), (None, 1));
        assert_eq!(why("text/html; charset=utf-16be", &utf16(true)), (None, 1));
        assert_eq!(
            why("text/html; charset=utf-16be", &utf16(false)),
            (Some("charset"), 0)
        );
    }

    // Invariant 8: what a tag that does not end takes counts.
    #[test]
    fn a_long_token_is_charged() {
        let mut page = page(&Method::GET, 200, &[HTML]);
        page.push(b"<title>x</title>");
        let before = page.memory();
        page.push(b"<meta name=robots content=\"");
        page.push(&[b'a'; 100_000]);
        assert!(before + 200_000 < page.memory());
        page.push(b"\"><title>x</title>");
        assert!(page.memory() < before + 20_000);
    }

    // Directives.md, sections 3 and 4.2.
    #[test]
    fn what_a_page_prefers_is_evidence_and_listed_on_demand() {
        let fields = [HTML, ("content-usage", "train-ai=n")];
        let body = "<meta name=tdm-reservation content=1>\
            <link rel=license type=application/rsl+xml href=https://o.test/l.xml><body>";
        let annotation = annotation(Limits::default(), &fields, body);
        let form = Form {
            preferences: Listed::Yes,
            ..Form::default()
        };
        assert_eq!(
            annotation.header_value(&form),
            "*=(license;value=\"https://o.test/l.xml\";src=m \
             tdm-reservation;value=1;src=m train-ai;value=n;src=h);state=complete"
        );
        assert_eq!(
            annotation.header_value(&Form::default()),
            "*=();state=complete"
        );
        assert!(annotation.quotations().json().contains("train-ai=n"));
        assert!(
            annotation
                .quotations()
                .json()
                .contains("meta tdm-reservation")
        );
    }
}
