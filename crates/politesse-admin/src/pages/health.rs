//! Health of the record and of the process, for pages.
//!
//! Does not know how the record is written.

use std::net::SocketAddr;

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;

use super::Dashboard;
use crate::api::error_text;
use crate::layout::time_in_text;
use crate::visit::Visit;
use politesse_pages::page::words::{bytes, number, shown};
use politesse_record::AuditError;
use politesse_record::reader::SeqRange;

/// Maximum number of characters shown of a message.
const MESSAGE_MAX: usize = 500;

/// State of the record.
#[derive(Debug, Default, Serialize)]
pub(super) struct RecordHealth {
    /// Error that keeps the record from being written or read, if any.
    problem: Option<String>,
    /// Number of the first decision.
    first: Option<u64>,
    /// Number of the last decision.
    last: Option<u64>,
    /// Entries that no head covers yet.
    unsealed: i64,
    /// Commits that failed since the start.
    failures: u64,
}

impl RecordHealth {
    /// Asks the writer whether a decision could be written. `numbers` are those of the
    /// decisions on record, or the error from reading them.
    pub(super) async fn gather(
        dashboard: &Dashboard,
        numbers: Result<Option<SeqRange>, AuditError>,
    ) -> Self {
        // Asks the writer itself, because a disk may have failed since the last commit.
        let unwritable = dashboard.audit.probe().await.err();
        let (numbers, unreadable) = match numbers {
            Ok(numbers) => (numbers, None),
            Err(error) => (None, Some(error)),
        };
        let problem = unwritable.or(unreadable);
        let metrics = &dashboard.metrics;
        Self {
            problem: problem.map(|error| error_text(&error)),
            first: numbers.map(|numbers| numbers.first),
            last: numbers.map(|numbers| numbers.last),
            unsealed: metrics.audit_unsealed.get(),
            failures: metrics.audit_failures.get(),
        }
    }

    /// Shows the state, without a heading.
    pub(super) fn markup(&self, visit: &Visit) -> Markup {
        html! {
            @match &self.problem {
                None => {
                    p { span class="verdict allow" { span aria-hidden="true" { "✓ " } "Decisions are being recorded." } }
                }
                Some(problem) => {
                    p class="error" {
                        b { "The record cannot be used: " } bdi { (shown(problem, MESSAGE_MAX)) }
                    }
                }
            }
            dl {
                @if let (Some(first), Some(last)) = (self.first, self.last) {
                    dt { "decisions" }
                    dd {
                        a href=(visit.link("/decisions")) {
                            "numbers " (number(first)) " to " (number(last))
                        }
                    }
                }
                dt { "not covered by a seal yet" } dd { (number(count(self.unsealed))) }
                dt { "failed commits" } dd { (number(self.failures)) " since the start" }
            }
        }
    }
}

/// Addresses of the listeners, as the browser reached them.
#[derive(Debug, Serialize)]
pub(super) struct ReachedListeners {
    /// Listeners for crawlers.
    pub(super) proxies: Vec<String>,
    /// Admin listener.
    pub(super) admin: Option<SocketAddr>,
}

/// State of the process, and of the system resources it needs.
#[derive(Debug, Serialize)]
pub(super) struct ProcessHealth {
    version: &'static str,
    started_at: Option<Timestamp>,
    listeners: ReachedListeners,
    report_mode: bool,
    /// Entries waiting for the record's writer.
    queue: i64,
    /// Bytes of the write-ahead log of the record.
    wal_bytes: i64,
    /// Free space on the disk of the record.
    free_bytes: i64,
    /// Number of descriptors that the process may open.
    descriptors_limit: i64,
    /// Number of descriptors that the configuration may need.
    descriptors_wanted: i64,
}

impl ProcessHealth {
    /// Reads the gauges.
    pub(super) async fn gather(dashboard: &Dashboard, listeners: ReachedListeners) -> Self {
        // The free space is looked up only on request.
        dashboard.gauges.run().await;
        let metrics = &dashboard.metrics;
        Self {
            version: env!("CARGO_PKG_VERSION"),
            started_at: Timestamp::from_second(metrics.start_timestamp_seconds.get()).ok(),
            listeners,
            report_mode: metrics.report_mode.get() != 0,
            queue: metrics.audit_queue.get(),
            wal_bytes: metrics.audit_wal_bytes.get(),
            free_bytes: metrics.audit_free_bytes.get(),
            descriptors_limit: metrics.descriptors_limit.get(),
            descriptors_wanted: metrics.descriptors_wanted.get(),
        }
    }

    /// Shows the state, with links to the pages for monitoring.
    pub(super) fn markup(&self, visit: &Visit) -> Markup {
        let is_short = self.descriptors_limit < self.descriptors_wanted;
        html! {
            dl {
                dt { "version" } dd { "politesse " (self.version) }
                @if let Some(started_at) = self.started_at {
                    dt { "started" } dd { (time_in_text(started_at)) }
                }
                dt { "mode" }
                dd { @if self.report_mode { "report: nothing is refused by robots.txt" } @else { "enforce" } }
                dt { "for crawlers" }
                dd { @for proxy in &self.listeners.proxies { code { (proxy) } " " } }
                @if let Some(admin) = self.listeners.admin {
                    dt { "admin listener" } dd { code { (admin) } }
                }
                dt { "waiting to be written" } dd { (number(count(self.queue))) " entries" }
                dt { "write-ahead log" } dd { (bytes(count(self.wal_bytes))) }
                dt { "room on its disk" } dd { (bytes(count(self.free_bytes))) }
                dt { "descriptors" }
                dd {
                    (number(count(self.descriptors_limit))) " allowed, "
                    (number(count(self.descriptors_wanted))) " needed by this configuration"
                    @if is_short { b { ": too few" } }
                }
                dt { "for monitoring" }
                dd {
                    @for path in ["/healthz", "/readyz", "/metrics"] {
                        a href=(visit.link(path)) { (path) } " "
                    }
                }
            }
        }
    }
}

/// Returns the value of a gauge as a count.
fn count(gauge: i64) -> u64 {
    u64::try_from(gauge).unwrap_or_default()
}
