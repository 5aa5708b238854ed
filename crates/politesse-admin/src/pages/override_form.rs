//! Form on the page of a refused decision that writes an entry of `robots.override` for
//! the operator to copy. It changes nothing.
//!
//! Does not know how the configuration is read.

use std::fmt::Write as _;
use std::process;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use crate::in_force::ConfigurationInForce;
use crate::visit::Visit;
use politesse_base::clock;
use politesse_base::command_line::command;
use politesse_decision::again::WITHHELD;
use politesse_decision::decide::{Reason, Verdict, ruling};
use politesse_decision::overrides::{Action, Origins, Override, Paths};
use politesse_decision::record::StoredRecord;
use politesse_pages::explain::Explanation;
use politesse_pages::page::words::{code, foreign, shown};
use politesse_robots::crawler::ProductToken;
use politesse_robots::origin::Target;

/// Longest reason that `robots.override` accepts, in bytes.
const REASON_BYTES_MAX: usize = 256;
/// Time after which an override ends by default.
const LIFETIME: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Maximum number of characters of a path in a choice of the form.
const CHOICE_MAX: usize = 60;

/// URLs that an override covers, relative to the URL of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OverrideReach {
    /// Only this URL.
    Url,
    /// Everything in its folder.
    Folder,
    /// The whole origin.
    Origin,
}

impl OverrideReach {
    const ALL: [Self; 3] = [Self::Url, Self::Folder, Self::Origin];

    fn as_str(self) -> &'static str {
        match self {
            Self::Url => "url",
            Self::Folder => "folder",
            Self::Origin => "origin",
        }
    }

    /// Returns the pattern for the paths; `None` for all paths.
    fn pattern(self, url: &str, target: &Target) -> Option<String> {
        let sent = target.path_and_query();
        let path = sent.split('?').next().unwrap_or(sent);
        match self {
            // If the query is not on record, any query matches.
            Self::Url if url.contains(WITHHELD) => Some(literal(sent)),
            Self::Url => Some(format!("{}$", literal(sent))),
            Self::Folder => {
                let end = path.rfind('/').map_or(0, |slash| slash + 1);
                Some(literal(&path[..end]))
            }
            Self::Origin => None,
        }
    }
}

/// Writes a path as a pattern that matches only this path (RFC 9309, section 2.2.3).
fn literal(path: &str) -> String {
    path.replace('*', "%2A").replace('$', "%24")
}

/// Values of the form.
#[derive(Debug)]
struct OverrideForm {
    /// Whether the form was submitted.
    is_sent: bool,
    /// Whether the override denies; otherwise it allows.
    is_deny: bool,
    reach: OverrideReach,
    /// Whether the override applies to all crawlers, not only to that of the decision.
    is_for_all: bool,
    reason: String,
    /// Date on which the override ends, in UTC; empty for a deny without end.
    until: String,
}

impl OverrideForm {
    fn parse(query: &str) -> Self {
        let end = clock::now().checked_add(LIFETIME).unwrap_or_default();
        let mut form = Self {
            is_sent: false,
            is_deny: false,
            reach: OverrideReach::Url,
            is_for_all: false,
            reason: String::new(),
            until: end.strftime("%Y-%m-%d").to_string(),
        };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "action" => (form.is_sent, form.is_deny) = (true, value == "deny"),
                "reach" => {
                    let mut all = OverrideReach::ALL.into_iter();
                    let found = all.find(|reach| reach.as_str() == value);
                    form.reach = found.unwrap_or(form.reach);
                }
                "agent" => form.is_for_all = value == "all",
                "reason" => value.trim().clone_into(&mut form.reason),
                "until" => value.trim().clone_into(&mut form.until),
                _ => {}
            }
        }
        form
    }

    /// Makes the entry, or returns what is wrong with the form.
    fn entry(&self, subject: &OverrideSubject<'_>) -> Result<Override, &'static str> {
        let reason = &self.reason;
        if reason.is_empty() || REASON_BYTES_MAX < reason.len() || reason.contains(char::is_control)
        {
            return Err("The reason is one line of 1 to 256 bytes.");
        }
        let action = match (self.is_deny, self.end()?) {
            (true, until) => Action::Deny { until },
            (false, Some(until)) => Action::Allow { until },
            (false, None) => return Err("An allow needs an end."),
        };
        let pattern = self.reach.pattern(&subject.record.url, &subject.target);
        Ok(Override {
            origin: Origins::One(subject.target.origin.clone()),
            agent: subject.agent.clone().filter(|_| !self.is_for_all),
            path: pattern.and_then(|text| Paths::new(&text)),
            action,
            reason: reason.clone(),
        })
    }

    fn end(&self) -> Result<Option<Timestamp>, &'static str> {
        if self.until.is_empty() {
            return Ok(None);
        }
        let date = self.until.parse::<Date>().ok();
        let end = date.and_then(|date| date.to_zoned(TimeZone::UTC).ok());
        match end.map(|end| end.timestamp()) {
            Some(end) if clock::now() < end => Ok(Some(end)),
            Some(_) => Err("The end has passed."),
            None => Err("The end is a date, such as 2027-01-31."),
        }
    }
}

/// Refused decision that an override can change.
struct OverrideSubject<'a> {
    record: &'a StoredRecord,
    target: Target,
    /// Token of the crawler; `None` if it has none that an entry can name.
    agent: Option<ProductToken>,
}

impl<'a> OverrideSubject<'a> {
    /// Returns `None` for a decision that refuses nothing, or that no override can
    /// change.
    fn of(record: &'a StoredRecord) -> Option<Self> {
        let ruling = &record.ruling;
        let is_refused = ruling.verdict == Verdict::Disallow.as_str();
        let is_beyond = [Reason::Egress, Reason::Identity]
            .iter()
            .any(|reason| ruling.reason == reason.as_str());
        if !is_refused || is_beyond || record.is_redacted() {
            return None;
        }
        let names = &record.crawler.candidates;
        let bound = names
            .iter()
            .find(|name| ruling.crawler.as_ref() == Some(name));
        // The configuration rejects these characters in a token, because no group can
        // have such a name.
        let named = bound
            .or(names.first())
            .filter(|name| !name.contains(['/', '*', '#']));
        Some(Self {
            record,
            target: record.url.parse().ok()?,
            agent: named.and_then(|name| ProductToken::new(name).ok()),
        })
    }
}

/// Shows the form, and the entry once it was submitted. Shows nothing for a decision
/// that no override can change. `query` is the query of the page.
pub(super) fn override_form(
    in_force: &ConfigurationInForce,
    visit: &Visit,
    explanation: &Explanation,
    query: &str,
) -> Markup {
    let Some(subject) = OverrideSubject::of(&explanation.record) else {
        return html! {};
    };
    let form = OverrideForm::parse(query);
    html! {
        details id="override" open[form.is_sent] {
            summary { "Override it" }
            p class="small" {
                "Writes an entry of " code { "robots.override" } " to copy. This page changes nothing."
            }
            (fields(visit, &form, &subject))
            @if form.is_sent {
                @match form.entry(&subject) {
                    Ok(entry) => {
                        (effect(explanation, &entry))
                        // A scrollable region must be reachable by keyboard (WCAG 2.2,
                        // 2.1.1).
                        div class="scroll" tabindex="0" role="group" aria-label="Entry" {
                            pre id="entry" {
                                @for line in toml(&entry).lines() {
                                    code { bdi { (shown(line, usize::MAX)) } } "\n"
                                }
                            }
                        }
                        button type="button" data-copy="entry" data-scripted hidden { "Copy" }
                        (steps(in_force, subject.record))
                    }
                    Err(error) => { p class="error" role="alert" { (error) } }
                }
            }
        }
    }
}

fn fields(visit: &Visit, form: &OverrideForm, subject: &OverrideSubject<'_>) -> Markup {
    let record = subject.record;
    let action = format!("/decisions/{}#override", record.seq);
    let choice = |reach: OverrideReach| {
        let pattern = reach.pattern(&record.url, &subject.target);
        let path = shown(&pattern.unwrap_or_default(), CHOICE_MAX);
        match reach {
            OverrideReach::Url => format!("this URL: {path}"),
            OverrideReach::Folder => format!("its folder: {path}"),
            OverrideReach::Origin => "the whole origin".to_owned(),
        }
    };
    html! {
        form class="filters" method="get" action=(visit.link(&action)) {
            @if let Some(node) = &record.node {
                input type="hidden" name="of" value="archive";
                input type="hidden" name="node" value=(node);
            }
            div {
                label for="action" { "action" }
                select id="action" name="action" {
                    option { "allow" }
                    option selected[form.is_deny] { "deny" }
                }
            }
            div {
                label for="reach" { "for" }
                select id="reach" name="reach" {
                    @for reach in OverrideReach::ALL {
                        option value=(reach.as_str()) selected[form.reach == reach] { (choice(reach)) }
                    }
                }
            }
            div {
                label for="agent" { "crawler" }
                select id="agent" name="agent" {
                    @if let Some(agent) = &subject.agent {
                        option value="this" { (shown(agent.as_str(), CHOICE_MAX)) }
                    }
                    option value="all" selected[form.is_for_all] { "all crawlers" }
                }
            }
            div {
                label for="reason" { "reason" }
                input id="reason" name="reason" required maxlength=(REASON_BYTES_MAX)
                    value=(form.reason) placeholder="contract 114";
            }
            div {
                label for="until" { "until (UTC)" }
                input id="until" name="until" type="date" value=(form.until);
            }
            button { "Write the entry" }
        }
    }
}

/// Shows the verdict with the entry placed before all others. A path with several
/// readings may need more than an allow of the URL.
fn effect(explanation: &Explanation, entry: &Override) -> Markup {
    let Some((evidence, snapshot)) = explanation
        .evidence()
        .and_then(|evidence| Some((evidence, evidence.snapshot.as_ref()?)))
    else {
        return html! {};
    };
    let decided_by = evidence.policy.as_ref().clone();
    let policy = decided_by.with(|terms| terms.overrides.insert(0, entry.clone()));
    let verdict = ruling(&evidence.inquiry, snapshot, &policy, clock::now()).verdict;
    html! {
        p role="status" {
            "With this entry above all others, the verdict on the request is "
            b { (verdict.as_str()) } "."
        }
    }
}

/// Explains where the entry belongs, and how to put it in force.
fn steps(in_force: &ConfigurationInForce, record: &StoredRecord) -> Markup {
    let key = in_force.key("robots", "override");
    let set = key.filter(|key| key.source != "default");
    html! {
        ol {
            li {
                @match (&record.node, &in_force.file) {
                    (Some(node), _) => {
                        "Add it to the configuration file of node " (foreign(node)) ", above its \
                         other entries of " code { "[[robots.override]]" } ": the first that fits counts."
                    }
                    (None, Some(file)) => {
                        "Add it to " (code(&file.display().to_string())) ", above its other entries of "
                        code { "[[robots.override]]" } ", or at the end if there is none: the first that \
                         fits counts."
                    }
                    (None, None) => {
                        "This proxy has no configuration file: write it into one, and start the \
                         proxy with " code { "--config FILE" } "."
                    }
                }
                @if let (None, Some(key)) = (&record.node, set) {
                    " " code { "robots.override" } " is set already (" (foreign(&key.place)) ")"
                    @if key.source != "file" { ", which wins over the file" }
                    ": a list in brackets takes the entry as " code { "{ origin = …, … }" } "."
                }
                " The first entry that fits and has not ended counts."
            }
            li { code { (command("config check")) } " validates it." }
            li {
                "Send SIGHUP to make the proxy read it"
                @if record.node.is_none() { ": " code { "kill -HUP " (process::id()) } }
                "."
            }
        }
    }
}

/// Writes an entry as TOML.
fn toml(entry: &Override) -> String {
    let values = [
        ("origin", Some(quoted(&entry.origin.to_string()))),
        (
            "agent",
            entry.agent.as_ref().map(|token| quoted(token.as_str())),
        ),
        (
            "path",
            entry.path.as_ref().map(|paths| quoted(paths.as_str())),
        ),
        ("action", Some(quoted(entry.action.as_str()))),
        ("reason", Some(quoted(&entry.reason))),
        ("until", entry.action.until().map(|end| end.to_string())),
    ];
    let mut text = "[[robots.override]]\n".to_owned();
    for (name, value) in values {
        if let Some(value) = value {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "{name} = {value}");
        }
    }
    text
}

/// Writes a basic string of TOML. Characters that may be displayed misleadingly, such
/// as direction marks, are escaped.
fn quoted(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            ' '..='~' => quoted.push(letter),
            _ if letter.is_alphanumeric() => quoted.push(letter),
            _ => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(letter));
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9309, section 2.2.3: a star or a dollar in a URL is not part of a pattern.
    #[test]
    fn the_reach_of_an_override_is_its_url_its_folder_or_all() {
        for (url, of_url, of_folder) in [
            ("http://a.test/b/c?d=/e", "/b/c?d=/e$", "/b/"),
            ("http://a.test/", "/$", "/"),
            ("http://a.test/*/c$?d=*", "/%2A/c%24?d=%2A$", "/%2A/"),
            ("http://a.test/b?#keyed", "/b?", "/"),
        ] {
            let target = url.parse().unwrap();
            let pattern = |reach: OverrideReach| reach.pattern(url, &target);
            assert_eq!(pattern(OverrideReach::Url).as_deref(), Some(of_url));
            assert_eq!(pattern(OverrideReach::Folder).as_deref(), Some(of_folder));
            assert_eq!(pattern(OverrideReach::Origin), None);
        }
    }

    // TOML 1.0, basic strings.
    #[test]
    fn text_cannot_break_out_of_its_string() {
        assert_eq!(
            quoted("\"\n[x]\\ é 中 \u{202e}"),
            r#""\"\U0000000A[x]\\ é 中 \U0000202E""#
        );
    }
}
