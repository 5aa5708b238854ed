//! What a response says about its own use (`noindex`, `max-snippet:20`): from
//! its fields, and from `<meta>` elements in the head of HTML.
//!
//! draft-illyes-repext has two of the directives, vendors' documents the rest.
//! All of them restrict; several statements add up, and the strictest value
//! counts, so that no reading grants what another forbids. A name never opts
//! out of what everyone is told.
//!
//! Nothing is enforced here. In reading order, and a module uses only those
//! below it:

mod response;

mod gathering;

pub mod preferences;

mod meta_scanner;

mod page_encoding;

mod head_reader;

mod meta_search;

mod head;

mod open_elements;

mod findings;

mod tokenizer;

mod tag;

mod coding;

mod media_type;

mod reference;

mod field;

mod annotation;

mod quotations;

mod header;

mod segment;

mod set;

mod vocabulary;

mod date;

use jiff::Timestamp;

pub use annotation::{Annotation, Known, State, Why};
pub use coding::{BodyDecoder, narrow_accept_encoding};
pub use field::{Form, General, Keys, Listed};
pub use findings::{Meta, Notice};
pub use gathering::Gathering;
pub use head_reader::ScanStatus;
pub use media_type::{SIGNATURE_BYTES, is_html};
pub use meta_scanner::{MetaScanner, MetaScope, ScanOptions};
pub use quotations::Quotations;
pub use response::{Page, Response};
pub use set::{Directive, DirectiveSet, Source};

use politesse_robots::RobotsTxt;
use politesse_robots::crawler::Crawler;

/// Which crawler the directives are read for, and when.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// The crawler's product tokens; none: only what everyone is told counts.
    /// The first names it in the annotation.
    pub tokens: &'a [&'a str],
    /// Decides whether an `unavailable_after` has been reached.
    pub now: Timestamp,
    /// What the robots.txt in force may say about uses of the content.
    pub robots: Option<Robots<'a>>,
    /// How much is read, and what counts.
    pub limits: Limits,
}

/// The robots.txt in force, for a crawler that asks for a path under it.
#[derive(Debug, Clone, Copy)]
pub struct Robots<'a> {
    /// What it says.
    pub text: &'a RobotsTxt,
    /// Who asks.
    pub crawler: &'a Crawler,
    /// The path and query asked for, as sent.
    pub path: &'a str,
}

/// How much of a response is read, and what of it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes read of each field line.
    /// draft-illyes-repext-03, section 3.1.1, wants 8 KiB or more.
    pub field_limit: usize,
    /// Bytes read of a page, its content codings taken off.
    pub scan_limit: usize,
    /// What counts where both fields are sent.
    pub both_fields: BothFields,
    /// Which `<meta>` elements are looked for.
    pub meta_scope: MetaScope,
}

/// What counts where an origin sends `Robots-Tag` and `X-Robots-Tag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BothFields {
    /// Both.
    Union,
    /// `Robots-Tag` alone.
    RobotsTag,
}

impl Limits {
    /// How a page is scanned.
    fn scan(&self) -> ScanOptions {
        ScanOptions {
            limit: self.scan_limit,
            scope: self.meta_scope,
        }
    }
}

impl Default for Limits {
    /// What the configuration has where it says nothing.
    fn default() -> Self {
        Self {
            field_limit: 32 * 1024,
            scan_limit: 512 * 1024,
            both_fields: BothFields::Union,
            meta_scope: MetaScope::Head,
        }
    }
}

#[cfg(test)]
mod tests;
