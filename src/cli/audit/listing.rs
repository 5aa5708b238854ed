//! Decisions and events as lines of text, cut to the width of the terminal.
//!
//! Does not know which rows are shown, or their other formats.

use std::io::{self, IsTerminal as _};

use rustix::termios::tcgetwinsize;

use super::rows::RowLayout;
use politesse_base::inert::inert;
use politesse_decision::record::StoredRecord;
use politesse_decision::row_json::ROW_COLUMNS;
use politesse_record::events::EventRow;

/// Minimum number of characters of a URL or a rule that are shown, even on a narrow
/// terminal.
const SHOWN_MIN: usize = 24;

/// Maximum number of characters of a crawler's name on a terminal.
const CRAWLER_MAX: usize = 24;

/// Assumed width of a terminal that does not report one.
const USUAL_COLUMNS: usize = 80;

/// Returns the layout of decisions: the header above [`record_line`], and the CSV
/// columns.
pub(super) fn record_layout() -> RowLayout {
    let header = fields([
        "SEQ", "TIME", "VERDICT", "REASON", "CRAWLER", "METHOD", "STATUS", "WAIT",
    ]) + "URL (LINE: RULE)";
    RowLayout {
        header,
        columns: ROW_COLUMNS.to_vec(),
    }
}

/// Returns the layout of decisions of several nodes, with the node first.
pub(super) fn node_layout() -> RowLayout {
    let RowLayout { header, columns } = record_layout();
    RowLayout {
        header: format!("{}{header}", node_column("NODE")),
        columns: ["node"].into_iter().chain(columns).collect(),
    }
}

fn node_column(node: &str) -> String {
    format!("{:<12} ", inert(node))
}

/// Makes the line of a decision, beginning with its node if it has one.
pub(super) fn record_line(record: &StoredRecord, screen: Screen) -> String {
    let ruling = &record.ruling;
    let crawler = inert(ruling.crawler.as_deref().unwrap_or("*"));
    let status = record.status.map(|status| status.to_string());
    let node = record.node.as_deref().map(node_column);
    let start = node.unwrap_or_default()
        + &fields([
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
    let left = screen.left(start.chars().count(), 2 * SHOWN_MIN);
    // The URL keeps at least half of the width; the rule gets the rest.
    let rest_max = left.map(|left| left - url.chars().count().min(left / 2));
    let rest = cut(&inert(&details(record)), rest_max);
    let url_max = left.map(|left| left - rest.chars().count());
    format!("{start}{}{rest}", cut(&url, url_max))
}

/// Lays out the fields of a line, each as wide as its widest usual value.
fn fields(values: [&str; 8]) -> String {
    let [seq, time, verdict, reason, crawler, method, status, wait] = values;
    format!(
        "{seq:>6} {time:<20} {verdict:<8} {reason:<12} {crawler:<12} {method:<6} {status:>6} \
         {wait:>6}  "
    )
}

/// Formats the time that a request waited, to about three digits.
pub(super) fn wait(ms: u64) -> String {
    match ms {
        0 => "-".to_owned(),
        1..1000 => format!("{ms}ms"),
        1000..100_000 => format!("{}.{}s", ms / 1000, ms % 1000 / 100),
        _ => format!("{}s", ms / 1000),
    }
}

/// Makes the text after the URL: the rule, and anything unusual.
fn details(record: &StoredRecord) -> String {
    let ruling = &record.ruling;
    let mut details = String::new();
    if let (Some(line), Some(rule)) = (ruling.line, &ruling.rule) {
        details.push_str(&format!("  (line {line}: {rule})"));
    }
    if let Some(reading) = &record.reading {
        details.push_str(&format!("  taken for {reading}"));
    }
    if ruling.effect != "enforced" {
        details.push_str(&format!("  {}", ruling.effect));
    }
    if let Some(error) = &record.error {
        details.push_str(&format!("  [{error}]"));
    }
    details
}

/// Returns the layout of events: the header above [`event_line`], and the CSV columns.
pub(super) fn event_layout() -> RowLayout {
    RowLayout {
        header: "   SEQ TIME                 KIND             HOST (STATUS, UNTIL, INCIDENT)"
            .to_owned(),
        columns: vec![
            "seq",
            "time",
            "kind",
            "host",
            "status",
            "until",
            "incidents",
            "actor",
            "reason",
            "entries_before",
        ],
    }
}

/// Makes the line of an event.
pub(super) fn event_line(event: &EventRow) -> String {
    let status = event
        .status
        .map_or(String::new(), |status| format!("{status}, "));
    let time = format!("{:.0}", event.at);
    if let Some(before) = event.entries_before() {
        return format!(
            "{:>6} {time:<20} {:<16} after a record of at least {before} entries that was not whole",
            event.seq, event.kind,
        );
    }
    if event.host.is_empty() {
        let sent = event.sent.map(|sent| format!("{sent} requests sent"));
        let detail = match event.configuration() {
            Some(configuration) => Some(configuration.digests.to_string()),
            None => event.detail.clone(),
        };
        let facts = [sent, detail].into_iter().flatten();
        return inert(&format!(
            "{:>6} {time:<20} {:<16} {}",
            event.seq,
            event.kind,
            facts.collect::<Vec<_>>().join("  "),
        ));
    }
    if let (Some(actor), Some(reason)) = (&event.actor, &event.reason) {
        return inert(&format!(
            "{:>6} {time:<20} {:<16} {}  by {actor}: {reason}",
            event.seq, event.kind, event.host,
        ));
    }
    inert(&format!(
        "{:>6} {time:<20} {:<16} {}  {status}until {:.0}, incident {}",
        event.seq, event.kind, event.host, event.until, event.incidents,
    ))
}

/// Output that results are written to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    /// Width of the terminal in columns; `None` if nothing must be cut.
    pub(super) columns: Option<usize>,
}

impl Screen {
    /// Checks whether stdout is a terminal.
    pub(super) fn of_stdout() -> Self {
        let stdout = io::stdout();
        let columns = stdout.is_terminal().then(|| {
            let size = tcgetwinsize(&stdout).ok();
            let columns = size.map_or(0, |size| usize::from(size.ws_col));
            if columns == 0 { USUAL_COLUMNS } else { columns }
        });
        Self { columns }
    }

    /// Returns the width that is left after `used` columns, but at least `least`: on a
    /// narrow terminal a row wraps.
    pub(super) fn left(self, used: usize, least: usize) -> Option<usize> {
        let left = self.columns?.saturating_sub(used);
        Some(left.max(least))
    }
}

/// Cuts `text` to its first `columns` characters, with an ellipsis as the last one if
/// there were more. Without a limit the whole text is returned.
pub(super) fn cut(text: &str, columns: Option<usize>) -> String {
    match columns {
        Some(columns) if columns < text.chars().count() => {
            let head: String = text.chars().take(columns.saturating_sub(1)).collect();
            format!("{head}…")
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use politesse_decision::record::{StoredPolicy, StoredRuling};

    fn record(url: &str) -> StoredRecord {
        StoredRecord {
            node: None,
            seq: 12,
            at: "2026-11-22T10:00:00.123456Z".parse().unwrap(),
            client: Arc::default(),
            crawler: Arc::default(),
            method: "GET".into(),
            url: url.to_owned(),
            ruling: Arc::new(StoredRuling {
                verdict: "disallow".to_owned(),
                reason: "rule".to_owned(),
                effect: "reported".to_owned(),
                line: Some(2),
                rule: Some("Disallow: /private".to_owned()),
                group: Vec::new(),
                crawler: Some("FooBot".to_owned()),
                denials: Vec::new(),
            }),
            reading: Some("/private/a".to_owned()),
            snapshot: None,
            policy: Arc::new(StoredPolicy::new("{}")),
            wait_ms: 1250,
            status: Some(200),
            sent: Some(1),
            directives: None,
            bytes: None,
            error: Some("client_gone".into()),
        }
    }

    // Ours.
    #[test]
    fn a_line_stands_under_its_header() {
        let file = Screen { columns: None };
        let line = record_line(&record("http://h.test/b/../private/a"), file);
        assert_eq!(
            (record_layout().header.as_str(), line.as_str()),
            (
                "   SEQ TIME                 VERDICT  REASON       CRAWLER      METHOD STATUS   WAIT  URL (LINE: RULE)",
                "    12 2026-11-22T10:00:00Z disallow rule         FooBot       GET       200   1.2s  http://h.test/b/../private/a  (line 2: Disallow: /private)  taken for /private/a  reported  [client_gone]",
            )
        );
    }

    // Ours: complete in a file, cut to the width on a terminal.
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

    // Ours: text from a crawler or a site must not control the terminal.
    #[test]
    fn a_line_holds_no_control_characters() {
        let mut evil = record("http://h.test/\u{1b}[2J");
        let ruling = Arc::make_mut(&mut evil.ruling);
        ruling.crawler = Some("Foo\u{9b}\nBot".to_owned());
        ruling.rule = Some("Disallow: /\u{202e}x".to_owned());
        let line = record_line(&evil, Screen { columns: Some(300) });
        assert!(
            !line.contains(['\u{1b}', '\u{9b}', '\n', '\u{202e}']),
            "{line:?}"
        );
        assert!(line.contains("\\u{1b}[2J"));
    }

    // Ours.
    #[test]
    fn text_is_cut_to_the_remaining_width_and_never_without_a_terminal() {
        let screen = Screen { columns: Some(30) };
        assert_eq!(
            cut("https://site.example/a", screen.left(20, 8)),
            "https://s…"
        );
        assert_eq!(
            cut("https://site.example/a", screen.left(29, 8)),
            "https:/…"
        );
        assert_eq!(cut("abc", Some(3)), "abc");
        let file = Screen { columns: None };
        assert_eq!(
            cut("https://site.example/a", file.left(20, 8)),
            "https://site.example/a"
        );
    }
}
