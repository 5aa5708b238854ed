//! Naive reference of robots.txt in each dialect. Tests and fuzz targets compare the engine
//! with it.
//!
//! The reference follows the specifications clause by clause and shares no code with the
//! engine: it parses the file anew for every question, has no index and takes no shortcut.
//! It uses only `std`, so that tests and fuzz targets can include these files by path.
//!
//! Does not know the status that an origin answered (a 404, a 5xx), or the maximum size of a
//! file: the caller must cut the body.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "included by path; not every includer uses everything"
)]

mod glob;
mod google;
mod groups;
mod lines;
mod meant;
mod pattern;
mod prefix;

pub use google::google_path;

use groups::Binding;
use lines::{Kind, Rule};
use pattern::Forms;

/// Specification that a robots.txt follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// RFC 9309.
    Rfc9309,
    /// draft-koster-rep-00, July 2019.
    Draft2019,
    /// "A Method for Robots Exclusion", draft 1, November 1996.
    Draft1996,
    /// "A Standard for Robot Exclusion", June 1994.
    Koster1994,
    /// "An Extended Standard for Robot Exclusion", version 2.0, Sean Conner,
    /// November 1996.
    Conner2,
    /// RFC 9309 as implemented by google/robotstxt.
    Google,
}

impl Dialect {
    /// Every dialect, for tests that cover all of them.
    pub const ALL: [Self; 6] = [
        Self::Rfc9309,
        Self::Draft2019,
        Self::Draft1996,
        Self::Koster1994,
        Self::Conner2,
        Self::Google,
    ];

    /// Returns the dialect with this name, as used in configurations and cases.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == name)
    }

    /// Returns the name used in configurations and cases.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rfc9309 => "rfc9309",
            Self::Draft2019 => "draft-2019",
            Self::Draft1996 => "1996",
            Self::Koster1994 => "1994",
            Self::Conner2 => "conner-2.0",
            Self::Google => "google",
        }
    }
}

/// Verdict of a robots.txt on one path for one crawler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the path may be fetched.
    pub allow: bool,
    /// Line of the deciding rule, from 1; `None` if no rule matched.
    pub line: Option<u32>,
    /// Whether a group of the file binds the crawler.
    pub bound: bool,
}

/// Returns the verdict of `body` on `url_path`, a path with its query as sent, for the
/// crawler with the product token `agent`. An empty `agent` means a crawler without a name.
///
/// A path without a leading slash gets one. For [`Dialect::Google`], the path must come from
/// [`google_path`].
pub fn decide(dialect: Dialect, body: &[u8], agent: &str, url_path: &str) -> Verdict {
    if dialect == Dialect::Google {
        return google::decide(body, agent, url_path);
    }
    verdict((dialect, Forms::WithoutMarks, None), body, agent, url_path)
}

/// Returns the verdict of [`decide`] by RFC 9309 for a file of `site`, such as
/// `https://h.example`. A Disallow may contain a URL of the site.
pub fn decide_at(site: &str, body: &[u8], agent: &str, url_path: &str) -> Verdict {
    let read_by = (Dialect::Rfc9309, Forms::WithoutMarks, Some(site));
    verdict(read_by, body, agent, url_path)
}

/// Returns the verdict of [`decide`] by RFC 9309, with reserved bytes of a path compared
/// with a Disallow both escaped and unescaped, because servers treat both forms alike.
pub fn decide_as_served(body: &[u8], agent: &str, url_path: &str) -> Verdict {
    verdict(
        (Dialect::Rfc9309, Forms::AsServed, None),
        body,
        agent,
        url_path,
    )
}

fn verdict(
    (dialect, forms, site): (Dialect, Forms, Option<&str>),
    body: &[u8],
    agent: &str,
    url_path: &str,
) -> Verdict {
    let path = with_slash(url_path);
    let by = |binding: &mut Binding| {
        for rule in binding
            .rules
            .iter_mut()
            .filter(|_| dialect == Dialect::Rfc9309)
        {
            rule.path = site.and_then(|site| meant::path_at(site, rule));
        }
        let rule = deciding_rule((dialect, forms), &binding.rules, &path);
        Verdict {
            allow: rule.is_none_or(|rule| rule.kind == Kind::Allow),
            line: rule.map(|rule| rule.line),
            bound: binding.is_bound,
        }
    };
    let written = by(&mut Binding::of(dialect, body, agent));
    if dialect != Dialect::Rfc9309 || !written.allow {
        return written;
    }
    // An allowed path must also be allowed by the repaired lines.
    let meant = by(&mut Binding::as_meant(body, agent));
    match (meant.allow, written.line) {
        (true, Some(_)) => written,
        _ => meant,
    }
}

/// Adds the leading slash of a path if it is missing (RFC 9110, section 4.2.3: an empty path
/// is `/`). Table 9-3 of the textbook omits it.
fn with_slash(url_path: &str) -> String {
    if url_path.starts_with('/') {
        url_path.to_owned()
    } else {
        format!("/{url_path}")
    }
}

/// Returns the deciding rule, if a rule matches.
fn deciding_rule<'a>(
    (dialect, forms): (Dialect, Forms),
    rules: &'a [Rule],
    path: &str,
) -> Option<&'a Rule> {
    // RFC 9309, section 2.2.2: "The /robots.txt URI is implicitly allowed."
    if path == "/robots.txt" {
        return None;
    }
    // RFC 9309, section 2.2, `empty-pattern`: it decides nothing. 1994: an empty
    // value means that all URLs can be retrieved.
    let rules = rules.iter().filter(|rule| !rule.value.is_empty());
    let path = path.as_bytes();
    match dialect {
        Dialect::Rfc9309 => pattern::most_specific(rules, path, forms),
        Dialect::Draft2019 => pattern::most_specific(rules, path, Forms::Standard),
        Dialect::Draft1996 => prefix::first(rules, path),
        Dialect::Koster1994 => prefix::first_disallow(rules, path),
        Dialect::Conner2 => glob::by_order_of_kinds(rules, path),
        // `decide` has already answered for this dialect.
        Dialect::Google => None,
    }
}
