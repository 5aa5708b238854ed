//! Events of the proxy itself in the record: its start and stop, each
//! configuration that comes in force, reloads, and a heartbeat.
//!
//! A configuration is recorded by digests, and as text without secrets, so that pace
//! and egress of a past time are known. Does not know how the record states the count
//! of requests.

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

/// Time between two heartbeats. Silence in the record is told from silence of
/// crawlers by them, and the count of requests is compared between them.
const HEARTBEAT: Duration = Duration::from_secs(60 * 60);

/// Events of one process in the record.
#[derive(Debug)]
pub(super) struct Lifecycle {
    audit: Arc<AuditLog>,
    heartbeat: AbortOnDropHandle<()>,
}

impl Lifecycle {
    /// Writes that the proxy has started with `settings`, and begins its
    /// heartbeat. To be called before any request is accepted.
    pub(super) fn begin(audit: &Arc<AuditLog>, settings: &Settings) -> Self {
        // The version says which program made the decisions that follow.
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

    /// Writes that `settings` came in force in place of `before`.
    pub(super) fn reloaded(&self, before: &Settings, settings: &Settings) {
        let changed = settings.values.changed_from(&before.values);
        let detail = json!({ "result": "successful", "changed": changed });
        self.write(ProcessEventKind::Reloaded, detail);
        let (before, now) = (configuration(before), configuration(settings));
        // The same file read again puts nothing new in force.
        if before != now {
            self.write(ProcessEventKind::Configuration, now);
        }
    }

    /// Writes that a configuration could not be put in force. Why is in the log:
    /// the reason may quote values.
    pub(super) fn not_reloaded(&self) {
        self.write(ProcessEventKind::Reloaded, json!({ "result": "failed" }));
    }

    /// Writes that the proxy has stopped. To be called when no exchange is under
    /// way any more, and before the record is closed.
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

/// Returns the operator, the text of a configuration without secrets, and digests of
/// all its values, of the policy in it, and of each override.
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

/// Returns the SHA-256 of the JSON of an override, as it is in the policy.
fn override_digest(entry: &Override) -> String {
    // Words and texts: there is nothing in them that JSON cannot hold.
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

    // Ours: silence in the record is told from a proxy that was not there.
    #[tokio::test(start_paused = true)]
    async fn there_is_a_heartbeat_an_hour_until_the_stop() {
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
            // Time stands still for as long as the writer's thread runs.
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
