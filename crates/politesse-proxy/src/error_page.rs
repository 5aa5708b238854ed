//! Answers of our own in the forms for people: an HTML page, and plain text.
//!
//! Both say who answers, why, what can be done about it, and how to find the
//! decision in the record. The page is rendered in the origin's own origin, so
//! everything is escaped (by maud), and every link is made here. Knows nothing
//! but [`ProblemDetails`] and the words of a [`Reason`].

use std::time::Duration;

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use super::problem_details::ProblemDetails;
use politesse_base::command_line::command;
use politesse_decision::decide::Reason;

/// Style of the page. It holds no text from outside, and no character that is
/// markup in HTML.
const STYLE: &str = include_str!("error_page.css");

/// Labels of the facts in the table, each with the member that holds the fact.
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

/// Contact where `proxy.contact` names none.
const OPERATOR: &str = "the operator of this proxy";

/// An answer in the forms for people.
pub(super) struct ErrorPage<'a> {
    /// Facts of the answer.
    pub(super) details: &'a ProblemDetails,
    /// Contact for questions (`proxy.contact`).
    pub(super) contact: Option<&'a str>,
    /// Time of the answer.
    pub(super) now: Timestamp,
}

/// A row of the table at the end of the page.
struct PageRow {
    label: &'static str,
    value: String,
}

impl ErrorPage<'_> {
    /// Returns the answer as an HTML page.
    pub(super) fn html(&self) -> String {
        let details = self.details;
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width,initial-scale=1";
                    title { (details.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body { main {
                    p.who { (self.speaker()) }
                    h1 { (details.title) }
                    p { (shown(&details.detail)) }
                    @if let Some(number) = self.decision() {
                        p.decision {
                            "Decision " strong { (number) } ". "
                            code { (audit_show(&number)) } " tells all of it."
                        }
                    }
                    h2 { "What can be done" }
                    ul {
                        @for advice in self.advice() { li { (advice) } }
                        li { (self.whom_to_ask()) }
                    }
                    h2 { "In detail" }
                    dl { @for row in self.rows() { dt { (row.label) } dd { (row.value) } } }
                } }
            }
        }
        .into_string()
    }

    /// Returns the answer as plain text.
    pub(super) fn text(&self) -> String {
        let details = self.details;
        let decision = self.decision().map_or(String::new(), |number| {
            let command = audit_show(&number);
            format!("Decision {number}: `{command}` tells all of it.\n\n")
        });
        let advice: String = self
            .advice()
            .iter()
            .map(|line| format!("- {line}\n"))
            .collect();
        let rows = self.rows().into_iter();
        let facts: String = rows
            .map(|row| format!("{}: {}\n", row.label, row.value))
            .collect();
        format!(
            "{}\n{}\n\n{}\n\n{decision}What can be done:\n{advice}- Ask {}.\n\n{facts}",
            details.title,
            self.speaker(),
            shown(&details.detail),
            self.contact.unwrap_or(OPERATOR),
        )
    }

    /// Returns the sentence that says who answers, so that nobody complains to
    /// the site.
    fn speaker(&self) -> &'static str {
        match self.details.kind {
            "later" => "Put off by politesse, the crawl proxy of this machine, not by the site.",
            "upstream" | "audit" | "internal" | "overload" => {
                "Answered by politesse, the crawl proxy of this machine, not by the site."
            }
            _ => "Refused by politesse, the crawl proxy of this machine, not by the site.",
        }
    }

    /// Returns the number of the decision in the audit record.
    fn decision(&self) -> Option<String> {
        self.details.members.get("decision")?.as_str().map(shown)
    }

    /// Returns what people can do about the answer, besides asking.
    fn advice(&self) -> &'static [&'static str] {
        let reason = self.details.members.get("reason").and_then(Value::as_str);
        match (self.details.kind, reason) {
            ("refused", Some("rule")) => &[
                "The rule is the site's: its owner can change robots.txt.",
                "For an agreed exception the operator of this proxy has robots.override.",
            ],
            ("refused", Some("override")) => {
                &["The operator of this proxy laid this down (robots.override)."]
            }
            ("refused", Some("identity")) => &[
                "Send a name of your own in User-Agent.",
                "The operator of this proxy says which addresses have the name (crawler, client).",
            ],
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
            ("credential", _) => &[
                "Send the user name and the token that the operator of this proxy gave to you.",
                "The operator makes another one with `politesse crawler add`.",
            ],
            ("overload", _) => &[
                "Come again in a moment, with fewer requests at a time. Nothing was sent to the site.",
            ],
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

    fn rows(&self) -> Vec<PageRow> {
        let mut rows = Vec::new();
        for (label, path) in FACTS {
            // A delayed request has the rule by which it may be sent later,
            // which would look like the cause here.
            let is_misleading = self.details.kind == "later" && path.starts_with("rule/");
            if let Some(value) = self.fact(path).filter(|_| !is_misleading) {
                rows.push(PageRow { label, value });
            }
        }
        if let Some(seconds) = self.details.retry_after {
            rows.push(PageRow {
                label: "Come again",
                value: come_again(self.now, seconds),
            });
        }
        rows
    }

    fn fact(&self, path: &str) -> Option<String> {
        let (name, inner) = path.split_once('/').unwrap_or((path, ""));
        let member = self.details.members.get(name)?;
        let value = if inner.is_empty() {
            member
        } else {
            member.get(inner)?
        };
        let text = shown(&plain(value)?);
        Some(match path {
            "reason" => reason(&text),
            "rule/group" if text == "*" => "everyone (*)".to_owned(),
            // The decision record has the fraction of the second; people do not
            // need it.
            "robots/fetched_at" => text.parse().map_or(text, to_the_second),
            _ => text,
        })
    }
}

fn audit_show(number: &str) -> String {
    command(format_args!("audit show {number}"))
}

/// Returns the URL of a link to `contact`, if that is a web page or a mailbox.
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

/// Explains a reason, and adds its word, which `audit list --reason` takes.
fn reason(word: &str) -> String {
    let known = Reason::of_word(word);
    known.map_or_else(
        || word.to_owned(),
        |known| format!("{} ({word})", known.meaning()),
    )
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

/// Returns a member as text; `None` for null.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let texts: Vec<_> = items.iter().filter_map(plain).collect();
            Some(texts.join(", "))
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => Some(value.to_string()),
    }
}

/// Replaces control characters, with which text from outside could steer a
/// terminal.
fn shown(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests;
