//! `check --json`: what a program gets to know of a decision.

use serde::Serialize;

use super::answer::Members;
use super::explained::{Bound, Explained};
use crate::decision::overrides::Override;
use crate::decision::snapshot::{AccessResult, Snapshot};
use politesse_robots::{PaceRecord, PaceScope};

/// The members of the batch format, and all that explains them.
#[derive(Serialize)]
pub(super) struct Object<'a> {
    url: String,
    #[serde(flatten)]
    members: Members<'a>,
    user_agent: Option<&'a str>,
    /// The candidate that is bound, `*`, or nothing.
    bound: Option<&'a str>,
    agent_line: Option<u32>,
    agent_text: Option<String>,
    length: Option<usize>,
    request_rate: Vec<String>,
    visit_time: Vec<String>,
    pace_records: Vec<PaceLine>,
    competing: Vec<Competitor>,
    reading: Option<&'a str>,
    refused_reading: Option<String>,
    refused_by_line: Option<u32>,
    r#override: Option<Operator<'a>>,
    egress: Option<&'a str>,
    dialect: &'static str,
    robots: Option<Robots<'a>>,
    joins: Vec<Join>,
    notes: Vec<Noted>,
}

/// A pace record that binds, with the agent line directly above by which; none
/// if it binds the group, below whose rules it stands.
#[derive(Serialize)]
struct PaceLine {
    line: u32,
    agent_line: Option<u32>,
}

#[derive(Serialize)]
struct Competitor {
    line: u32,
    rule: String,
    length: usize,
    why: &'static str,
}

#[derive(Serialize)]
struct Operator<'a> {
    action: &'static str,
    reason: &'a str,
    until: Option<String>,
}

/// How the file was got; the redirects and times only if it was fetched.
#[derive(Serialize)]
struct Robots<'a> {
    url: &'a str,
    status: Option<u16>,
    sha256: Option<String>,
    result: &'static str,
    cause: Option<&'static str>,
    redirects: Option<usize>,
    hops: Option<&'a [String]>,
    content_type: Option<&'a str>,
    fetched_at: Option<String>,
    expires_at: Option<String>,
    age: Option<i64>,
}

#[derive(Serialize)]
struct Join {
    line: u32,
    above: u32,
}

#[derive(Serialize)]
struct Noted {
    line: u32,
    kind: &'static str,
    note: String,
}

impl<'a> Object<'a> {
    pub(super) fn of(explained: &'a Explained) -> Self {
        let (ruling, evidence) = (explained.ruling(), explained.evidence());
        let (agent_line, agent_text) = explained.agent_line().unzip();
        let joined = explained.joined().into_iter();
        let asked = ruling.asked.as_deref();
        Self {
            url: evidence.inquiry.target.to_string(),
            members: Members::of(ruling, explained.crawler()),
            user_agent: explained.crawler().user_agent(),
            bound: bound(explained),
            agent_line,
            agent_text,
            length: explained.rule().map(|rule| rule.length()),
            request_rate: asked.map_or_else(Vec::new, |asked| texts(&asked.rates)),
            visit_time: asked.map_or_else(Vec::new, |asked| texts(&asked.visits)),
            pace_records: pace_records(explained),
            competing: competitors(explained),
            reading: ruling.reading.as_deref(),
            refused_reading: explained.refused_reading(),
            refused_by_line: explained.refused_by_rule().map(|rule| rule.line),
            r#override: ruling.overriding.as_deref().map(Operator::of),
            egress: evidence.denial.as_deref(),
            dialect: explained.dialect().as_str(),
            robots: Robots::of(explained),
            joins: joined
                .map(|joined| Join {
                    line: joined.line,
                    above: joined.above,
                })
                .collect(),
            notes: notes(explained),
        }
    }
}

fn texts(values: &[impl ToString]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn bound(explained: &Explained) -> Option<&str> {
    match explained.bound()? {
        Bound::Token(token) => Some(token.as_str()),
        Bound::Everyone => Some("*"),
        Bound::Nobody => None,
    }
}

fn pace_records(explained: &Explained) -> Vec<PaceLine> {
    let records = explained.pace_records().into_iter();
    records
        .map(|PaceRecord { line, scope }| PaceLine {
            line,
            agent_line: match scope {
                PaceScope::Agents { line } => Some(line),
                PaceScope::Group => None,
            },
        })
        .collect()
}

fn competitors(explained: &Explained) -> Vec<Competitor> {
    let competing = explained.competing().into_iter();
    competing
        .map(|competing| Competitor {
            line: competing.rule.line(),
            rule: competing.rule.text().into_owned(),
            length: competing.rule.length(),
            why: competing.why.map_or("set_aside", |why| why.as_str()),
        })
        .collect()
}

fn notes(explained: &Explained) -> Vec<Noted> {
    let notes = explained.robots().map(|robots| robots.notes());
    let notes = notes.into_iter().flatten();
    notes
        .map(|note| Noted {
            line: note.line,
            kind: note.kind.as_str(),
            note: note.kind.to_string(),
        })
        .collect()
}

impl<'a> Operator<'a> {
    fn of(entry: &'a Override) -> Self {
        Self {
            action: entry.action.as_str(),
            reason: &entry.reason,
            until: entry.action.until().map(|end| end.to_string()),
        }
    }
}

impl<'a> Robots<'a> {
    fn of(explained: &'a Explained) -> Option<Self> {
        let (snapshot, copy) = (explained.snapshot()?, explained.file());
        let age = explained.age();
        let fetched = age.map(|_| snapshot);
        let (result, cause) = result(snapshot);
        Some(Self {
            url: &snapshot.url,
            status: snapshot.status,
            sha256: copy.map(|copy| copy.digest.to_string()),
            result,
            cause,
            redirects: fetched.map(|snapshot| snapshot.hops.len()),
            hops: fetched.map(|snapshot| snapshot.hops.as_slice()),
            content_type: copy.and_then(|copy| copy.content_type.as_deref()),
            fetched_at: fetched.map(|snapshot| snapshot.fetched_at.to_string()),
            expires_at: fetched.map(|snapshot| snapshot.expires_at.to_string()),
            age,
        })
    }
}

fn result(snapshot: &Snapshot) -> (&'static str, Option<&'static str>) {
    match &snapshot.result {
        AccessResult::Successful(_) => ("successful", None),
        AccessResult::Unavailable => ("unavailable", None),
        AccessResult::Unreachable(cause) => ("unreachable", Some(cause.as_str())),
    }
}
