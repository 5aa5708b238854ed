//! Reader of one response: its fields, and its body up to the end of the HTML head.
//!
//! The caller pushes the bytes of the body as the origin sent them, and says when the
//! body ends. Does not know directives: `segment` reads them and `collector` gathers
//! them.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use http::header::{CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::annotation::{Annotation, PartialReason, SavedDirectives};
use super::coding::BodyDecoder;
use super::collector::DirectiveCollector;
use super::context::{AnnotationContext, DirectiveLimits};
use super::head_reader::ScanStatus;
use super::meta_scanner::MetaScanner;
use super::preferences::TdmRule;
use super::response_statements::ResponseStatements;

/// A response without its body.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Status of the response.
    pub status: StatusCode,
    /// Fields of the response, as the origin sent them.
    pub fields: &'a HeaderMap,
    /// Saved directives of the representation that a 304 confirms, if there are any.
    pub known: Option<&'a SavedDirectives>,
}

/// Reader of the directives of one response, for one crawler. The documentation of the
/// crate has an example.
#[derive(Debug)]
pub struct PageReader<'a> {
    /// Statements found so far.
    collector: DirectiveCollector<'a>,
    /// The body; `None` if it is not read.
    body: Option<Box<ScannedBody>>,
}

/// A body that is scanned.
#[derive(Debug)]
struct ScannedBody {
    /// Decoder of the content codings; `None` if there are none.
    decoder: Option<BodyDecoder>,
    /// Scanner of the decoded body.
    scanner: MetaScanner,
    /// Part of the representation that the body contains.
    extent: BodyExtent,
}

/// Part of the representation that a body contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyExtent {
    /// All of it.
    Whole,
    /// The beginning (206).
    Beginning,
}

/// Decision on whether a body is read.
enum BodyPlan {
    /// The body is not read, because it cannot contain a `<meta>` that counts.
    Ignore,
    /// The body is scanned.
    Scan(Box<ScannedBody>),
    /// The body is not read although it may contain a `<meta>` that counts: the
    /// annotation is partial.
    Miss(PartialReason),
}

impl<'a> PageReader<'a> {
    /// Creates a reader and reads the fields of the response.
    pub fn new(context: AnnotationContext<'a>, response: ResponseHead<'_>) -> Self {
        let mut collector = DirectiveCollector::new(context);
        let known = response.known;
        if let Some(known) = known.filter(|_| response.is_not_modified()) {
            collector.restore(known);
        }
        collector.add_fields(response.fields);
        let body = match response.body_plan(&context.limits) {
            BodyPlan::Ignore => None,
            BodyPlan::Scan(body) => Some(body),
            BodyPlan::Miss(why) => {
                collector.miss(why);
                None
            }
        };
        Self { collector, body }
    }

    /// Reports whether to push more of the body. If `false` before the first push, the
    /// body is not read at all.
    pub fn wants_more(&self) -> bool {
        let body = self.body.as_ref();
        body.is_some_and(|body| body.wants_more())
    }

    /// Estimates how many bytes of memory reading the body takes at present; 0 if it is
    /// not read.
    pub fn memory(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.memory())
    }

    /// Reads the next bytes of the body, still in its content coding. Call this while
    /// [`wants_more`](Self::wants_more) returns `true`; otherwise the bytes are
    /// ignored.
    pub fn push(&mut self, chunk: &[u8]) {
        self.guarded(|page| {
            let body = page.unfinished_body();
            if let Some(Err(why)) = body.map(|body| body.push(chunk)) {
                page.miss(why);
            }
        });
    }

    /// Ends the body. The annotation is partial if the head has not ended: in a 206
    /// with the beginning of a page, or if the content coding is cut off.
    pub fn finish(&mut self) {
        self.guarded(Self::end);
    }

    /// Gives up on the rest of the body. The annotation is partial for the reason
    /// `why`, unless the head has already ended.
    pub fn miss(&mut self, why: PartialReason) {
        if let Some(body) = self.unfinished_body() {
            let has_head_ended = body.scanner.has_head_ended();
            body.scanner.finish();
            if !has_head_ended {
                self.collector.miss(why);
            }
        }
    }

    /// Records an internal failure: the annotation will be `unknown`, and no more of
    /// the body is read.
    pub fn fail(&mut self) {
        self.collector.fail();
        self.body = None;
    }

    /// Adds the rule of the origin's TDM file that binds the path of the request.
    pub fn add_tdm_rule(&mut self, rule: &'a TdmRule) {
        self.collector.add_tdm_rule(rule);
    }

    /// Adds a field of the origin that has the name of the annotation field. It does
    /// not count as a directive: it is quoted as evidence, and the caller removes it
    /// from the response.
    pub fn add_forged(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.collector.add_forged(name, value);
    }

    /// Returns the annotation. It is partial if more of the body was needed and neither
    /// [`finish`](Self::finish) nor [`miss`](Self::miss) was called.
    pub fn annotation(mut self) -> Annotation {
        if let Some(body) = &self.body {
            body.report(&mut self.collector);
        }
        self.collector.annotation()
    }

    /// Returns the statements of the response, to be evaluated for any crawler later.
    /// `fields` are the fields of the response.
    pub fn statements(self, fields: &HeaderMap) -> ResponseStatements {
        let Self {
            mut collector,
            body,
        } = self;
        if let Some(body) = &body {
            body.report(&mut collector);
        }
        let state = collector.annotation().state();
        let mut statements = ResponseStatements::of_fields(fields, state);
        if let Some(body) = body {
            let metas = body.scanner.metas().iter();
            metas.for_each(|meta| statements.add_meta(meta));
            let notices = body.scanner.notices().iter();
            notices.for_each(|notice| statements.add_notice(notice));
        }
        statements
    }

    fn unfinished_body(&mut self) -> Option<&mut ScannedBody> {
        let body = self.body.as_deref_mut();
        body.filter(|body| body.wants_more())
    }

    /// Calls `read` and turns a panic in it into [`fail`](Self::fail).
    ///
    /// Decoders and scanner are many thousands of lines, most of them in libraries, and
    /// read bytes that an origin chose. A panic there must cost only the annotation,
    /// not the response.
    fn guarded(&mut self, read: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| read(self))).is_err() {
            self.fail();
        }
    }

    fn end(&mut self) {
        let Some(body) = self.unfinished_body() else {
            return;
        };
        let missed = body.missed_at_end();
        body.scanner.finish();
        if let Some(why) = missed {
            self.collector.miss(why);
        }
    }
}

impl ScannedBody {
    fn wants_more(&self) -> bool {
        self.scanner.status() == ScanStatus::More
    }

    fn memory(&self) -> usize {
        let decoder = self.decoder.as_ref();
        self.scanner.memory() + decoder.map_or(0, BodyDecoder::memory)
    }

    fn push(&mut self, chunk: &[u8]) -> Result<(), PartialReason> {
        let mut scan = |bytes: &[u8]| match self.scanner.push(bytes) {
            ScanStatus::More => ControlFlow::Continue(()),
            ScanStatus::Done | ScanStatus::Limit => ControlFlow::Break(()),
        };
        match &mut self.decoder {
            None => {
                let _ = scan(chunk);
                Ok(())
            }
            Some(decoder) => decoder.push(chunk, &mut scan),
        }
    }

    /// Returns the reason why the head may be incomplete although the body has ended;
    /// `None` if the head is complete.
    fn missed_at_end(&self) -> Option<PartialReason> {
        if self.scanner.has_head_ended() {
            return None;
        }
        match self.extent {
            BodyExtent::Beginning => Some(PartialReason::Range),
            BodyExtent::Whole => self.decoder.as_ref()?.finish().err(),
        }
    }

    /// Adds the findings of the scan to `collector`, and a reason if the unread part
    /// may contain more.
    fn report(&self, collector: &mut DirectiveCollector<'_>) {
        let scanner = &self.scanner;
        for meta in scanner.metas() {
            collector.add_meta(meta);
        }
        for meta in scanner.outside() {
            collector.add_meta_outside(meta);
        }
        for notice in scanner.notices() {
            collector.add_notice(notice);
        }
        if !scanner.is_readable() {
            collector.miss(PartialReason::Charset);
        }
        if scanner.status() != ScanStatus::Done && !scanner.has_head_ended() {
            collector.miss(PartialReason::HeadLimit);
        }
    }
}

impl ResponseHead<'_> {
    fn is_not_modified(&self) -> bool {
        self.status == StatusCode::NOT_MODIFIED
    }

    /// Decides whether the body is scanned. The order matters: a body that cannot
    /// contain metas must not make the annotation partial.
    fn body_plan(&self, limits: &DirectiveLimits) -> BodyPlan {
        if self.is_not_modified() {
            return match self.known {
                Some(_) => BodyPlan::Ignore,
                None => BodyPlan::Miss(PartialReason::NotModified),
            };
        }
        let is_empty = matches!(
            self.status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT
        );
        if !self.status.is_success() || is_empty {
            return BodyPlan::Ignore;
        }
        let is_partial = self.status == StatusCode::PARTIAL_CONTENT;
        let content_type = self.content_type();
        if is_partial && is_multipart(&content_type) {
            return BodyPlan::Miss(PartialReason::Range);
        }
        let Some(scanner) = MetaScanner::for_type(Some(&content_type), limits.scan()) else {
            return BodyPlan::Ignore;
        };
        if is_partial && !self.holds_beginning() {
            return BodyPlan::Miss(PartialReason::Range);
        }
        // Checked after the type: the response to HEAD for an image lacks no metas.
        if self.method == Method::HEAD {
            return BodyPlan::Miss(PartialReason::Method);
        }
        let extent = match is_partial {
            true => BodyExtent::Beginning,
            false => BodyExtent::Whole,
        };
        match BodyDecoder::for_fields(self.fields, limits.scan_limit) {
            Err(why) => BodyPlan::Miss(why),
            Ok(decoder) => BodyPlan::Scan(Box::new(ScannedBody {
                decoder,
                scanner,
                extent,
            })),
        }
    }

    /// Returns the types that the response declares. Several lines form one list (RFC
    /// 9110, section 5.3); one HTML type is enough.
    fn content_type(&self) -> Cow<'_, [u8]> {
        let mut lines = self.fields.get_all(CONTENT_TYPE).iter();
        let first = lines.next().map_or(&[][..], HeaderValue::as_bytes);
        let mut list = Cow::Borrowed(first);
        for line in lines {
            list.to_mut().extend_from_slice(b", ");
            list.to_mut().extend_from_slice(line.as_bytes());
        }
        list
    }

    /// Reports whether the part in a 206 begins at byte 0.
    fn holds_beginning(&self) -> bool {
        let value = self.fields.get(CONTENT_RANGE);
        let text = value.map(|value| value.as_bytes().trim_ascii());
        let Some((unit, range)) = text.and_then(|text| text.split_at_checked(6)) else {
            return false;
        };
        unit.eq_ignore_ascii_case(b"bytes ") && range.trim_ascii_start().starts_with(b"0-")
    }
}

/// Reports whether a 206 has several parts, each with its own type (RFC 9110, section
/// 15.3.7.2).
fn is_multipart(content_type: &[u8]) -> bool {
    const BYTERANGES: &[u8] = b"multipart/byteranges";
    let start = content_type.trim_ascii_start().get(..BYTERANGES.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(BYTERANGES))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::{FieldFormat, MetaScope, PreferenceListing};
    use super::*;

    fn page(method: &Method, status: u16, fields: &[(&str, &str)]) -> PageReader<'static> {
        page_within(DirectiveLimits::default(), (method, status), fields)
    }

    fn page_within(
        limits: DirectiveLimits,
        (method, status): (&Method, u16),
        fields: &[(&str, &str)],
    ) -> PageReader<'static> {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let reading = AnnotationContext {
            tokens: &[],
            now: Timestamp::UNIX_EPOCH,
            robots: None,
            limits,
        };
        let response = ResponseHead {
            method,
            status: StatusCode::from_u16(status).unwrap(),
            fields: &map,
            known: None,
        };
        PageReader::new(reading, response)
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

    // Ours; for ranges, RFC 9110, section 15.3.7.
    unread! {
        a_head_request_has_no_metas: HEAD 200 [HTML] => Some("method");
        a_head_request_for_an_image_is_complete: HEAD 200 [("content-type", "image/png")] => None;
        a_304_repeats_no_metas: GET 304 [] => Some("not-modified");
        an_error_page_is_not_read: GET 404 [HTML] => None;
        no_content_has_no_metas: GET 204 [] => None;
        a_coding_may_hide_the_page: GET 200 [HTML, ("content-encoding", "dcz")] => Some("coding");
        a_later_part_may_lack_the_head: GET 206 [HTML, ("content-range", "bytes 1-9/10")] => Some("range");
        a_later_part_of_an_image_is_complete: GET 206 [("content-type", "image/png"), ("content-range", "bytes 1-9/10")] => None;
        parts_may_lack_the_head: GET 206 [("content-type", "multipart/byteranges")] => Some("range");
    }

    #[test]
    fn the_identity_coding_hides_nothing() {
        let page = page(&Method::GET, 200, &[HTML, ("content-encoding", "identity")]);
        assert!(page.wants_more());
        // The caller stopped without calling `finish` or `miss`.
        assert_eq!(page.annotation().why(), Some("head-limit"));
    }

    // Ours: a reader may believe either of the two types.
    #[test]
    fn one_of_several_types_may_say_html() {
        let fields = [("content-type", "text/plain"), HTML];
        assert!(page(&Method::GET, 200, &fields).wants_more());
    }

    #[test]
    fn a_206_is_complete_if_the_head_ends_in_it() {
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
            page.miss(PartialReason::Time);
            assert_eq!(page.annotation().why(), why);
        }
    }

    /// Returns the annotation of a page that arrives whole, for a crawler without a
    /// name.
    fn annotation(limits: DirectiveLimits, fields: &[(&str, &str)], body: &str) -> Annotation {
        let mut page = page_within(limits, (&Method::GET, 200), fields);
        page.push(body.as_bytes());
        page.finish();
        page.annotation()
    }

    // Fetch standard, section 3.5: there the last line counts, elsewhere the first.
    #[test]
    fn a_page_of_two_types_is_html_if_one_is() {
        for types in [["image/png", "text/html"], ["text/html", "image/png"]] {
            let fields = types.map(|it| ("content-type", it));
            let body = "<meta name=robots content=noindex>";
            let value = annotation(DirectiveLimits::default(), &fields, body)
                .header_value(&FieldFormat::default());
            assert_eq!(value, "*=(noindex;src=m);state=complete");
        }
    }

    // Ours: the response is still forwarded (docs/annotation.md).
    #[test]
    fn a_panic_costs_only_the_annotation() {
        let mut page = page(&Method::GET, 200, &[HTML]);
        assert!(page.wants_more());
        page.guarded(|_| panic!("as a library might"));
        assert!(!page.wants_more());
        let value = page.annotation().header_value(&FieldFormat::default());
        assert_eq!(value, "*=();state=unknown;why=internal");
    }

    // Ours: `directives.meta_scope` (docs/annotation.md).
    #[test]
    fn a_meta_after_the_head_is_reported_if_configured() {
        let body = "<title>x</title><p><meta name=robots content=noindex>";
        let value = annotation(DirectiveLimits::default(), &[HTML], body)
            .header_value(&FieldFormat::default());
        assert_eq!(value, "*=();state=complete");
        let limits = DirectiveLimits {
            meta_scope: MetaScope::Prefix,
            ..DirectiveLimits::default()
        };
        let value = annotation(limits, &[HTML], body).header_value(&FieldFormat::default());
        assert_eq!(value, "*=();state=complete, outside=(noindex;src=m)");
    }

    // Ours: the head has ended, so no meta in it can be missing.
    #[test]
    fn a_body_given_up_after_the_head_is_complete() {
        let limits = DirectiveLimits {
            meta_scope: MetaScope::Prefix,
            ..DirectiveLimits::default()
        };
        let mut page = page_within(limits, (&Method::GET, 200), &[HTML]);
        page.push(b"<title>x</title><p>");
        assert!(page.wants_more());
        page.miss(PartialReason::Time);
        assert!(!page.wants_more());
        assert_eq!(page.annotation().why(), None);
    }

    // Ours: docs/annotation.md, on encodings.
    #[test]
    fn a_page_in_an_unreadable_encoding_is_partial() {
        let html = ("content-type", "text/html; charset=utf-32le");
        let annotation = annotation(DirectiveLimits::default(), &[html], "<\0\0\0");
        assert_eq!(annotation.why(), Some("charset"));
    }

    // Ours. RFC 2781, section 4.3, reads text without a mark as big-endian, the
    // Encoding standard as little-endian.
    #[test]
    fn a_utf_16_page_must_declare_its_encoding() {
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
            let mut single = page_within(DirectiveLimits::default(), (&Method::GET, 200), &fields);
            body.bytes().for_each(|byte| single.push(&[byte]));
            single.finish();
            let whole = annotation(DirectiveLimits::default(), &fields, body);
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
            // Without a type, a body that begins like this is not HTML.
            assert_eq!(why("", &utf16(big)), (None, 0));
        }
        assert_eq!(
            why("text/html; charset=utf-16", &utf16(true)),
            (Some("charset"), 0)
        );
        assert_eq!(why("text/html; charset=utf-16", &utf16(false)), (None, 1));
        assert_eq!(why("text/html; charset=utf-16be", &utf16(true)), (None, 1));
        let ascii = "<meta name=robots content=noindex><body>";
        assert_eq!(
            why("text/html; charset=utf-16", ascii),
            (Some("charset"), 0)
        );
        assert_eq!(
            why("text/html; charset=utf-16be", &utf16(false)),
            (Some("charset"), 0)
        );
    }

    // ARCHITECTURE.md, invariant 8: the memory of an unfinished tag counts.
    #[test]
    fn a_long_token_is_charged() {
        let mut page = page(&Method::GET, 200, &[HTML]);
        page.push(b"<title>x</title>");
        let before = page.memory();
        page.push(b"<meta name=robots content=\"");
        page.push(&[b'a'; 100_000]);
        assert!(before + 200_000 < page.memory());
        page.push(b"\"><title>x</title>");
        assert!(before + 100_000 < page.memory());
        assert!(page.memory() < before + 120_000);
    }

    // Ours: docs/annotation.md, on preferences.
    #[test]
    fn preferences_are_evidence_and_are_listed_if_configured() {
        let fields = [HTML, ("content-usage", "train-ai=n")];
        let body = "<meta name=tdm-reservation content=1>\
            <link rel=license type=application/rsl+xml href=https://o.test/l.xml><body>";
        let annotation = annotation(DirectiveLimits::default(), &fields, body);
        let form = FieldFormat {
            preferences: PreferenceListing::Yes,
            ..FieldFormat::default()
        };
        assert_eq!(
            annotation.header_value(&form),
            "*=(license;value=\"https://o.test/l.xml\";src=m \
             tdm-reservation;value=1;src=m train-ai;value=n;src=h);state=complete"
        );
        assert_eq!(
            annotation.header_value(&FieldFormat::default()),
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
