//! Summary of a command's requests, printed on stderr when it has ended.

use std::collections::HashMap;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use crate::audit::query::{AuditReader, Filter};
use crate::cli::inert::inert;
use crate::rules::decision::{Reason, Verdict};
use crate::rules::record::{Effect, StoredRecord};

/// Refusals told by rule at the end; the audit has them all.
const RULES_TOLD: usize = 10;

/// What was asked, refused and waited for since `began`, on stderr.
pub(super) fn summary(audit: &Path, began: Timestamp) -> anyhow::Result<()> {
    let filter = Filter {
        from: Some(began),
        ..Filter::default()
    };
    let mut sums = Sums::default();
    AuditReader::open(audit)?.each(&filter, |record| {
        sums.add(&record);
        ControlFlow::Continue(())
    })?;
    let mut stderr = std::io::stderr().lock();
    for line in sums.lines() {
        let _ = writeln!(stderr, "politesse: {}", inert(&line));
    }
    Ok(())
}

/// The decisions of one run, counted.
#[derive(Default)]
struct Sums {
    allowed: u64,
    refused: u64,
    /// Forwarded in report mode, and refused without it.
    reported: u64,
    /// Put off by pace, and not sent.
    later: u64,
    wait_ms: u64,
    longest_ms: u64,
    /// By what was done, and why.
    by_reason: HashMap<(&'static str, String), u64>,
}

impl Sums {
    fn add(&mut self, record: &StoredRecord) {
        self.wait_ms += record.wait_ms;
        self.longest_ms = self.longest_ms.max(record.wait_ms);
        if record.ruling.verdict == "allow" {
            self.allowed += 1;
            return;
        }
        let (count, done) = if record.ruling.verdict == Verdict::Later.as_str() {
            (&mut self.later, "put off")
        } else if record.effect == Effect::Reported.as_str() {
            (&mut self.reported, "would refuse")
        } else {
            (&mut self.refused, "refused")
        };
        *count += 1;
        *self.by_reason.entry((done, why(record))).or_default() += 1;
    }

    fn lines(&self) -> Vec<String> {
        let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
        let reported = match self.reported {
            0 => String::new(),
            count => format!(", {count} reported (enforcement.mode)"),
        };
        let later = match self.later {
            0 => String::new(),
            count => format!(", {count} put off"),
        };
        let mut lines = vec![format!(
            "{} asked, {} allowed, {} refused{later}{reported}; waited {:.1} s in all, {:.1} s at most",
            self.allowed + self.refused + self.later + self.reported,
            self.allowed,
            self.refused,
            seconds(self.wait_ms),
            seconds(self.longest_ms)
        )];
        let mut reasons: Vec<_> = self.by_reason.iter().collect();
        reasons.sort_by_key(|(refused, count)| (std::cmp::Reverse(**count), *refused));
        let told = reasons.iter().take(RULES_TOLD);
        lines.extend(told.map(|((done, why), count)| format!("{done} {count} × {why}")));
        if reasons.len() > RULES_TOLD {
            lines.push(format!(
                "and by {} more rules: politesse audit list --verdict disallow",
                reasons.len() - RULES_TOLD
            ));
        }
        lines
    }
}

/// Why a request was refused or put off, the same for all that one rule refused.
fn why(record: &StoredRecord) -> String {
    if record.ruling.verdict == Verdict::Later.as_str() {
        return record.ruling.reason.clone();
    }
    let robots = record
        .snapshot
        .as_ref()
        .map(|snapshot| snapshot.url.as_str());
    match (&record.ruling.rule, record.ruling.line, robots) {
        (Some(rule), Some(line), Some(robots)) => format!("{rule} (line {line} of {robots})"),
        (_, _, Some(robots)) if record.ruling.reason != Reason::Override.as_str() => {
            format!("{} ({robots})", record.ruling.reason)
        }
        _ => record.ruling.reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::record::{StoredPolicy, StoredRuling};

    fn row(verdict: &str, reason: &str) -> StoredRecord {
        StoredRecord {
            seq: 1,
            at: Timestamp::UNIX_EPOCH,
            client: "127.0.0.1".to_owned(),
            candidates: Vec::new(),
            user_agent: None,
            method: "GET".to_owned(),
            url: "http://a.test/".to_owned(),
            ruling: StoredRuling {
                verdict: verdict.to_owned(),
                reason: reason.to_owned(),
                line: Some(2),
                rule: Some("Allow: /".to_owned()),
                group: Vec::new(),
                crawler: None,
                reading: None,
                exception: None,
            },
            effect: Effect::Enforced.as_str().to_owned(),
            snapshot: None,
            policy: StoredPolicy::new(""),
            wait_ms: 1500,
            status: None,
            directives: None,
            said: None,
            bytes: None,
            error: None,
        }
    }

    // Contract, section 1 (`run`): refused and waited for; what was put off is
    // neither allowed nor refused, and not for the rule that allowed it.
    #[test]
    fn what_was_put_off_is_counted_by_reason() {
        let mut sums = Sums::default();
        for row in [
            row("allow", "rule"),
            row("later", "backoff"),
            row("later", "backoff"),
        ] {
            sums.add(&row);
        }
        assert_eq!(
            sums.lines(),
            [
                "3 asked, 1 allowed, 0 refused, 2 put off; waited 4.5 s in all, 1.5 s at most",
                "put off 2 × backoff",
            ]
        );
    }
}
