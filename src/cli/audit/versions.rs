//! `audit robots --history`: the versions of a robots.txt, the changes between them,
//! and what each decided.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::rows::{RowForm, write_json};
use crate::cli::output::{Exit, print_notice};
use politesse_base::inert::{csv_line, csv_row, inert};
use politesse_pages::page::line_diff::LineDiff;
use politesse_record::reader::AuditReader;
use politesse_record::robots_history::RobotsOwner;
use politesse_record::robots_versions::{RobotsVersion, RulingCount, robots_versions};

/// Maximum number of rulings of a version that are shown; the others are summed up.
const RULINGS_SHOWN: usize = 20;

/// CSV columns: a version with one of its rulings.
const COLUMNS: [&str; 18] = [
    "version",
    "origin",
    "token",
    "first_seen",
    "last_seen",
    "fetches",
    "result",
    "status",
    "sha256",
    "bytes",
    "added",
    "removed",
    "verdict",
    "reason",
    "effect",
    "line",
    "rule",
    "requests",
];

/// Prints the versions, the oldest first.
pub(super) fn print_history(
    reader: &AuditReader,
    owner: &RobotsOwner,
    crawler: Option<&str>,
    form: RowForm,
) -> anyhow::Result<Exit> {
    let mut versions = robots_versions(reader, owner)?;
    if let Some(crawler) = crawler {
        versions.retain(|version| {
            let token = version.snapshot.token.as_deref();
            // A file without a token applies to every crawler.
            token.is_none_or(|token| token.eq_ignore_ascii_case(crawler))
        });
    }
    if versions.is_empty() {
        print_notice(&format!("no robots.txt of {owner} is on record"));
        return Ok(Exit::Not);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    if form == RowForm::Csv {
        out.write_all(csv_line(COLUMNS).as_bytes())?;
    }
    for (at, version) in versions.iter().enumerate() {
        // The changes are relative to the previous version for the same crawler.
        let earlier = versions.get(..at).unwrap_or_default();
        let shown = ShownVersion::of(reader, version, earlier)?;
        match form {
            RowForm::Json => write_json(&mut out, &shown.json())?,
            RowForm::Csv => shown.write_csv(&mut out)?,
            RowForm::Columns => shown.write(&mut out)?,
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// A version, with the previous one for crawlers of the same name.
struct ShownVersion<'a> {
    /// Version number, from 1, counted per origin and token.
    number: usize,
    version: &'a RobotsVersion,
    body: Option<Vec<u8>>,
    /// Body of the previous version; `None` if it has none, or if there is no previous
    /// version.
    previous_body: Option<Vec<u8>>,
}

impl<'a> ShownVersion<'a> {
    fn of(
        reader: &AuditReader,
        version: &'a RobotsVersion,
        earlier: &[RobotsVersion],
    ) -> anyhow::Result<Self> {
        // Product tokens are compared case-insensitively (RFC 9309, section 2.2.1).
        let token = |version: &RobotsVersion| {
            let token = version.snapshot.token.as_deref();
            token.map(str::to_ascii_lowercase)
        };
        let is_of_same = |other: &&RobotsVersion| {
            other.origin == version.origin && token(other) == token(version)
        };
        let body = |version: &RobotsVersion| match version.snapshot.sha256 {
            Some(sha256) => reader.body(sha256),
            None => Ok(None),
        };
        let previous = earlier.iter().rev().find(is_of_same);
        Ok(Self {
            number: earlier.iter().filter(is_of_same).count() + 1,
            version,
            body: body(version)?,
            previous_body: match previous {
                Some(previous) => body(previous)?,
                None => None,
            },
        })
    }

    /// Compares the file with the previous one, if both exist.
    fn difference(&self) -> Option<LineDiff<'_>> {
        let (old, new) = (self.previous_body.as_deref()?, self.body.as_deref()?);
        Some(LineDiff::new(old, new))
    }

    fn json(&self) -> Value {
        let Self {
            number, version, ..
        } = self;
        let snapshot = &version.snapshot;
        let difference = self.difference();
        let decided = version.decided.iter().map(|count| {
            let ruling = &count.ruling;
            json!({
                "verdict": ruling.verdict,
                "reason": ruling.reason,
                "effect": ruling.effect,
                "line": ruling.line,
                "rule": ruling.rule,
                "requests": count.requests,
            })
        });
        json!({
            "version": number,
            "origin": version.origin,
            "token": snapshot.token,
            "url": snapshot.url,
            "first_seen": snapshot.fetched_at.to_string(),
            "last_seen": version.last_seen.to_string(),
            "fetches": version.fetches,
            "result": snapshot.result,
            "cause": snapshot.cause,
            "status": snapshot.status,
            "sha256": snapshot.sha256.map(|digest| digest.to_string()),
            "bytes": self.body.as_ref().map(Vec::len),
            "added": difference.as_ref().map(LineDiff::added),
            "removed": difference.as_ref().map(LineDiff::removed),
            "diff": difference.as_ref().map(LineDiff::unified),
            "decided": decided.collect::<Vec<_>>(),
        })
    }

    /// Writes one line per ruling, or a single line if there are none.
    fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        let mut row = self.json();
        let decided = row["decided"].take();
        let rulings = decided.as_array().map_or(&[][..], Vec::as_slice);
        // A version without decisions still has a row.
        if rulings.is_empty() {
            return out.write_all(csv_row(&row, &COLUMNS).as_bytes());
        }
        for ruling in rulings {
            for (name, value) in ruling.as_object().into_iter().flatten() {
                row[name] = value.clone();
            }
            out.write_all(csv_row(&row, &COLUMNS).as_bytes())?;
        }
        Ok(())
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Self {
            number, version, ..
        } = self;
        let snapshot = &version.snapshot;
        let token = match &snapshot.token {
            Some(token) => format!(", fetched as {token}"),
            None => String::new(),
        };
        let title = format!("{}{token}: version {number}", snapshot.url);
        writeln!(out, "{}", inert(&title))?;
        let fact = |name: &str, value: String| format!("  {name:<11}{}\n", inert(&value));
        let mut text = fact(
            "seen",
            format!(
                "{:.0} to {:.0}, fetches: {}",
                snapshot.fetched_at, version.last_seen, version.fetches
            ),
        );
        text.push_str(&fact("answer", self.answer()));
        if let Some(difference) = self.difference() {
            let (removed, added) = (difference.removed(), difference.added());
            let changed = format!("{removed} lines removed, {added} added");
            text.push_str(&fact("changed", changed));
            if removed + added == 0 {
                text.push_str("    its lines are the same; their ends are not\n");
            }
            for line in difference.unified().lines() {
                text.push_str(&format!("    {line}\n"));
            }
        }
        let (shown, left) = {
            let decided = version.decided.as_slice();
            decided.split_at(RULINGS_SHOWN.min(decided.len()))
        };
        let requests: u64 = version.decided.iter().map(|count| count.requests).sum();
        text.push_str(&fact("decided", format!("{requests} requests")));
        for count in shown {
            text.push_str(&ruling_line(count));
        }
        if !left.is_empty() {
            let requests: u64 = left.iter().map(|count| count.requests).sum();
            text.push_str(&format!(
                "    {requests:>8}  by {} more rulings: --json has them\n",
                left.len()
            ));
        }
        writeln!(out, "{text}")
    }

    /// Describes the answer: status, size and digest, or why there was no file.
    fn answer(&self) -> String {
        let snapshot = &self.version.snapshot;
        let status = match snapshot.status {
            Some(status) => format!("status {status}, {}", snapshot.result),
            None => snapshot.result.clone(),
        };
        let cause = match &snapshot.cause {
            Some(cause) => format!(" ({cause})"),
            None => String::new(),
        };
        let file = match (snapshot.sha256, &self.body) {
            (Some(sha256), Some(body)) => format!(", {} bytes, sha256 {sha256}", body.len()),
            (Some(sha256), None) => {
                format!(", its file is not on record any more, sha256 {sha256}")
            }
            (None, _) => String::new(),
        };
        format!("{status}{cause}{file}")
    }
}

fn ruling_line(count: &RulingCount) -> String {
    let ruling = &count.ruling;
    let because = match (ruling.line, &ruling.rule) {
        (Some(line), Some(rule)) => format!("line {line}: {rule}"),
        _ => ruling.reason.clone(),
    };
    let effect = match ruling.exception() {
        Some(effect) => format!(" ({})", effect.as_str()),
        None => String::new(),
    };
    let line = format!(
        "    {:>8}  {:<8}  {because}{effect}",
        count.requests, ruling.verdict
    );
    format!("{}\n", inert(&line))
}
