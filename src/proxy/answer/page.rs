//! Our answers as people read them: a page, and plain text.
//!
//! Both say who answers, why, what can be done about it, and how to find the
//! decision on record. What is told comes from the [`ProblemDetails`] alone. The page is
//! rendered in the origin's own origin, so everything is escaped (by maud), and
//! every link is made here.

use std::time::Duration;

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use super::ProblemDetails;

/// The page's style. It holds no text from outside, and no character that HTML
/// would read.
const STYLE: &str = include_str!("page.css");

/// How a fact is called, and the member of the answer that holds it.
const FACTS: [(&str, &str); 11] = [
    ("Address", "url"),
    ("Crawler", "crawler"),
    ("Reason", "reason"),
    ("Rule", "rule/text"),
    ("Line", "rule/line"),
    ("Written for", "rule/group"),
    ("robots.txt", "robots/url"),
    ("Its status", "robots/status"),
    ("Fetched", "robots/fetched_at"),
    ("Its SHA-256", "robots/sha256"),
    ("Redirects to it", "robots/hops"),
];

/// The words of [`Reason`](crate::decision::decide::Reason) in a sentence's form.
const REASONS: [(&str, &str); 13] = [
    ("rule", "a rule of robots.txt"),
    ("restricted", "robots.txt itself is refused"),
    ("unreachable", "robots.txt cannot be read now"),
    ("undecided", "robots.txt takes too long to judge"),
    ("override", "the operator's word"),
    ("egress", "an address that is not dialled"),
    ("crawl_delay", "the site asks for a pause between requests"),
    ("request_rate", "the site asks for fewer requests in a time"),
    ("visit_time", "not at this time of the day"),
    ("backoff", "the site asked to be left alone (429 or 503)"),
    ("ceiling", "a limit that the operator sets"),
    ("queue_full", "too many requests wait already"),
    ("overload", "the proxy has too much to do"),
];

/// An answer for people.
pub(super) struct ErrorPage<'a> {
    /// What is told.
    pub(super) answer: &'a ProblemDetails,
    /// Whom to ask (`proxy.contact`).
    pub(super) contact: Option<&'a str>,
    /// The time of the answer.
    pub(super) now: Timestamp,
}

/// A line of the table at the end.
struct PageRow {
    label: &'static str,
    value: String,
}

impl ErrorPage<'_> {
    /// The answer as a page.
    pub(super) fn html(&self) -> String {
        let answer = self.answer;
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width,initial-scale=1";
                    title { (answer.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body { main {
                    p.who { (self.speaker()) }
                    h1 { (answer.title) }
                    p { (shown(&answer.detail)) }
                    @if let Some(number) = self.decision() {
                        p.decision {
                            "Decision " strong { (number) } ". "
                            code { "politesse audit show " (number) } " tells all of it."
                        }
                    }
                    h2 { "What can be done" }
                    ul {
                        @for advice in self.advice() { li { (advice) } }
                        li { (self.whom_to_ask()) }
                    }
                    h2 { "In detail" }
                    dl { @for fact in self.facts() { dt { (fact.label) } dd { (fact.value) } } }
                } }
            }
        }
        .into_string()
    }

    /// The answer as plain text.
    pub(super) fn text(&self) -> String {
        let answer = self.answer;
        let decision = self.decision().map_or(String::new(), |number| {
            format!("Decision {number}: `politesse audit show {number}` tells all of it.\n\n")
        });
        let advice = self.advice().iter();
        let advice: String = advice.map(|advice| format!("- {advice}\n")).collect();
        let facts = self.facts().into_iter();
        let facts: String = facts
            .map(|fact| format!("{}: {}\n", fact.label, fact.value))
            .collect();
        format!(
            "{}\n{}\n\n{}\n\n{decision}What can be done:\n{advice}- Ask {}.\n\n{facts}",
            answer.title,
            self.speaker(),
            shown(&answer.detail),
            self.contact.unwrap_or(OPERATOR),
        )
    }

    /// The sentence that keeps people from writing to the site.
    fn speaker(&self) -> &'static str {
        match self.answer.kind {
            "later" => "Put off by politesse, the crawl proxy of this machine, not by the site.",
            "upstream" | "audit" | "internal" => {
                "Answered by politesse, the crawl proxy of this machine, not by the site."
            }
            _ => "Refused by politesse, the crawl proxy of this machine, not by the site.",
        }
    }

    /// The number under which the decision is on record.
    fn decision(&self) -> Option<String> {
        self.answer.members.get("decision")?.as_str().map(shown)
    }

    /// What people can do about it, besides asking.
    fn advice(&self) -> &'static [&'static str] {
        let reason = self.answer.members.get("reason").and_then(Value::as_str);
        match (self.answer.kind, reason) {
            ("refused", Some("rule")) => &[
                "The rule is the site's: its owner can change robots.txt.",
                "For an agreed exception the operator of this proxy has robots.override.",
            ],
            ("refused", Some("override")) => {
                &["The operator of this proxy laid this down (robots.override)."]
            }
            ("refused", Some("restricted")) => &[
                "The site's owner can let robots.txt be read by everyone.",
                "The operator of this proxy says what 401 and 403 mean (robots.status.unauthorized).",
            ],
            ("refused", Some("unreachable")) => {
                &["Come again later: robots.txt is asked for anew, and what it says then counts."]
            }
            ("refused", Some("undecided")) => {
                &["The site's owner can make the rules of robots.txt simpler."]
            }
            ("egress", _) => {
                &["If the address is meant, the operator of this proxy can allow it (egress)."]
            }
            ("later", _) => &["Come again at the time below. Nothing was sent to the site."],
            ("upstream", _) => {
                &["Come again later, and look whether the site answers without this proxy."]
            }
            ("audit", _) => {
                &["Nothing is sent before the record can be written again: its disk may be full."]
            }
            ("client", _) => {
                &["The operator of this proxy can let your address in (proxy.clients)."]
            }
            ("connect", _) => &["Ask for http addresses only: https is off here (https.mode)."],
            ("loop", _) => &["Some proxy sends requests back here: look at what was set where."],
            ("malformed", _) => &["The request has to be another: what is wrong stands above."],
            _ => &["This is a fault of the proxy."],
        }
    }

    fn whom_to_ask(&self) -> Markup {
        let Some(contact) = self.contact else {
            return html! { "Ask " (OPERATOR) "." };
        };
        match link(contact) {
            Some(target) => html! { "Ask " a href=(target) { (contact) } "." },
            None => html! { "Ask " (contact) "." },
        }
    }

    fn facts(&self) -> Vec<PageRow> {
        // What is put off has the rule by which it may be sent, which would read
        // here like the cause.
        let is_later = self.answer.kind == "later";
        let told = FACTS.into_iter();
        let told = told.filter(|(_, path)| !(is_later && path.starts_with("rule/")));
        let known = told.filter_map(|(label, path)| {
            let value = self.fact(path)?;
            Some(PageRow { label, value })
        });
        let come_again = self.answer.retry_after.map(|seconds| PageRow {
            label: "Come again",
            value: come_again(self.now, seconds),
        });
        known.chain(come_again).collect()
    }

    fn fact(&self, path: &str) -> Option<String> {
        let (name, inner) = path.split_once('/').unwrap_or((path, ""));
        let member = self.answer.members.get(name)?;
        let value = if inner.is_empty() {
            member
        } else {
            member.get(inner)?
        };
        let text = shown(&plain(value)?);
        Some(match path {
            "reason" => reason(&text),
            "rule/group" if text == "*" => "everyone (*)".to_owned(),
            "robots/fetched_at" => text.parse().map_or(text, to_the_second),
            _ => text,
        })
    }
}

/// Whom to ask where `proxy.contact` says nothing.
const OPERATOR: &str = "the operator of this proxy";

/// Where a link to `contact` leads: a web page, or a mailbox.
fn link(contact: &str) -> Option<String> {
    if contact.contains(char::is_whitespace) {
        return None;
    }
    if contact.starts_with("https://") || contact.starts_with("http://") {
        return Some(contact.to_owned());
    }
    let (mailbox, domain) = contact.split_once('@')?;
    let plain = |part: &str| !part.is_empty() && !part.contains(['@', ':', '/', '?', '%']);
    (plain(mailbox) && plain(domain)).then(|| format!("mailto:{contact}"))
}

/// The reason in words, and its own word, which `audit list --reason` takes.
fn reason(word: &str) -> String {
    let known = REASONS.iter().find(|(known, _)| *known == word);
    known.map_or_else(|| word.to_owned(), |(_, text)| format!("{text} ({word})"))
}

fn come_again(now: Timestamp, seconds: u64) -> String {
    let unit = if seconds == 1 { "second" } else { "seconds" };
    match now.checked_add(Duration::from_secs(seconds)) {
        Ok(at) => format!("in {seconds} {unit}, at {}", to_the_second(at)),
        Err(_) => format!("in {seconds} {unit}"),
    }
}

fn to_the_second(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// A member as text; `None` for one that says nothing.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().filter_map(plain).collect();
            Some(items.join(", "))
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => Some(value.to_string()),
    }
}

/// Text from outside without what would steer a terminal.
fn shown(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests;
