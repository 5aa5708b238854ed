//! What robots.txt means in each dialect, told the slow way: the reference that
//! the engine is tested and fuzzed against.
//!
//! It follows the texts clause by clause and shares no line with the engine:
//! everything is read anew for every question, nothing is indexed, and no
//! shortcut is taken. Nothing but `std` is used, so that tests and fuzz targets
//! can include these files by path.
//!
//! It does not know what an origin answered (a 404, a 5xx), nor how large a file
//! may be: whoever asks has cut the body already.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "shared by path; not everyone who includes this asks everything"
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

/// Text by which a robots.txt is to be read.
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
    /// RFC 9309 as google/robotstxt answers it.
    Google,
}

impl Dialect {
    /// Every dialect, for tests that go through all of them.
    pub const ALL: [Self; 6] = [
        Self::Rfc9309,
        Self::Draft2019,
        Self::Draft1996,
        Self::Koster1994,
        Self::Conner2,
        Self::Google,
    ];

    /// Returns the dialect of that name, as configurations and cases write it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == name)
    }

    /// Returns the name that configurations and cases use.
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

/// Answer of one robots.txt to one crawler about one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the path may be fetched.
    pub allow: bool,
    /// The line of the rule that decided, from 1; none if no rule matched.
    pub line: Option<u32>,
    /// Whether some group of the file binds the crawler.
    pub bound: bool,
}

/// Returns what `body` says to the crawler with the product token `agent`
/// (empty: to nobody in particular) about `url_path`, a path with its query as
/// sent.
///
/// A path without its leading slash is read as having one. Under
/// [`Dialect::Google`] it is to be the path that [`google_path`] gives.
pub fn decide(dialect: Dialect, body: &[u8], agent: &str, url_path: &str) -> Verdict {
    if dialect == Dialect::Google {
        return google::decide(body, agent, url_path);
    }
    verdict((dialect, Forms::WithoutMarks, None), body, agent, url_path)
}

/// Returns what [`decide`] says by RFC 9309 of a file of `site`, such as
/// `https://h.example`: there, a Disallow may hold a whole URL.
pub fn decide_at(site: &str, body: &[u8], agent: &str, url_path: &str) -> Verdict {
    let read_by = (Dialect::Rfc9309, Forms::WithoutMarks, Some(site));
    verdict(read_by, body, agent, url_path)
}

/// Returns what [`decide`] says by RFC 9309, where a Disallow matches a path in
/// either form of its reserved bytes, as servers take them for one.
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
    // What is allowed must be allowed by the lines as they were meant, too.
    let meant = by(&mut Binding::as_meant(body, agent));
    match (meant.allow, written.line) {
        (true, Some(_)) => written,
        _ => meant,
    }
}

/// Returns the path, which begins with a slash (RFC 9110, section 4.2.3: no
/// path is `/`). The textbook's Table 9-3 leaves it out.
fn with_slash(url_path: &str) -> String {
    if url_path.starts_with('/') {
        url_path.to_owned()
    } else {
        format!("/{url_path}")
    }
}

/// Returns the rule that counts, if any matches.
fn deciding_rule<'a>(
    (dialect, forms): (Dialect, Forms),
    rules: &'a [Rule],
    path: &str,
) -> Option<&'a Rule> {
    // RFC 9309, section 2.2.2: "The /robots.txt URI is implicitly allowed."
    if path == "/robots.txt" {
        return None;
    }
    // RFC 9309, section 2.2, `empty-pattern`: it matches no byte. 1994: an
    // empty value means that all URLs can be retrieved.
    let rules = rules.iter().filter(|rule| !rule.value.is_empty());
    let path = path.as_bytes();
    match dialect {
        Dialect::Rfc9309 => pattern::most_specific(rules, path, forms),
        Dialect::Draft2019 => pattern::most_specific(rules, path, Forms::Standard),
        Dialect::Draft1996 => prefix::first(rules, path),
        Dialect::Koster1994 => prefix::first_disallow(rules, path),
        Dialect::Conner2 => glob::by_order_of_kinds(rules, path),
        // Answered by `decide` before it comes here.
        Dialect::Google => None,
    }
}
