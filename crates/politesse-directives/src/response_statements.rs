//! Statements of one response, kept separately from it, so that its annotation can be
//! made later for any crawler.
//!
//! For stored responses: the crawler that asked, and the robots.txt in force, become
//! known only after the responses are read. Does not know how a response is read
//! (`page_reader`).

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::annotation::{Annotation, AnnotationState, PartialReason};
use super::collector::DirectiveCollector;
use super::context::AnnotationContext;
use super::findings::{Meta, Notice};
use super::quotations;

/// Statements of one response about its use, for any crawler, and how much of the
/// response was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseStatements {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fields: Vec<StatedField>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    metas: Vec<Meta>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notices: Vec<Notice>,
    /// How much of the response was read.
    state: AnnotationState,
    /// Bytes of all names and values that were added; 0 after deserialisation.
    #[serde(skip)]
    text_bytes: usize,
}

/// Field line of a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StatedField {
    name: String,
    /// Value; need not be UTF-8.
    value: Vec<u8>,
}

impl ResponseStatements {
    /// Maximum number of bytes of text kept of one response; with more, the annotation
    /// is partial.
    pub const BYTES_MAX: usize = DirectiveCollector::FIELD_BYTES_MAX;

    /// Begins with the statements in the fields.
    pub(super) fn of_fields(fields: &HeaderMap, state: AnnotationState) -> Self {
        let mut statements = Self {
            fields: Vec::new(),
            metas: Vec::new(),
            notices: Vec::new(),
            state,
            text_bytes: 0,
        };
        for (name, value) in fields {
            let is_statement = quotations::is_statement(name, value);
            if is_statement && statements.take_room(name.as_str().len() + value.len()) {
                statements.fields.push(StatedField {
                    name: name.to_string(),
                    value: value.as_bytes().to_vec(),
                });
            }
        }
        statements
    }

    /// Adds a `<meta>` element of the head.
    pub(super) fn add_meta(&mut self, meta: &Meta) {
        if self.take_room(meta.name.len() + meta.content.len()) {
            self.metas.push(meta.clone());
        }
    }

    /// Adds a statement of the head about uses of the content.
    pub(super) fn add_notice(&mut self, notice: &Notice) {
        let (Notice::TdmReservation(text) | Notice::TdmPolicy(text) | Notice::License(text)) =
            notice;
        if self.take_room(text.len()) {
            self.notices.push(notice.clone());
        }
    }

    /// Returns the annotation for the crawler of `context`.
    pub fn annotation(&self, context: AnnotationContext<'_>) -> Annotation {
        let mut collector = DirectiveCollector::new(context);
        let fields = self.fields.iter().filter_map(|field| {
            let name = HeaderName::from_bytes(field.name.as_bytes());
            name.ok().zip(HeaderValue::from_bytes(&field.value).ok())
        });
        collector.add_fields(&fields.collect());
        self.metas.iter().for_each(|meta| collector.add_meta(meta));
        let notices = self.notices.iter();
        notices.for_each(|notice| collector.add_notice(notice));
        match self.state {
            AnnotationState::Complete => {}
            AnnotationState::Partial(why) => collector.miss(why),
            AnnotationState::Unknown => collector.fail(),
        }
        collector.annotation()
    }

    /// Returns how much of the response was read.
    pub fn state(&self) -> AnnotationState {
        self.state
    }

    /// Returns approximately how many bytes of memory the statements take.
    pub fn bytes(&self) -> usize {
        let texts = self.fields.len() + self.metas.len() + self.notices.len();
        size_of::<Self>() + texts * size_of::<Meta>() + self.text_bytes
    }

    /// Reserves room for a text and reports whether it fits. A crawl has millions of
    /// responses, and some are made to be costly.
    fn take_room(&mut self, bytes: usize) -> bool {
        let has_room = self.text_bytes + bytes <= Self::BYTES_MAX;
        if has_room {
            self.text_bytes += bytes;
        } else if self.state == AnnotationState::Complete {
            self.state = AnnotationState::Partial(PartialReason::FieldLimit);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode};
    use jiff::Timestamp;

    use super::super::{DirectiveLimits, PageReader, ResponseHead};
    use super::*;

    fn context<'a>(tokens: &'a [&'a str]) -> AnnotationContext<'a> {
        AnnotationContext {
            tokens,
            now: Timestamp::UNIX_EPOCH,
            robots: None,
            limits: DirectiveLimits::default(),
        }
    }

    fn page<'a>(tokens: &'a [&'a str], fields: &HeaderMap, body: &str) -> PageReader<'a> {
        let head = ResponseHead {
            method: &Method::GET,
            status: StatusCode::OK,
            fields,
            known: None,
        };
        let mut page = PageReader::new(context(tokens), head);
        page.push(body.as_bytes());
        page.finish();
        page
    }

    // Ours: a stored response gives the same annotation as when it arrived.
    #[test]
    fn the_annotation_made_later_equals_the_one_made_at_once() {
        let mut fields = HeaderMap::new();
        for (name, value) in [
            ("content-type", "text/html"),
            ("x-robots-tag", "foobot: noai, otherbot: noarchive"),
            ("content-usage", "train-ai=n"),
            ("content-usage", "search=y"),
            ("link", "</a.css>; rel=preload"),
        ] {
            let name = HeaderName::from_static(name);
            fields.append(name, HeaderValue::from_static(value));
        }
        let body = "<meta name=barbot content=noindex><meta name=robots content=nofollow>\
                    <meta name=tdm-reservation content=1><body>";
        let statements = page(&[], &fields, body).statements(&fields);
        let json = serde_json::to_string(&statements).unwrap();
        assert!(!json.contains("preload"), "{json}");
        let read: ResponseStatements = serde_json::from_str(&json).unwrap();
        for tokens in [&["FooBot"][..], &["BarBot"], &["OtherBot", "BarBot"], &[]] {
            let at_once = page(tokens, &fields, body).annotation();
            assert_eq!(read.annotation(context(tokens)), at_once, "{tokens:?}");
        }
    }

    // Ours: memory does not grow with the amount of statements.
    #[test]
    fn a_response_that_says_too_much_is_partial() {
        let mut fields = HeaderMap::new();
        fields.append("content-type", HeaderValue::from_static("text/html"));
        let long = "noindex,".repeat(ResponseStatements::BYTES_MAX / 16);
        let body = format!(
            "<meta name=foobot content='{long}'><meta name=barbot content='{long}'>\
             <meta name=bazbot content='{long}'><body>"
        );
        let statements = page(&[], &fields, &body).statements(&fields);
        assert_eq!(statements.state().why_word(), Some("field-limit"));
        assert!(statements.bytes() < 2 * ResponseStatements::BYTES_MAX);
        let annotation = statements.annotation(context(&["FooBot"]));
        assert_eq!(annotation.directives(), ["noindex"]);
        assert_eq!(annotation.why(), Some("field-limit"));
    }
}
