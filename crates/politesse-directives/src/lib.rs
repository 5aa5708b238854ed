//! Robots directives of a response: what its fields and its `<meta>` elements restrict
//! (`noindex`, `max-snippet:20`) for one crawler.
//!
//! # At a glance
//!
//! ```
//! use http::{HeaderMap, HeaderValue, Method, StatusCode};
//! use politesse_directives::{
//!     AnnotationContext, DirectiveLimits, FieldFormat, PageReader, ResponseHead,
//! };
//!
//! let context = AnnotationContext {
//!     tokens: &["ExampleBot"],
//!     now: jiff::Timestamp::UNIX_EPOCH,
//!     robots: None,
//!     limits: DirectiveLimits::default(),
//! };
//! let mut fields = HeaderMap::new();
//! fields.insert("content-type", HeaderValue::from_static("text/html"));
//! fields.insert("x-robots-tag", HeaderValue::from_static("otherbot: noai, examplebot: nofollow"));
//! let mut page = PageReader::new(context, ResponseHead {
//!     method: &Method::GET,
//!     status: StatusCode::OK,
//!     fields: &fields,
//!     known: None,
//! });
//! let mut body = [&b"<meta name=robots "[..], b"content=noindex>", b"<body>"].into_iter();
//! while page.wants_more() {
//!     match body.next() {
//!         Some(chunk) => page.push(chunk),
//!         None => page.finish(),
//!     }
//! }
//! let annotation = page.annotation();
//! assert_eq!(annotation.directives(), ["nofollow", "noindex"]);
//! assert_eq!(
//!     annotation.header_value(&FieldFormat::default()),
//!     "examplebot=(nofollow;src=x noindex;src=m);state=complete"
//! );
//! ```
//!
//! # The parts
//!
//! - [`PageReader`] reads one response: its fields, then its body as it arrives. It
//!   decodes content codings and stops at the end of the head.
//! - [`ResponseStatements`] keeps the statements of a stored response, so that they can
//!   be evaluated for any crawler later.
//! - [`DirectiveCollector`] takes field lines and metas one by one, for callers without
//!   a response.
//! - [`MetaScanner`] only finds the metas of a page.
//! - [`Annotation`] is the result: the directives in force, how complete they are
//!   ([`AnnotationState`]), and a field value with both ([`Annotation::header_value`],
//!   RFC 9651).
//! - [`preferences`] reads statements about uses of the content (AIPREF, Content
//!   Signals, TDMRep, RSL).
//! - [`denials`] tells which purposes of a crawler ([`CrawlPurpose`]) the statements
//!   deny.
//! - [`BodyDecoder`] decodes content codings, within limits.
//!
//! # What counts
//!
//! draft-illyes-repext defines two of the directives, vendors' documents the others.
//! All of them restrict. Several statements add up, and the strictest value counts, so
//! that no statement grants what another forbids. A directive for one crawler never
//! lifts a directive for all.
//!
//! Nothing is an error: text that cannot be read affects only itself. If part of a
//! response was not read, the result is [`AnnotationState::Partial`].
//!
//! # Not here
//!
//! The crate enforces nothing, fetches nothing and reads no clock.

mod annotation;
mod annotation_field;
mod coding;
mod collector;
mod context;
mod date;
pub mod denials;
mod directive_set;
mod field_line;
mod findings;
mod head;
mod head_reader;
mod media_type;
mod meta_scanner;
mod meta_search;
mod open_elements;
mod page_encoding;
mod page_reader;
pub mod preferences;
mod purpose;
mod quotations;
mod reference;
mod repair;
mod response_statements;
mod segment;
mod tag;
mod tokenizer;
mod vocabulary;

pub use annotation::{Annotation, AnnotationState, PartialReason, SavedDirectives};
pub use annotation_field::{FieldFormat, GeneralKey, PreferenceListing, TokenKeys};
pub use coding::{BodyDecoder, accepts_only_decoded, narrow_accept_encoding};
pub use collector::DirectiveCollector;
pub use context::{AnnotationContext, BothFields, DirectiveLimits, RobotsContext};
pub use directive_set::{Directive, DirectiveSet, DirectiveSource};
pub use findings::{Meta, Notice};
pub use head_reader::ScanStatus;
pub use media_type::{SIGNATURE_BYTES, is_html};
pub use meta_scanner::{MetaScanner, MetaScope, ScanOptions};
pub use page_reader::{PageReader, ResponseHead};
pub use purpose::{CrawlPurpose, PurposeSet, UnknownPurpose};
pub use quotations::Quotations;
pub use response_statements::ResponseStatements;

// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests;
