//! Events of the proxy itself in the record: its start and stop, reloads, each
//! configuration that takes effect, and a heartbeat.
//!
//! A configuration is recorded as digests and as text without secrets, so that the pace
//! and egress settings of any past time can be looked up. Does not know how the record
//! states the count of requests.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::config::Settings;
use politesse_decision::digest::Digest;
use politesse_decision::overrides::Override;
use politesse_record::AuditLog;
use politesse_record::events::{ProcessEvent, ProcessEventKind};

/// Time between two heartbeats. They distinguish a proxy that was down from crawlers
/// that sent nothing, and the record compares its count of requests between them.
const HEARTBEAT: Duration = Duration::from_secs(60 * 60);

/// Writer of this process's events to the record.
#[derive(Debug)]
pub(super) struct Lifecycle {
    audit: Arc<AuditLog>,
    heartbeat: AbortOnDropHandle<()>,
}

impl Lifecycle {
    /// Records that the proxy has started with `settings`, and starts the heartbeat. To
    /// be called before any request is accepted.
    pub(super) fn begin(audit: &Arc<AuditLog>, settings: &Settings) -> Self {
        // The version identifies the program that made the decisions that follow.
        let version = json!({ "version": env!("CARGO_PKG_VERSION") });
        let record = Arc::clone(audit);
        let heartbeat = tokio::spawn(async move {
            loop {
                sleep(HEARTBEAT).await;
                write(&record, ProcessEventKind::Heartbeat, Json::Null);
            }
        });
        let lifecycle = Self {
            audit: Arc::clone(audit),
            heartbeat: AbortOnDropHandle::new(heartbeat),
        };
        lifecycle.write(ProcessEventKind::Started, version);
        lifecycle.write(ProcessEventKind::Configuration, configuration(settings));
        lifecycle
    }

    /// Records that `settings` have replaced `before`.
    pub(super) fn reloaded(&self, before: &Settings, settings: &Settings) {
        let changed = settings.values.changed_from(&before.values);
        let detail = json!({ "result": "successful", "changed": changed });
        self.write(ProcessEventKind::Reloaded, detail);
        let (before, now) = (configuration(before), configuration(settings));
        // Rereading an unchanged file puts nothing new in force.
        if before != now {
            self.write(ProcessEventKind::Configuration, now);
        }
    }

    /// Records that a reload failed. Only the log has the reason, because it may quote
    /// values.
    pub(super) fn not_reloaded(&self) {
        self.write(ProcessEventKind::Reloaded, json!({ "result": "failed" }));
    }

    /// Records that the proxy has stopped. To be called after the last exchange and
    /// before the record is closed.
    pub(super) fn end(&self) {
        self.heartbeat.abort();
        self.write(ProcessEventKind::Stopped, Json::Null);
    }

    fn write(&self, kind: ProcessEventKind, detail: Json) {
        write(&self.audit, kind, detail);
    }
}

fn write(audit: &AuditLog, kind: ProcessEventKind, detail: Json) {
    audit.record_process_event(ProcessEvent::now(kind, detail));
}

/// Returns the operator, the text of the configuration without secrets, and digests of
/// all its values, of its policy and of each override.
fn configuration(settings: &Settings) -> Json {
    let mut facts = json!({
        "sha256": settings.values.digest().to_string(),
        "policy": settings.policy.digest().to_string(),
        "operator": settings.operator,
        "text": &*settings.text,
    });
    let overrides = &settings.policy.terms().overrides;
    if !overrides.is_empty() {
        let digests: Vec<_> = overrides.iter().map(override_digest).collect();
        facts["overrides"] = json!({ "count": overrides.len(), "sha256": digests });
    }
    facts
}

/// Returns the SHA-256 of an override's JSON, as the policy has it.
fn override_digest(entry: &Override) -> String {
    // An override consists of words and texts, all of which JSON can express.
    let json = serde_json::to_string(entry).unwrap_or_default();
    Digest::of(json.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use tokio::task::yield_now;
    use tokio::time::advance;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::config::{Config, ConfigSources};
    use politesse_base::metrics::Metrics;
    use politesse_record::Options;
    use politesse_record::events::EventRow;
    use politesse_record::filter::EventFilter;
    use politesse_record::reader::AuditReader;

    // Ours: heartbeats distinguish idle crawlers from a proxy that was down.
    #[tokio::test(start_paused = true)]
    async fn a_heartbeat_is_recorded_every_hour_until_the_stop() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new(folder.path().join("data/audit.db"));
        let (metrics, tracker) = (Arc::new(Metrics::default()), TaskTracker::new());
        let audit = Arc::new(AuditLog::open(&options, Arc::clone(&metrics), &tracker).unwrap());
        let sources = ConfigSources {
            file: None,
            environment: Vec::new(),
            overrides: &[],
            working_directory: "/".into(),
            data_directory: None,
        };
        let config = Config::read(&sources).unwrap();
        let lifecycle = Lifecycle::begin(&audit, config.settings());
        yield_now().await;
        for _ in 0..3 {
            metrics.upstream_sent.inc();
            // Tokio's clock stands still while the writer's thread runs.
            advance(HEARTBEAT).await;
            yield_now().await;
        }
        lifecycle.end();
        advance(3 * HEARTBEAT).await;
        yield_now().await;
        audit.close();
        tracker.close();
        tracker.wait().await;
        let mut events = Vec::new();
        let visit = |event: EventRow| {
            events.push((event.kind, event.sent));
            ControlFlow::Continue(())
        };
        let reader = AuditReader::open(&options.path).unwrap();
        reader.visit_events(&EventFilter::default(), visit).unwrap();
        let expected = [
            ("stopped", Some(3)),
            ("heartbeat", Some(3)),
            ("heartbeat", Some(2)),
            ("heartbeat", Some(1)),
            ("configuration", None),
            ("started", Some(0)),
        ];
        assert!(
            events
                .iter()
                .map(|(kind, sent)| (kind.as_str(), *sent))
                .eq(expected),
            "{events:?}"
        );
    }
}
