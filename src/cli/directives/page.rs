//! Page that `directives` examines: its annotation, as the proxy would give it if the
//! page arrived complete and in time.
//!
//! Does not know how the answer is printed.

use std::io::{self, BufRead, Read as _};

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};
use thiserror::Error;

use crate::config::Settings;
use politesse_directives::{
    Annotation, AnnotationContext, DirectiveLimits, FieldFormat, PageReader, PartialReason,
    PreferenceListing, ResponseHead, SIGNATURE_BYTES, is_html,
};
use politesse_robots::crawler::{Crawler, ProductToken};

/// Request for the annotation of a response.
pub(super) struct PageQuery<'a> {
    pub(super) crawler: &'a Crawler,
    pub(super) method: Method,
    pub(super) status: StatusCode,
    pub(super) fields: HeaderMap,
    pub(super) now: Timestamp,
    pub(super) limits: PageLimits,
}

/// Error for more fields than a header map can hold, which is far more than a message
/// may have.
#[derive(Debug, Error)]
#[error("there are too many fields")]
pub(super) struct TooManyFields;

/// Builds the fields of a response. `content_type` comes first: if there are several
/// types, one HTML type is enough.
///
/// # Errors
///
/// [`TooManyFields`].
pub(super) fn fields(
    content_type: Option<HeaderValue>,
    others: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) -> Result<HeaderMap, TooManyFields> {
    let mut fields = HeaderMap::new();
    let first = content_type.map(|value| (CONTENT_TYPE, value));
    for (name, value) in first.into_iter().chain(others) {
        fields.try_append(name, value).map_err(|_| TooManyFields)?;
    }
    Ok(fields)
}

/// Limits on how much of a response is read.
#[derive(Clone, Copy)]
pub(super) struct PageLimits {
    /// Limits on the fields, and on the decoded body.
    pub(super) scan: DirectiveLimits,
    /// Maximum bytes of the body, as received, that are held for the annotation.
    pub(super) hold_bytes: usize,
}

impl PageLimits {
    /// Returns the configured limits.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            scan: settings.annotate.limits,
            hold_bytes: settings.annotate.hold_bytes,
        }
    }
}

impl PageQuery<'_> {
    /// Returns the annotation of the page in the file `page`, and how much of the file
    /// was read.
    ///
    /// # Errors
    ///
    /// The file cannot be read as far as the annotation needs it.
    pub(super) fn read_page(&self, mut page: impl BufRead) -> io::Result<(Annotation, PageBody)> {
        let has_type = [CONTENT_TYPE, CONTENT_ENCODING]
            .iter()
            .any(|name| self.fields.contains_key(name));
        // A pipe may return fewer bytes at a time than are needed to recognise HTML.
        let mut start = Vec::new();
        page.by_ref()
            .take(SIGNATURE_BYTES as u64)
            .read_to_end(&mut start)?;
        let is_other = !has_type && !is_html(None, &start);
        let (annotation, bytes) = self.annotation(start.as_slice().chain(page))?;
        let body = if is_other {
            PageBody::Other(bytes)
        } else {
            PageBody::Read(bytes)
        };
        Ok((annotation, body))
    }

    /// Returns the annotation of a page with this body, and how many bytes of the body
    /// were read for it.
    ///
    /// # Errors
    ///
    /// The body cannot be read as far as the annotation needs it.
    pub(super) fn annotation(&self, body: impl BufRead) -> io::Result<(Annotation, u64)> {
        let tokens = self.crawler.candidates().iter();
        let reading = AnnotationContext {
            tokens: &tokens.map(ProductToken::as_str).collect::<Vec<_>>(),
            now: self.now,
            robots: None,
            limits: self.limits.scan,
        };
        let response = ResponseHead {
            method: &self.method,
            status: self.status,
            fields: &self.fields,
            known: None,
        };
        let mut page = PageReader::new(reading, response);
        let hold = u64::try_from(self.limits.hold_bytes).unwrap_or(u64::MAX);
        let mut held = body.take(hold);
        while page.wants_more() {
            let chunk = held.fill_buf()?;
            let bytes = chunk.len();
            // A body longer than the limit lacks its rest; a body that ends earlier is
            // complete.
            if 0 < bytes {
                page.push(chunk);
            } else if held.limit() == 0 {
                page.miss(PartialReason::HeadLimit);
            } else {
                page.finish();
            }
            held.consume(bytes);
        }
        Ok((page.annotation(), hold - held.limit()))
    }
}

/// Annotation of the page on the command line, with everything that explains it.
pub(super) struct PageReport<'a> {
    /// Format of the field.
    pub(super) form: FieldFormat,
    pub(super) crawler: &'a Crawler,
    pub(super) annotation: Annotation,
    pub(super) body: PageBody,
    /// Name of the annotation field.
    pub(super) field: &'a HeaderName,
}

/// Number of bytes of the body that were read.
pub(super) enum PageBody {
    /// There was no body.
    Absent,
    /// Bytes that the annotation needed.
    Read(u64),
    /// Bytes read to find that a body without a type is not HTML.
    Other(u64),
}

/// Directive in force.
pub(super) struct ActiveDirective {
    /// Name and value as in the batch format (`max-snippet:20`).
    pub(super) directive: String,
    /// Places that state it, one letter each; empty if the field had no room for them.
    pub(super) sources: Vec<String>,
    /// Date from which it applies, if it has one.
    pub(super) date: Option<Timestamp>,
}

impl PageReport<'_> {
    /// Returns the directives in force for the crawler, parsed from the field's value
    /// as a crawler would (RFC 9651), so that users see exactly what crawlers see.
    pub(super) fn active_directives(&self) -> Vec<ActiveDirective> {
        let field = self.annotation.header_value(&FieldFormat {
            // Preferences are not directives.
            preferences: PreferenceListing::No,
            ..self.form
        });
        let members: Dictionary = Parser::new(&field).parse().unwrap_or_default();
        // The first key is for the crawler.
        match members.into_values().next() {
            Some(ListEntry::InnerList(list)) => {
                list.items.iter().filter_map(active_directive).collect()
            }
            Some(ListEntry::Item(_)) | None => Vec::new(),
        }
    }
}

fn active_directive(item: &Item) -> Option<ActiveDirective> {
    let name = item.bare_item.as_token()?;
    let value = item.params.get("value");
    let date = value.and_then(date);
    let suffix = match (value, date) {
        (_, Some(date)) => format!(":{date:.0}"),
        (Some(value), None) => format!(":{}", text(value)),
        (None, None) => String::new(),
    };
    Some(ActiveDirective {
        directive: format!("{name}{suffix}"),
        sources: item.params.get("src").map_or(Vec::new(), letters),
        date,
    })
}

fn date(value: &BareItem) -> Option<Timestamp> {
    let seconds = value.as_date()?.unix_seconds();
    Timestamp::from_second(i64::from(seconds)).ok()
}

fn letters(value: &BareItem) -> Vec<String> {
    text(value).split_whitespace().map(str::to_owned).collect()
}

/// Returns tokens and strings unquoted, and other values as in the field.
fn text(value: &BareItem) -> String {
    match (value.as_token(), value.as_string()) {
        (Some(token), _) => token.to_string(),
        (None, Some(string)) => string.to_string(),
        (None, None) => sfv::ItemSerializer::new().bare_item(value).finish(),
    }
}
