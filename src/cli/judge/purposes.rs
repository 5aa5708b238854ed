//! Counts of pages denied for the purposes of a crawl: plain data for the report.
//!
//! Does not know how statements are read.

use std::collections::BTreeMap;

use jiff::Timestamp;
use politesse_directives::denials::PurposeDenial;
use politesse_directives::{AnnotationState, CrawlPurpose, PurposeSet, ResponseStatements};
use politesse_pages::page::words::counted;

use super::outcome::JudgedRequest;

/// Approximate limit on the memory for the counts, in bytes. Denials of further hosts
/// are counted together.
const COUNT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum number of denied pages kept as samples.
const SAMPLES_MAX: usize = 10;

/// Pages of a past crawl, counted by the statements that deny its purposes.
#[derive(Debug, Default)]
pub(crate) struct PurposeCounts {
    /// Purposes to count; if empty, nothing is counted.
    pub(crate) purposes: PurposeSet,
    /// Pages: requests other than for robots.txt, except those that the site answered
    /// with an error or a redirect.
    pub(crate) pages: u64,
    /// Pages for which every purpose is denied.
    pub(crate) denied: u64,
    /// Pages whose response is not in the files.
    pub(crate) unseen: u64,
    /// Pages of which not all statements could be read.
    pub(crate) partial: u64,
    /// Number of pages by the host and the statement that denies a purpose.
    pub(crate) stated: BTreeMap<StatedDenial, u64>,
    /// Approximate memory of `stated`, in bytes.
    stated_bytes: usize,
    /// Denials that exceeded the limit for counting by host and statement.
    pub(crate) uncounted: u64,
    /// First denied pages.
    pub(crate) samples: Vec<DeniedSample>,
}

/// Denial of a purpose by a statement of a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StatedDenial {
    /// Host of the page.
    pub(crate) host: String,
    /// Denied purpose.
    pub(crate) purpose: CrawlPurpose,
    /// Statement, as in the annotation (`train-ai=n`).
    pub(crate) statement: String,
    /// Places that state it (`robots.txt line 3, field`).
    pub(crate) places: String,
}

/// Denied page, as an example.
#[derive(Debug)]
pub(crate) struct DeniedSample {
    /// URL as in the file.
    pub(crate) url: String,
    /// Time of the request, if known.
    pub(crate) at: Option<Timestamp>,
    /// Denials, separated by commas.
    pub(crate) denials: String,
}

impl PurposeCounts {
    /// Adds a request, if it is for a page.
    pub(super) fn add(&mut self, judged: &JudgedRequest) {
        let host = match &judged.target {
            Some(target) if !self.purposes.is_empty() && judged.is_page() => target.origin.host(),
            _ => return,
        };
        self.pages += 1;
        let state = judged
            .request
            .statements
            .as_deref()
            .map(ResponseStatements::state);
        self.unseen += u64::from(state.is_none());
        self.partial += u64::from(state.is_some_and(|state| state != AnnotationState::Complete));
        let denials = judged.denials();
        for denial in &denials {
            self.add_denial(StatedDenial {
                host: host.to_string(),
                purpose: denial.purpose,
                statement: denial.statement.to_string(),
                places: places(denial),
            });
        }
        if judged.is_denied(self.purposes) {
            self.denied += 1;
            if self.samples.len() < SAMPLES_MAX {
                let texts: Vec<_> = denials.iter().map(ToString::to_string).collect();
                self.samples.push(DeniedSample {
                    url: judged.request.url.clone(),
                    at: judged.request.at,
                    denials: texts.join(", "),
                });
            }
        }
    }

    fn add_denial(&mut self, denial: StatedDenial) {
        let StatedDenial {
            host,
            statement,
            places,
            ..
        } = &denial;
        let bytes = size_of_val(&denial) + host.len() + statement.len() + places.len();
        if let Some(pages) = self.stated.get_mut(&denial) {
            *pages += 1;
        } else if self.stated_bytes + bytes <= COUNT_BYTES_MAX {
            self.stated_bytes += bytes;
            self.stated.insert(denial, 1);
        } else {
            self.uncounted += 1;
        }
    }

    /// Returns the names of the purposes, separated by commas.
    pub(crate) fn names(&self) -> String {
        let names: Vec<_> = self.purposes.iter().map(CrawlPurpose::as_str).collect();
        names.join(", ")
    }

    /// Returns the denials; those with the most pages come first.
    pub(crate) fn by_pages(&self) -> Vec<(&StatedDenial, u64)> {
        let mut rows: Vec<_> = self
            .stated
            .iter()
            .map(|(key, pages)| (key, *pages))
            .collect();
        // A stable sort: rows with equal counts stay in the order of their keys.
        rows.sort_by_key(|(_, pages)| std::cmp::Reverse(*pages));
        rows
    }

    /// Returns sentences on the limits of the counts.
    pub(super) fn limits(&self) -> impl Iterator<Item = String> {
        let limits = [
            (
                self.unseen,
                "page",
                "judged for purposes by robots.txt alone, since the files have no response.",
            ),
            (self.partial, "page", "not read whole, and may deny more."),
            (
                self.uncounted,
                "denial",
                "in no table, since there are too many websites and statements.",
            ),
        ];
        let some = limits.into_iter().filter(|(number, ..)| 0 < *number);
        some.map(|(number, noun, text)| format!("{} {text}", counted(number, noun)))
    }
}

/// Describes in words the places that state a denial.
fn places(denial: &PurposeDenial) -> String {
    let mut words: Vec<String> = Vec::new();
    for letter in denial.sources.split(' ') {
        let word = match (letter, denial.line) {
            ("u", Some(line)) => format!("robots.txt line {line}"),
            ("u", None) => "robots.txt".to_owned(),
            ("m", _) => "page".to_owned(),
            _ => "field".to_owned(),
        };
        // Both directive fields share one word.
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(", ")
}
