//! Context of a reading: the crawler, the time, the robots.txt in force, limits.
//!
//! Does not know how anything is read.

use jiff::Timestamp;

use super::meta_scanner::{MetaScope, ScanOptions};
use politesse_robots::RobotsTxt;
use politesse_robots::crawler::Crawler;

/// The crawler for which directives are read, and everything else besides the response
/// that the result depends on.
#[derive(Debug, Clone, Copy)]
pub struct AnnotationContext<'a> {
    /// Product tokens of the crawler. If empty, only the directives for every crawler
    /// bind it. The first token names the crawler in the annotation.
    pub tokens: &'a [&'a str],
    /// Time at which the response arrived. Decides whether an `unavailable_after` date
    /// has passed.
    pub now: Timestamp,
    /// The robots.txt in force, for its preferences about uses of the content.
    pub robots: Option<RobotsContext<'a>>,
    /// Limits of the reading.
    pub limits: DirectiveLimits,
}

/// A robots.txt in force, and the request to evaluate it for.
#[derive(Debug, Clone, Copy)]
pub struct RobotsContext<'a> {
    /// The robots.txt.
    pub text: &'a RobotsTxt,
    /// The crawler of the request.
    pub crawler: &'a Crawler,
    /// Path and query of the request, as sent.
    pub path: &'a str,
}

/// Limits on how much of a response is read, and options for what counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectiveLimits {
    /// Bytes read of each field line.
    /// draft-illyes-repext-03, section 3.1.1, wants 8 KiB or more.
    pub field_limit: usize,
    /// Bytes read of a page, after decoding.
    pub scan_limit: usize,
    /// Fields that count if both are sent.
    pub both_fields: BothFields,
    /// Part of a page in which `<meta>` elements are looked for.
    pub meta_scope: MetaScope,
}

/// Fields that count if an origin sends `Robots-Tag` and `X-Robots-Tag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BothFields {
    /// Both.
    Union,
    /// `Robots-Tag` alone.
    RobotsTag,
}

impl DirectiveLimits {
    /// Returns the limits of the scan of a page.
    pub(super) fn scan(&self) -> ScanOptions {
        ScanOptions {
            limit: self.scan_limit,
            scope: self.meta_scope,
        }
    }
}

impl Default for DirectiveLimits {
    /// Returns the defaults of the proxy's configuration.
    fn default() -> Self {
        Self {
            field_limit: 32 * 1024,
            scan_limit: 512 * 1024,
            both_fields: BothFields::Union,
            meta_scope: MetaScope::Head,
        }
    }
}
