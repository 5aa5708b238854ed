//! Answers of the proxy in the forms for people: an HTML page and plain text.
//!
//! Both say that the proxy answers, why, what can be done about it, and how to find the
//! decision in the record. Browsers treat the page as content of the origin's site, so
//! all text is escaped (by maud), and every link is generated here. Knows only
//! [`ProblemDetails`] and how a decision is explained.

use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};

use super::problem_details::ProblemDetails;
use politesse_base::command_line::command;
use politesse_base::inert::inert;
use politesse_pages::explain::Explanation;
use politesse_pages::explain::facts::Facts;
use politesse_pages::page::document::{BASE_STYLE, Document, inline_style};

/// Contact named if `proxy.contact` is not set.
const OPERATOR: &str = "the operator of this proxy";

/// Answer in the forms for people.
pub(super) struct ErrorPage<'a> {
    /// Details of the answer.
    pub(super) details: &'a ProblemDetails,
    /// Contact for questions (`proxy.contact`).
    pub(super) contact: Option<&'a str>,
    /// Time of the answer.
    pub(super) now: Timestamp,
}

impl ErrorPage<'_> {
    /// Renders the answer as an HTML page.
    pub(super) fn html(&self) -> String {
        let details = self.details;
        let document = Document {
            title: details.title,
            theme: None,
            head: inline_style(&[BASE_STYLE]),
        };
        let body = html! {
            main {
                p.small { (self.speaker()) }
                h1 { (details.title) }
                p { (inert(&details.detail)) }
                @if let Some(number) = self.decision() {
                    p.box {
                        "Decision " strong { (number) } ". "
                        code { (audit_show(&number)) } " shows the details."
                    }
                }
                h2 { "What can be done" }
                ul {
                    @for advice in self.advice() { li { (advice) } }
                    li { (self.whom_to_ask()) }
                }
                h2 { "In detail" }
                (self.facts().html())
            }
        };
        document.html(&body).into_string()
    }

    /// Renders the answer as plain text.
    pub(super) fn text(&self) -> String {
        let details = self.details;
        let decision = self.decision().map_or(String::new(), |number| {
            let command = audit_show(&number);
            format!("Decision {number}: `{command}` shows the details.\n\n")
        });
        let advice: String = self
            .advice()
            .iter()
            .map(|line| format!("- {line}\n"))
            .collect();
        format!(
            "{}\n{}\n\n{}\n\n{decision}What can be done:\n{advice}- Ask {}.\n\n{}",
            details.title,
            self.speaker(),
            inert(&details.detail),
            self.contact.unwrap_or(OPERATOR),
            self.facts().text(""),
        )
    }

    /// Returns the sentence that names the proxy as the sender, so that readers do not
    /// complain to the site.
    fn speaker(&self) -> &'static str {
        match self.details.kind {
            "later" => "Put off by politesse, the crawl proxy of this machine, not by the site.",
            "upstream" | "audit" | "internal" | "overload" => {
                "Answered by politesse, the crawl proxy of this machine, not by the site."
            }
            "withheld" => {
                "Withheld by politesse, the crawl proxy of this machine, not by the site."
            }
            _ => "Refused by politesse, the crawl proxy of this machine, not by the site.",
        }
    }

    /// Returns the number of the decision in the audit record.
    fn decision(&self) -> Option<String> {
        self.details.members.get("decision")?.as_str().map(inert)
    }

    /// Returns advice for the reader, besides asking the contact.
    fn advice(&self) -> &'static [&'static str] {
        let evidence = self.details.evidence.as_ref();
        let reason = evidence.map(|evidence| evidence.ruling.reason.as_str());
        match (self.details.kind, reason) {
            ("refused", Some("rule")) => &[
                "The rule is the site's: its owner can change robots.txt.",
                "For an agreed exception the operator of this proxy has robots.override.",
            ],
            ("refused", Some("preference")) => &[
                "The preference is the site's: its owner can change robots.txt.",
                "The operator of this proxy declares the purposes of a crawler.",
            ],
            ("withheld", _) => &[
                "The statement is the site's: its owner can change the page, or its fields.",
                "The operator of this proxy declares the purposes of a crawler, and says what \
                 becomes of pages that cannot be read whole (preferences.unknown).",
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
            ("later", _) => {
                &["Come again at the time below. Until then nothing is sent to the site."]
            }
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

    /// Lists the facts about the decision, and when to try again.
    fn facts(&self) -> Facts {
        let mut facts = Facts(Vec::new());
        if let Some(evidence) = &self.details.evidence {
            let explanation = Explanation::of_answer(evidence, Some(self.now));
            facts.0.push(("url", explanation.record.url.clone()));
            facts.0.append(&mut Facts::of(&explanation).0);
        }
        if let Some(seconds) = self.details.retry_after {
            facts.0.push(("come again", come_again(self.now, seconds)));
        }
        facts
    }
}

fn audit_show(number: &str) -> String {
    command(format_args!("audit show {number}"))
}

/// Returns the link target for `contact`, if that is a web page or a mailbox.
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

fn come_again(now: Timestamp, seconds: u64) -> String {
    let unit = if seconds == 1 { "second" } else { "seconds" };
    match now.checked_add(Duration::from_secs(seconds)) {
        Ok(at) => format!(
            "in {seconds} {unit}, at {}",
            at.strftime("%Y-%m-%d %H:%M:%S UTC")
        ),
        Err(_) => format!("in {seconds} {unit}"),
    }
}

#[cfg(test)]
mod tests;
