//! Every metric there is: name, type and help, in one list.
//!
//! Labels are bounded: none names a host, a URL or a crawler.

use std::sync::LazyLock;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Lines that the log left out. There is one log for the process, and it begins
/// before there are other metrics.
pub static LOG_LINES_LEFT_OUT: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Labels of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DecisionLabels {
    /// `allow`, `disallow` or `later`.
    pub verdict: &'static str,
    /// The reason's word.
    pub reason: &'static str,
}

/// Labels of an annotation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct AnnotationLabels {
    /// `complete`, `partial` or `unknown`.
    pub state: &'static str,
    /// Why it is not complete; empty if it is.
    pub why: &'static str,
}

/// The label of what is counted by reason.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    /// The reason's word.
    pub reason: &'static str,
}

/// One word out of a bounded list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResultLabel {
    /// What it led to.
    pub result: &'static str,
}

/// The counters and gauges of one proxy.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Decisions recorded.
    pub decisions: Family<DecisionLabels, Counter>,
    /// Whether the configuration was right when it was last read again.
    pub config_last_reload_successful: Gauge,
    /// When the configuration in force was read, in seconds since 1970.
    pub config_last_reload_timestamp: Gauge,
    /// How often the configuration was read again, by result.
    pub config_reloads: Family<ResultLabel, Counter>,
    /// Requests forwarded that would have been refused, by reason.
    pub reported: Family<ReasonLabel, Counter>,
    /// 1 while nothing is refused by robots.txt (`enforcement.mode`), else 0.
    pub report_mode: Gauge,
    /// Exchanges that ended without the origin's response, by error.
    pub problems: Family<ResultLabel, Counter>,
    /// Requests sent to origins, by class of status or error.
    pub upstream_requests: Family<ResultLabel, Counter>,
    /// Requests sent again on a fresh connection.
    pub upstream_retries: Counter,
    /// Addresses that egress did not let us dial.
    pub egress_addresses_denied: Counter,
    /// Names that are being resolved now (`upstream.dns_lookups`).
    pub upstream_dns_lookups: Gauge,
    /// Names that are kept with what they led to (`upstream.dns_cache`).
    pub upstream_dns_cache: Gauge,
    /// Answers of the resolver, by what they led to.
    pub upstream_dns_answers: Family<ResultLabel, Counter>,
    /// Fetches of robots.txt, by access result; `confirmed` by a 304, `stale`
    /// where an earlier copy goes on, `busy` where there was no room to ask.
    pub robots_fetches: Family<ResultLabel, Counter>,
    /// Fetches of robots.txt under way (`robots.max_fetches`).
    pub robots_fetches_under_way: Gauge,
    /// Those, and the ones that wait for a place (`robots.max_waiting`).
    pub robots_waiting: Gauge,
    /// Snapshots held (`robots.max_snapshots`).
    pub robots_snapshots: Gauge,
    /// Bytes that they count for (`robots.max_snapshot_bytes`).
    pub robots_snapshot_bytes: Gauge,
    /// Snapshots given to the audit store to be kept, `saved` or `lost`.
    pub robots_saved: Family<ResultLabel, Counter>,
    /// Snapshots looked for in the audit store, by what was found.
    pub robots_loaded: Family<ResultLabel, Counter>,
    /// Requests refused because of the names their client came by
    /// (`robots.max_names`).
    pub max_names: Counter,
    /// Requests that wait for their turn (`pace.queue`).
    pub pace_queued: Gauge,
    /// Turns that are taken and not yet over.
    pub pace_in_flight: Gauge,
    /// Seconds that requests waited, of those that had to.
    pub pace_wait_seconds: Histogram,
    /// Requests told to come back later, by reason.
    pub pace_later: Family<ReasonLabel, Counter>,
    /// How often a site was left alone because it asked for less.
    pub pace_backoffs: Counter,
    /// How often responses took longer than `pace.max_turn` while others waited.
    pub pace_overruns: Counter,
    /// How often lines were looked at: a few times a turn that was waited for.
    pub pace_wakeups: Counter,
    /// Hosts whose pace is remembered (`pace.max_hosts`).
    pub pace_hosts: Gauge,
    /// Responses annotated, by state.
    pub annotations: Family<AnnotationLabels, Counter>,
    /// Bytes of pages held back now (`directives.hold_total`).
    pub hold_total: Gauge,
    /// Bytes kept of what was said, for a 304 (`directives.known`).
    pub known: Gauge,
    /// Seconds from request to the head of the response.
    pub exchange_seconds: Histogram,
    /// Connections from crawlers now open.
    pub connections: Gauge,
    /// Connections that may wait to be accepted at one address
    /// (`proxy.backlog`, or what the system allows).
    pub backlog: Gauge,
    /// Descriptors that the process may have open.
    pub descriptors_limit: Gauge,
    /// Descriptors that the configuration can need.
    pub descriptors_wanted: Gauge,
    /// Commands of `politesse run` that are served now.
    pub commands: Gauge,
    /// Connections turned away, by reason.
    pub connections_refused: Family<ResultLabel, Counter>,
    /// Handshakes with crawlers that failed.
    pub tls_handshake_failures: Counter,
    /// Seconds a commit of the audit took.
    pub audit_commit_seconds: Histogram,
    /// Entries that wait for the audit's writer.
    pub audit_queue: Gauge,
    /// Bytes in use of the write-ahead log of the audit's database.
    pub audit_wal_bytes: Gauge,
    /// Commits of the audit that failed.
    pub audit_failures: Counter,
    /// Events given to the audit, `written` or `lost`.
    pub audit_events: Family<ResultLabel, Counter>,
    /// Questions to the admin API that were turned away, by reason.
    pub admin_refused: Family<ReasonLabel, Counter>,
}

/// From half a millisecond to a minute.
const SECONDS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 20.0, 60.0,
];

/// From a tenth of a second to ten minutes.
const WAITS: [f64; 10] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 120.0, 600.0];

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("politesse"),
            decisions: Family::default(),
            config_last_reload_successful: Gauge::default(),
            config_last_reload_timestamp: Gauge::default(),
            config_reloads: Family::default(),
            reported: Family::default(),
            report_mode: Gauge::default(),
            problems: Family::default(),
            upstream_requests: Family::default(),
            upstream_retries: Counter::default(),
            egress_addresses_denied: Counter::default(),
            upstream_dns_lookups: Gauge::default(),
            upstream_dns_cache: Gauge::default(),
            upstream_dns_answers: Family::default(),
            robots_fetches: Family::default(),
            robots_fetches_under_way: Gauge::default(),
            robots_waiting: Gauge::default(),
            robots_snapshots: Gauge::default(),
            robots_saved: Family::default(),
            robots_loaded: Family::default(),
            robots_snapshot_bytes: Gauge::default(),
            max_names: Counter::default(),
            pace_queued: Gauge::default(),
            pace_in_flight: Gauge::default(),
            pace_wait_seconds: Histogram::new(WAITS),
            pace_later: Family::default(),
            pace_backoffs: Counter::default(),
            pace_overruns: Counter::default(),
            pace_wakeups: Counter::default(),
            pace_hosts: Gauge::default(),
            annotations: Family::default(),
            hold_total: Gauge::default(),
            known: Gauge::default(),
            exchange_seconds: Histogram::new(SECONDS),
            connections: Gauge::default(),
            backlog: Gauge::default(),
            descriptors_limit: Gauge::default(),
            descriptors_wanted: Gauge::default(),
            commands: Gauge::default(),
            connections_refused: Family::default(),
            tls_handshake_failures: Counter::default(),
            audit_commit_seconds: Histogram::new(SECONDS),
            audit_queue: Gauge::default(),
            audit_wal_bytes: Gauge::default(),
            audit_failures: Counter::default(),
            audit_events: Family::default(),
            admin_refused: Family::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("decisions", "Decisions recorded", self.decisions.clone());
        r.register(
            "problems",
            "Exchanges ended without the origin's response",
            self.problems.clone(),
        );
        r.register(
            "upstream_requests",
            "Requests sent to origins",
            self.upstream_requests.clone(),
        );
        r.register(
            "upstream_retries",
            "Requests repeated on a fresh connection",
            self.upstream_retries.clone(),
        );
        r.register(
            "robots_max_names",
            "Requests of clients that came to an origin by too many names",
            self.max_names.clone(),
        );
        r.register_with_unit(
            "exchange",
            "Time to the head of a response",
            Unit::Seconds,
            self.exchange_seconds.clone(),
        );
        self.register_kept();
        self.register_egress();
        self.register_configuration();
        self.register_robots();
        self.register_pace();
        self.register_directives();
        self.register_connections_and_audit();
        self.register_capacity();
        self.register_events_and_admin();
    }

    fn register_kept(&mut self) {
        let r = &mut self.registry;
        r.register(
            "robots_saved",
            "Robots.txt snapshots to be kept on disk",
            self.robots_saved.clone(),
        );
        r.register(
            "robots_loaded",
            "Robots.txt snapshots looked for on disk",
            self.robots_loaded.clone(),
        );
    }

    fn register_egress(&mut self) {
        let r = &mut self.registry;
        r.register(
            "egress_addresses_denied",
            "Addresses that may not be dialled",
            self.egress_addresses_denied.clone(),
        );
        r.register(
            "upstream_dns_lookups",
            "Names being resolved",
            self.upstream_dns_lookups.clone(),
        );
        r.register(
            "upstream_dns_cache",
            "Names kept with their addresses",
            self.upstream_dns_cache.clone(),
        );
        r.register(
            "upstream_dns_answers",
            "Answers of the resolver",
            self.upstream_dns_answers.clone(),
        );
    }

    fn register_configuration(&mut self) {
        let r = &mut self.registry;
        r.register(
            "reported",
            "Requests forwarded in report mode that would have been refused",
            self.reported.clone(),
        );
        r.register(
            "report_mode",
            "1 while enforcement.mode is report, and robots.txt refuses nothing",
            self.report_mode.clone(),
        );
        r.register(
            "config_last_reload_successful",
            "1 if the configuration was right when it was last read, else 0",
            self.config_last_reload_successful.clone(),
        );
        r.register_with_unit(
            "config_last_reload_timestamp",
            "When the configuration in force was read",
            Unit::Seconds,
            self.config_last_reload_timestamp.clone(),
        );
        r.register(
            "config_reloads",
            "How often the configuration was read again",
            self.config_reloads.clone(),
        );
    }

    fn register_robots(&mut self) {
        let r = &mut self.registry;
        r.register(
            "robots_fetches",
            "Fetches of robots.txt",
            self.robots_fetches.clone(),
        );
        r.register(
            "robots_fetches_under_way",
            "Fetches of robots.txt under way",
            self.robots_fetches_under_way.clone(),
        );
        r.register(
            "robots_waiting",
            "Robots.txt that are being asked for, or wait to be",
            self.robots_waiting.clone(),
        );
        r.register(
            "robots_snapshots",
            "Robots.txt snapshots held",
            self.robots_snapshots.clone(),
        );
        r.register(
            "robots_snapshot_bytes",
            "Bytes that robots.txt snapshots count for",
            self.robots_snapshot_bytes.clone(),
        );
    }

    fn register_pace(&mut self) {
        let r = &mut self.registry;
        r.register(
            "pace_queued",
            "Requests that wait for their turn",
            self.pace_queued.clone(),
        );
        r.register(
            "pace_in_flight",
            "Requests whose turn it is",
            self.pace_in_flight.clone(),
        );
        r.register_with_unit(
            "pace_wait",
            "Time that requests waited for their turn",
            Unit::Seconds,
            self.pace_wait_seconds.clone(),
        );
        r.register(
            "pace_later",
            "Requests told to come back later",
            self.pace_later.clone(),
        );
        r.register(
            "pace_backoffs",
            "Hosts left alone because they asked for less",
            self.pace_backoffs.clone(),
        );
        r.register(
            "pace_overruns",
            "Responses that took longer than others were kept from their host for",
            self.pace_overruns.clone(),
        );
        r.register(
            "pace_wakeups",
            "How often lines of waiting requests were looked at",
            self.pace_wakeups.clone(),
        );
        r.register(
            "pace_hosts",
            "Hosts whose pace is remembered",
            self.pace_hosts.clone(),
        );
    }

    fn register_directives(&mut self) {
        let r = &mut self.registry;
        r.register(
            "annotations",
            "Responses annotated",
            self.annotations.clone(),
        );
        r.register(
            "directives_hold_total",
            "Bytes of pages held back",
            self.hold_total.clone(),
        );
        r.register(
            "directives_known",
            "Bytes kept of directives, for responses not sent again",
            self.known.clone(),
        );
    }

    fn register_connections_and_audit(&mut self) {
        let r = &mut self.registry;
        r.register(
            "connections",
            "Open connections from crawlers",
            self.connections.clone(),
        );
        r.register(
            "commands",
            "Commands of politesse run that are served now",
            self.commands.clone(),
        );
        r.register(
            "connections_refused",
            "Connections turned away",
            self.connections_refused.clone(),
        );
        r.register(
            "tls_handshake_failures",
            "Failed TLS handshakes with crawlers",
            self.tls_handshake_failures.clone(),
        );
        r.register_with_unit(
            "audit_commit",
            "Time of an audit commit",
            Unit::Seconds,
            self.audit_commit_seconds.clone(),
        );
        r.register(
            "audit_queue",
            "Entries waiting for the audit's writer",
            self.audit_queue.clone(),
        );
        r.register_with_unit(
            "audit_wal",
            "Write-ahead log of the audit in use",
            Unit::Bytes,
            self.audit_wal_bytes.clone(),
        );
        r.register(
            "audit_failures",
            "Audit commits that failed",
            self.audit_failures.clone(),
        );
    }

    fn register_capacity(&mut self) {
        let r = &mut self.registry;
        r.register(
            "backlog",
            "Connections that may wait to be accepted at one address",
            self.backlog.clone(),
        );
        r.register(
            "descriptors_limit",
            "Descriptors that the process may have open",
            self.descriptors_limit.clone(),
        );
        r.register(
            "descriptors_wanted",
            "Descriptors that the configuration can need",
            self.descriptors_wanted.clone(),
        );
        r.register(
            "log_lines_left_out",
            "Lines that the log left out, since too many were alike",
            LOG_LINES_LEFT_OUT.clone(),
        );
    }

    fn register_events_and_admin(&mut self) {
        let r = &mut self.registry;
        r.register(
            "audit_events",
            "Events to be put on record",
            self.audit_events.clone(),
        );
        r.register(
            "admin_refused",
            "Questions to the admin API that were turned away",
            self.admin_refused.clone(),
        );
    }

    /// All of them, in the OpenMetrics text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        encode(&mut text, &self.registry).unwrap_or_default();
        text
    }
}
