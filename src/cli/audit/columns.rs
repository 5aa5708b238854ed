//! Rows of decisions and events as lines of text, under a header.

use super::screen::{Screen, cut};
use crate::audit::events::EventRow;
use crate::cli::inert::inert;
use crate::decision::record::StoredRecord;

/// Letters of a URL or a rule that are shown however narrow the terminal is.
const SHOWN_MIN: usize = 24;

/// Letters of a crawler's name that are shown on a terminal.
const CRAWLER_MAX: usize = 24;

/// The header above [`record_line`].
pub(super) fn record_header() -> String {
    fields([
        "SEQ", "TIME", "VERDICT", "REASON", "CRAWLER", "METHOD", "STATUS", "WAIT",
    ]) + "URL (LINE: RULE)"
}

/// A decision on one line.
pub(super) fn record_line(record: &StoredRecord, screen: Screen) -> String {
    let ruling = &record.ruling;
    let crawler = inert(ruling.crawler.as_deref().unwrap_or("*"));
    let status = record.status.map(|status| status.to_string());
    let start = fields([
        &record.seq.to_string(),
        &format!("{:.0}", record.at),
        &inert(&ruling.verdict),
        &inert(&ruling.reason),
        &cut(&crawler, screen.columns.map(|_| CRAWLER_MAX)),
        &inert(&record.method),
        status.as_deref().unwrap_or("-"),
        &wait(record.wait_ms),
    ]);
    let url = inert(&record.url);
    let rest = inert(&details(record));
    let left = screen.left(start.chars().count(), 2 * SHOWN_MIN);
    // The URL keeps at least half of the width, the rule what is left.
    let rest_max = left.map(|left| left - url.chars().count().min(left / 2));
    let rest = cut(&rest, rest_max);
    let url = cut(&url, left.map(|left| left - rest.chars().count()));
    format!("{start}{url}{rest}")
}

/// The fields of a line, each as wide as the widest usual value.
fn fields(values: [&str; 8]) -> String {
    let [seq, time, verdict, reason, crawler, method, status, wait] = values;
    format!(
        "{seq:>6} {time:<20} {verdict:<8} {reason:<12} {crawler:<12} {method:<6} {status:>6} \
         {wait:>6}  "
    )
}

/// How long a request waited, to three digits or so.
fn wait(ms: u64) -> String {
    match ms {
        0 => "-".to_owned(),
        1..1000 => format!("{ms}ms"),
        1000..100_000 => format!("{}.{}s", ms / 1000, ms % 1000 / 100),
        _ => format!("{}s", ms / 1000),
    }
}

/// What stands behind the URL: the rule, and whatever is unusual.
fn details(record: &StoredRecord) -> String {
    let ruling = &record.ruling;
    let mut details = String::new();
    if let (Some(line), Some(rule)) = (ruling.line, &ruling.rule) {
        details.push_str(&format!("  (line {line}: {rule})"));
    }
    if let Some(reading) = &ruling.reading {
        details.push_str(&format!("  read as {reading}"));
    }
    if record.effect != "enforced" {
        details.push_str(&format!("  {}", record.effect));
    }
    if let Some(error) = &record.error {
        details.push_str(&format!("  [{error}]"));
    }
    details
}

/// The header above [`event_line`].
pub(super) const EVENT_HEADER: &str =
    "   SEQ TIME                 KIND            HOST (STATUS, UNTIL, INCIDENT)";

/// An event on one line.
pub(super) fn event_line(event: &EventRow) -> String {
    let status = event
        .status
        .map_or(String::new(), |status| format!("{status}, "));
    let time = format!("{:.0}", event.at);
    if let Some(before) = event.decisions_before() {
        return format!(
            "{:>6} {time:<20} {:<15} after a record of at least {before} decisions that was not whole",
            event.seq, event.kind,
        );
    }
    inert(&format!(
        "{:>6} {time:<20} {:<15} {}  {status}until {:.0}, incident {}",
        event.seq, event.kind, event.host, event.until, event.incidents,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::record::{StoredPolicy, StoredRuling};

    fn record(url: &str) -> StoredRecord {
        StoredRecord {
            seq: 12,
            at: "2026-11-22T10:00:00.123456Z".parse().unwrap(),
            client: "127.0.0.1".to_owned(),
            candidates: Vec::new(),
            user_agent: None,
            method: "GET".to_owned(),
            url: url.to_owned(),
            ruling: StoredRuling {
                verdict: "disallow".to_owned(),
                reason: "rule".to_owned(),
                line: Some(2),
                rule: Some("Disallow: /private".to_owned()),
                group: Vec::new(),
                crawler: Some("FooBot".to_owned()),
                reading: Some("/private/a".to_owned()),
                exception: None,
            },
            effect: "reported".to_owned(),
            snapshot: None,
            policy: StoredPolicy::new("{}"),
            wait_ms: 1250,
            status: Some(200),
            directives: None,
            said: None,
            bytes: None,
            error: Some("client_gone".to_owned()),
        }
    }

    // Ours.
    #[test]
    fn a_line_stands_under_its_header() {
        let file = Screen { columns: None };
        let line = record_line(&record("http://h.test/b/../private/a"), file);
        assert_eq!(
            (record_header().as_str(), line.as_str()),
            (
                "   SEQ TIME                 VERDICT  REASON       CRAWLER      METHOD STATUS   WAIT  URL (LINE: RULE)",
                "    12 2026-11-22T10:00:00Z disallow rule         FooBot       GET       200   1.2s  http://h.test/b/../private/a  (line 2: Disallow: /private)  read as /private/a  reported  [client_gone]",
            )
        );
    }

    // Ours: whole in a file, cut to the width on a terminal.
    #[test]
    fn a_long_url_is_cut_on_a_terminal_only() {
        let url = format!("http://h.test/{}", "a".repeat(500));
        let whole = record_line(&record(&url), Screen { columns: None });
        assert!(whole.contains(&url));
        for columns in [140, 200, 400] {
            let screen = Screen {
                columns: Some(columns),
            };
            let line = record_line(&record(&url), screen);
            assert_eq!(line.chars().count(), columns, "{line}");
            assert!(line.contains("http://h.test/aaa") && line.contains("(line 2: Disal"));
        }
    }

    // Ours: what a crawler or a site wrote must not steer the terminal.
    #[test]
    fn a_line_holds_no_control_characters() {
        let mut evil = record("http://h.test/\u{1b}[2J");
        evil.ruling.crawler = Some("Foo\u{9b}\nBot".to_owned());
        evil.ruling.rule = Some("Disallow: /\u{202e}x".to_owned());
        let line = record_line(&evil, Screen { columns: Some(300) });
        assert!(
            !line.contains(['\u{1b}', '\u{9b}', '\n', '\u{202e}']),
            "{line:?}"
        );
        assert!(line.contains("\\u{1b}[2J"));
    }
}
