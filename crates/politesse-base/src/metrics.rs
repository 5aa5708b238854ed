//! Metrics of the process: name, type and description of each, in one table.
//!
//! The table generates the fields of [`Metrics`], the output of `/metrics` and the
//! reference for operators. Labels have a bounded number of values: no label names a
//! host, a URL or a crawler. Does not know which code increments a metric.

use std::fmt::Write as _;
use std::hash::Hash;
use std::sync::{Arc, LazyLock, OnceLock};

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

/// Counter of dropped log lines. It is outside [`Metrics`] because the log starts before
/// any proxy has metrics.
pub static LOG_LINES_LEFT_OUT: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Prefix of the name of every metric.
const PREFIX: &str = "politesse";

/// Histogram buckets for operations, from half a millisecond to a minute.
const SECONDS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 20.0, 60.0,
];

/// Histogram buckets for waits, from a tenth of a second to ten minutes.
const WAITS: [f64; 10] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 120.0, 600.0];

/// Expands the table into [`Metrics`], with a field for each metric, and [`DESCRIPTIONS`].
/// The doc comment of a metric is also its help text.
///
/// The name on `/metrics` consists of [`PREFIX`] and the name of the field. Counters get
/// the suffix `_total`.
macro_rules! metrics {
    (@new) => { Default::default() };
    (@new $metric:expr) => { $metric };
    ($(
        $(#[doc = $help:literal])+
        $field:ident: $Type:ty $(= $metric:expr)?;
    )+) => {
        /// The metrics of one proxy.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            $(
                $(#[doc = $help])+
                pub $field: $Type,
            )+
        }

        impl Default for Metrics {
            fn default() -> Self {
                let mut descriptions = DESCRIPTIONS.iter();
                let mut registry = Registry::with_prefix(PREFIX);
                $(
                    let $field: $Type = metrics!(@new $($metric)?);
                    // Rows and fields come from the same list in the same order,
                    // so each field gets its own row.
                    if let Some(description) = descriptions.next() {
                        description.register(&mut registry, $field.clone());
                    }
                )+
                let metrics = Self { registry, $($field),+ };
                metrics.show_at_zero();
                metrics
            }
        }

        /// All metrics, in the order of the table.
        static DESCRIPTIONS: &[Description] = &[$(
            Description {
                field: stringify!($field),
                help: &[$($help),+],
                kind: <$Type as Kind>::KIND,
                labels: <$Type as Kind>::LABELS,
            },
        )+];
    };
}

metrics! {
    /// Decisions recorded.
    decisions: FrequentCounters<DecisionLabels>;
    /// Requests forwarded in report mode that would have been refused.
    reported: Family<ReasonLabel, Counter>;
    /// Responses withheld because what they state denies the purposes of the crawler.
    withheld: Family<ReasonLabel, Counter>;
    /// 1 while `enforcement.mode` is "report" and robots.txt refuses nothing, else 0.
    report_mode: Gauge;
    /// Exchanges that ended without the response of the origin, by error.
    problems: Family<ResultLabel, Counter>;
    /// Exchanges that the client left before they had ended.
    clients_gone: Counter;
    /// Time from a request to the head of its response.
    exchange_seconds: Histogram = Histogram::new(SECONDS);

    /// Shares that clients did not get (`full`, `limit`) or lost to others
    /// (`displaced`), by resource.
    client_shares: Family<ShareLabels, Counter>;

    /// Requests sent to origins, by class of status or by error.
    upstream_requests: FrequentCounters<ResultLabel>;
    /// Requests that a site refused: 401, 402, 403, 451 or a bot challenge.
    refused_by_site: Counter;
    /// Requests repeated on a fresh connection.
    upstream_retries: Counter;
    /// Requests of crawlers that were handed to a connection to an origin, repeats
    /// included; the record has this number with each heartbeat.
    upstream_sent: Counter;
    /// Addresses that `egress` did not let be dialled.
    egress_addresses_denied: Counter;
    /// Names being resolved (`upstream.dns_lookups`).
    upstream_dns_lookups: Gauge;
    /// Names among these for which no answer has come within half a second.
    upstream_dns_hanging: Gauge;
    /// Names cached with their addresses (`upstream.dns_cache`).
    upstream_dns_cache: Gauge;
    /// Answers of the resolver; `busy` where a client had its share of look-ups.
    upstream_dns_answers: Family<ResultLabel, Counter>;

    /// Fetches of robots.txt, by access result; `challenge` where a bot challenge came,
    /// whatever its status, `confirmed` by a 304, `stale` where an earlier copy goes on,
    /// `busy` where there was no room to ask.
    robots_fetches: Family<ResultLabel, Counter>;
    /// Changed robots.txt, by what they decide of the newest URLs on record:
    /// `newly_disallows` one that was crawled, `disallows_no_more`, or `unexamined` because
    /// others had to be examined, or their URLs were not read in time.
    robots_changes: Family<ResultLabel, Counter>;
    /// Fetches of robots.txt under way (`robots.max_fetches`).
    robots_fetches_under_way: Gauge;
    /// Fetches of robots.txt under way or waiting for a place (`robots.max_waiting`).
    robots_waiting: Gauge;
    /// Snapshots of robots.txt in memory (`robots.max_snapshots`).
    robots_snapshots: Gauge;
    /// Bytes that these snapshots count for (`robots.max_snapshot_bytes`).
    robots_snapshot_bytes: Gauge;
    /// Snapshots of robots.txt given to the record: `saved` or `lost`.
    robots_saved: Family<ResultLabel, Counter>;
    /// Snapshots of robots.txt looked for in the record.
    robots_loaded: Family<ResultLabel, Counter>;
    /// Requests refused because their client had come to the origin under too many
    /// names (`robots.max_names`).
    robots_max_names: Counter;
    /// Requests decided by the strictest answer that other User-Agents of their client got
    /// for a robots.txt, since eight of them had got something else than a file.
    robots_max_senders: Counter;
    /// Answers about TDM files (`/.well-known/tdmrep.json`): `file`, `absent` or `unknown`.
    tdm_fetches: Family<ResultLabel, Counter>;
    /// TDM files in memory, and those that are asked for (`robots.max_snapshot_bytes`).
    tdm_files: Gauge;

    /// 1 while a stop leaves load balancers time (`proxy.drain_time`), and until it ends.
    draining: Gauge;
    /// Requests that wait for their turn (`pace.queue`).
    pace_queued: Gauge;
    /// Requests whose turn it is.
    pace_in_flight: Gauge;
    /// Time that requests waited for their turn, of those that had to.
    pace_wait_seconds: Histogram = Histogram::new(WAITS);
    /// Requests answered with 429 or 503 for the sake of pace.
    pace_later: Family<ReasonLabel, Counter>;
    /// Numbers of the record that have been shipped to the archive (`audit.archive`).
    archive_shipped: Counter;
    /// Failures to ship to the archive, after each of which it is tried again.
    archive_errors: Counter;
    /// Entries of the record that are not known to have arrived in the archive. After a
    /// start that is all of them, until the archive has answered.
    archive_lag_entries: Gauge;
    /// Age in seconds of the oldest entry among those; 0 if there are none.
    archive_lag_seconds: Gauge;
    /// Calls to the store of the fleet (`fleet.store`) about leases of hosts.
    fleet_calls: Counter;
    /// Calls to the store of the fleet that failed, of all kinds.
    fleet_call_errors: Counter;
    /// Robots.txt files looked for in the store of the fleet (`fleet.key`): `found`,
    /// `absent`, `unverified`; `elsewhere` where another node was fetching it, `late` and
    /// asked again, `failed`; and `shared` there by this node.
    fleet_robots: Family<ResultLabel, Counter>;
    /// 1 as long as the store of the fleet cannot be reached (`fleet.on_loss`), else 0.
    fleet_degraded: Gauge;
    /// Nodes of the fleet, heard of or not (`fleet.forget`).
    fleet_nodes: Gauge;
    /// Nodes of the fleet that were heard of within a lease.
    fleet_live_nodes: Gauge;
    /// Nodes of the fleet that were heard of, and have another configuration than this one.
    fleet_differing_nodes: Gauge;
    /// Hosts whose lease this node holds, counted every few seconds.
    fleet_leased_hosts: Gauge;
    /// Time of the store's answers to the heartbeat of this node.
    fleet_store_seconds: Histogram = Histogram::new(SECONDS);
    /// Hosts that are left alone after a 429 or 503, when this was asked for.
    pace_backed_off: Gauge;
    /// Hosts among these that have asked for less for more than an hour.
    pace_backed_off_long: Gauge;
    /// Back-offs of hosts entered.
    pace_backoffs: Counter;
    /// Requests sent once more after a 429 or 503 (`pace.retry`).
    pace_retries: Counter;
    /// Files sent in the turn of the page that embeds them (`pace.requisites`).
    pace_requisites: Counter;
    /// Responses that took longer than `pace.max_turn` while other requests waited.
    pace_overruns: Counter;
    /// Turns that clients lost because they took or sent nothing for `pace.max_stall`
    /// while other requests waited.
    pace_stalls: Counter;
    /// Looks at queues: a few for each request that waited.
    pace_wakeups: Counter;
    /// Hosts whose pace is remembered (`pace.max_hosts`).
    pace_hosts: Gauge;

    /// Responses annotated.
    annotations: FrequentCounters<AnnotationLabels>;
    /// Bytes of pages held back (`directives.hold_total`).
    directives_hold_total: Gauge;
    /// Bytes of directives kept for responses of status 304 (`directives.known`).
    directives_known: Gauge;

    /// Requests answered with 407, by reason: no credential, a `wrong` one, or a
    /// `protected` name without its own.
    credentials_refused: Family<ReasonLabel, Counter>;
    /// Requests for the proxy itself (`proxy.internal_name`), by page; `refused` where it
    /// was another use of the name.
    own_pages: Family<ResultLabel, Counter>;
    /// Open connections of crawlers (`proxy.max_connections`).
    connections: Gauge;
    /// Connections turned away.
    connections_refused: Family<ResultLabel, Counter>;
    /// Clients cut off because they sent a `head` or an `upload`, or took a `response`,
    /// too slowly (`proxy.header_timeout`, `proxy.min_progress`).
    slow_clients: Family<ResultLabel, Counter>;
    /// Commands of `politesse run` being served (`proxy.max_commands`).
    commands: Gauge;
    /// Failed TLS handshakes with crawlers.
    tls_handshake_failures: Counter;
    /// End of the certificate of the authority that crawlers trust, since 1970; 0 if
    /// there is none (`https.mode`).
    ca_end_timestamp_seconds: Gauge;
    /// End of the certificate of the listeners with TLS, since 1970; 0 if there is
    /// none (`proxy.tls_cert`).
    tls_cert_end_timestamp_seconds: Gauge;
    /// Connections that may wait to be accepted at one address: `proxy.backlog`, or
    /// less if the system allows less.
    backlog: Gauge;
    /// Descriptors that the process may have open.
    descriptors_limit: Gauge;
    /// Descriptors that the configuration can need.
    descriptors_wanted: Gauge;

    /// Time of a commit of the record.
    audit_commit_seconds: Histogram = Histogram::new(SECONDS);
    /// Entries waiting for the record's writer (`audit.queue`).
    audit_queue: Gauge;
    /// Write-ahead log of the record in use (`audit.wal_max`).
    audit_wal_bytes: Gauge;
    /// Room on the disk of the record for others than root, when this was asked for.
    audit_free_bytes: Gauge;
    /// Commits of the record that failed.
    audit_failures: Counter;
    /// Events given to the record: `written` or `lost`.
    audit_events: Family<ResultLabel, Counter>;
    /// Heads of the record (`audit.seal_entries`): `made` or `failed`.
    audit_seals: Family<ResultLabel, Counter>;
    /// Time of the latest head that this process made, since 1970; 0 before the first.
    audit_last_seal_timestamp_seconds: Gauge;
    /// Heads given to targets of `audit.seal_to`: `sent`, or an attempt `failed`.
    audit_seals_exported: Family<ResultLabel, Counter>;
    /// Entries of the record that no head covers yet.
    audit_unsealed: Gauge;

    /// URLs that `/api/v1/check` was asked about, by verdict; `unknown` where the
    /// robots.txt was not known.
    checked_urls: Family<ResultLabel, Counter>;
    /// Requests to the admin API that were refused.
    admin_refused: Family<ReasonLabel, Counter>;
    /// Sessions of browsers that have signed in (`admin.sessions`).
    admin_sessions: Gauge;
    /// Browsers and programs that watch decisions as they are made.
    admin_watchers: Gauge;
    /// 1, with the version of the program.
    build_info: Family<VersionLabel, Gauge>;
    /// Time at which the proxy started, since 1970.
    start_timestamp_seconds: Gauge;
    /// 1 if the configuration was right when it was last read, else 0.
    config_last_reload_successful: Gauge;
    /// Time at which the configuration in force was read, since 1970.
    config_last_reload_timestamp_seconds: Gauge;
    /// Reloads of the configuration.
    config_reloads: Family<ResultLabel, Counter>;
    /// Lines that the log left out because too many were alike (`log.burst`), or
    /// because it was not read as fast as it was written.
    log_lines_left_out: Counter = LOG_LINES_LEFT_OUT.clone();
}

/// Defines structs for sets of labels, with the lists of their names.
macro_rules! labels {
    ($(
        $(#[$about:meta])+
        $Set:ident { $($(#[$doc:meta])+ $label:ident,)+ }
    )+) => {$(
        $(#[$about])+
        #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub struct $Set {
            $($(#[$doc])+ pub $label: &'static str,)+
        }

        impl LabelNames for $Set {
            const NAMES: &[&str] = &[$(stringify!($label)),+];
        }
    )+};
}

labels! {
    /// Labels of a decision.
    DecisionLabels {
        /// `allow`, `disallow` or `later`.
        verdict,
        /// Word of the reason.
        reason,
    }

    /// Labels of an annotation.
    AnnotationLabels {
        /// `complete`, `partial` or `unknown`.
        state,
        /// Reason why the annotation is not complete; empty if it is complete.
        why,
    }

    /// Label of metrics that count by reason.
    ReasonLabel {
        /// Word of the reason.
        reason,
    }

    /// Labels of shares of a resource.
    ShareLabels {
        /// Word of the resource.
        resource,
        /// Word of the outcome.
        result,
    }

    /// Label of the program.
    VersionLabel {
        /// Version of the program.
        version,
    }

    /// Label of metrics that count by outcome.
    ResultLabel {
        /// Word of the outcome.
        result,
    }
}

/// Family of counters that every request increments.
///
/// The counters of the first label sets are found without a lock and without a hash,
/// because most requests have one of a few label sets.
#[derive(Debug)]
pub struct FrequentCounters<L> {
    family: Family<L, Counter>,
    /// Counters of the first label sets, in order of first use.
    first: Arc<[OnceLock<(L, Counter)>; FIRST_SETS]>,
}

/// Number of label sets whose counters are found without a lock. A small number, because
/// all of them are compared before the lookup of another.
const FIRST_SETS: usize = 8;

impl<L> Default for FrequentCounters<L>
where
    L: Clone + Eq + Hash,
{
    fn default() -> Self {
        Self {
            family: Family::default(),
            first: Arc::new([const { OnceLock::new() }; FIRST_SETS]),
        }
    }
}

impl<L> Clone for FrequentCounters<L>
where
    L: Clone + Eq + Hash,
{
    fn clone(&self) -> Self {
        Self {
            family: self.family.clone(),
            first: Arc::clone(&self.first),
        }
    }
}

impl<L: Clone + Eq + Hash> FrequentCounters<L> {
    /// Increments the counter of `labels`.
    pub fn inc(&self, labels: &L) {
        for place in self.first.iter() {
            let resolved = || (labels.clone(), self.family.get_or_create_owned(labels));
            let (known, counter) = place.get_or_init(resolved);
            if known == labels {
                counter.inc();
                return;
            }
        }
        self.family.get_or_create(labels).inc();
    }
}

impl<L: Clone + Eq + Hash + EncodeLabelSet> EncodeMetric for FrequentCounters<L> {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.family.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.family.metric_type()
    }

    fn is_empty(&self) -> bool {
        self.family.is_empty()
    }
}

/// Names of the labels in a set.
trait LabelNames {
    const NAMES: &[&str];
}

/// Type name of a metric in the reference, and the names of its labels.
trait Kind {
    const KIND: &str;
    const LABELS: &[&str] = &[];
}

impl Kind for Counter {
    const KIND: &str = "counter";
}

impl Kind for Gauge {
    const KIND: &str = "gauge";
}

impl Kind for Histogram {
    const KIND: &str = "histogram";
}

impl<L: LabelNames, M: Kind> Kind for Family<L, M> {
    const KIND: &str = M::KIND;
    const LABELS: &[&str] = L::NAMES;
}

impl<L: LabelNames> Kind for FrequentCounters<L> {
    const KIND: &str = Counter::KIND;
    const LABELS: &[&str] = L::NAMES;
}

/// Row of the table of metrics.
struct Description {
    field: &'static str,
    /// The lines of the help text.
    help: &'static [&'static str],
    kind: &'static str,
    labels: &'static [&'static str],
}

impl Description {
    fn register(&self, registry: &mut Registry, metric: impl Metric) {
        // The library appends a full stop to the help text, and the unit to the
        // name.
        let sentence = self.help();
        let help = sentence.trim_end_matches('.');
        for (suffix, unit) in [("_seconds", Unit::Seconds), ("_bytes", Unit::Bytes)] {
            if let Some(name) = self.field.strip_suffix(suffix) {
                return registry.register_with_unit(name, help, unit, metric);
            }
        }
        registry.register(self.field, help, metric);
    }

    fn help(&self) -> String {
        self.help.concat().trim().to_owned()
    }

    /// Returns the name on `/metrics`.
    fn name(&self) -> String {
        let end = if self.kind == Counter::KIND {
            "_total"
        } else {
            ""
        };
        format!("{PREFIX}_{}{end}", self.field)
    }
}

impl Metrics {
    /// Creates the counters that alerts use (`contrib/prometheus`), with the label values
    /// that the alerts select, so that they start at 0.
    ///
    /// Prometheus sees no increase in a series that begins with 1. Without this, the first
    /// failed head would not trigger an alert.
    fn show_at_zero(&self) {
        let by_result: [(_, &[&'static str]); 5] = [
            (&self.audit_seals, &["made", "failed"]),
            (&self.audit_seals_exported, &["sent", "failed"]),
            (&self.robots_fetches, &["successful", "unreachable"]),
            (&self.robots_changes, &["newly_disallows"]),
            (
                &self.connections_refused,
                &["max_connections", "descriptors"],
            ),
        ];
        for (counters, results) in by_result {
            for result in results {
                drop(counters.get_or_create(&ResultLabel { result }));
            }
        }
        let by_reason: [(_, &[&'static str]); 2] = [
            (&self.pace_later, &["queue_full", "backoff"]),
            (&self.admin_refused, &["unauthorized"]),
        ];
        for (counters, reasons) in by_reason {
            for reason in reasons {
                drop(counters.get_or_create(&ReasonLabel { reason }));
            }
        }
    }

    /// Writes all metrics in the OpenMetrics text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        encode(&mut text, &self.registry).unwrap_or_default();
        text
    }
}

/// Returns the reference of metrics as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut text = "\
# Metrics

`/metrics` on the admin listener shows these, in the OpenMetrics text format. No label
names a host, a URL or a crawler.

| Name | Type | Labels | Meaning |
|---|---|---|---|
"
    .to_owned();
    for metric in DESCRIPTIONS {
        let in_code = metric.labels.iter().map(|label| format!("`{label}`"));
        let labels = in_code.collect::<Vec<_>>().join(", ");
        let (name, kind, help) = (metric.name(), metric.kind, metric.help());
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "| `{name}` | {kind} | {labels} | {help} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metrics with labels that start at 0.
    const ALERTED: [&str; 7] = [
        "robots_fetches",
        "robots_changes",
        "pace_later",
        "connections_refused",
        "audit_seals",
        "audit_seals_exported",
        "admin_refused",
    ];

    // Ours.
    #[test]
    fn every_metric_has_the_name_type_and_help_of_the_table() {
        let text = Metrics::default().render();
        for metric in DESCRIPTIONS {
            let family = format!("{PREFIX}_{}", metric.field);
            let kind = format!("# TYPE {family} {}\n", metric.kind);
            let help = format!("# HELP {family} {}\n", metric.help());
            // A metric with labels appears only after its first count, or if an alert
            // uses it.
            let is_shown = metric.labels.is_empty() || ALERTED.contains(&metric.field);
            assert_eq!(text.contains(&kind), is_shown, "{kind}{text}");
            assert_eq!(text.contains(&help), is_shown, "{help}{text}");
            assert!(metric.help().ends_with('.'), "{help}");
        }
    }

    #[test]
    fn a_metric_has_the_labels_of_the_table() {
        let metrics = Metrics::default();
        let (verdict, reason) = ("allow", "no_rule");
        metrics.decisions.inc(&DecisionLabels { verdict, reason });
        let text = metrics.render();
        let line = "politesse_decisions_total{verdict=\"allow\",reason=\"no_rule\"} 1\n";
        assert!(text.contains(line), "{text}");
        let decisions = DESCRIPTIONS
            .iter()
            .find(|metric| metric.field == "decisions");
        assert_eq!(
            decisions.map(|metric| metric.labels),
            Some(&["verdict", "reason"][..])
        );
    }

    // Ours: counters found with and without a lock belong to one metric.
    #[test]
    fn frequent_counters_count_every_label_set() {
        let metrics = Metrics::default();
        let reasons = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        assert!(FIRST_SETS < reasons.len());
        for reason in reasons.into_iter().chain(reasons) {
            let verdict = "allow";
            metrics.decisions.inc(&DecisionLabels { verdict, reason });
        }
        let text = metrics.render();
        for reason in reasons {
            let line = format!("{{verdict=\"allow\",reason=\"{reason}\"}} 2\n");
            assert!(text.contains(&line), "{line}{text}");
        }
        let first = &metrics.decisions.first;
        assert!(first.iter().all(|place| place.get().is_some()));
    }

    // Ours: `politesse reference metrics > docs/reference/metrics.md` updates the file.
    #[test]
    fn the_reference_in_the_repository_matches_the_table() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/metrics.md"
        );
        let file = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            file == reference(),
            "docs/reference/metrics.md is out of date"
        );
    }
}
