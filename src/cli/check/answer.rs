//! What programs are told of a ruling: the members that every answer has.
//!
//! How a ruling comes about is not known here.

use serde::{Serialize, Serializer};

use crate::decision::decide::{Reason, Ruling, Verdict};
use politesse_robots::crawler::{Crawler, ProductToken};

/// The members of the batch format, less the id.
#[derive(Serialize)]
pub(super) struct Members<'a> {
    verdict: Verdict,
    reason: Reason,
    line: Option<u32>,
    rule: Option<&'a str>,
    group: Option<&'a [String]>,
    token: Option<&'a str>,
    #[serde(serialize_with = "names")]
    candidates: &'a [ProductToken],
    crawl_delay: Option<f64>,
}

impl<'a> Members<'a> {
    /// What `ruling` says of `crawler`.
    pub(super) fn of(ruling: &'a Ruling, crawler: &'a Crawler) -> Self {
        let token = ruling.token.as_ref().or_else(|| crawler.token());
        Self {
            verdict: ruling.verdict,
            reason: ruling.reason,
            line: ruling.rule.as_ref().map(|rule| rule.line),
            rule: ruling.rule.as_ref().map(|rule| rule.text.as_str()),
            group: (!ruling.group.is_empty()).then_some(&ruling.group),
            token: token.map(ProductToken::as_str),
            candidates: crawler.candidates(),
            crawl_delay: ruling.crawl_delay(),
        }
    }
}

fn names<S: Serializer>(tokens: &&[ProductToken], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tokens.iter().map(ProductToken::as_str))
}
