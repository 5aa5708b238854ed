//! Robots.txt changes, counted by their effect on the URLs that were crawled.
//!
//! Changes are queued and examined one at a time, so that no request waits for the
//! examination. Does not know which fetch brings a change.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use politesse_base::clock;
use politesse_base::metrics::{Metrics, ResultLabel};
use politesse_decision::snapshot::AnswerChange;
use politesse_record::AuditLog;
use politesse_record::change_effect::{EffectBounds, change_effect};
use politesse_robots_cache::RobotsChangeListener;

/// Maximum number of queued changes. Each holds two files, of 500 KiB at most by
/// default.
const WAITING_MAX: usize = 64;

/// Maximum number of URLs that a change is examined for.
const URLS_MAX: usize = 10_000;

/// Time limit for one change, which meanwhile occupies one of the few readers for
/// queries.
const EXAMINATION_TIME: Duration = Duration::from_secs(3);

/// Starts the task that examines changes, and returns the listener that feeds it. The
/// task ends with the last listener. Must be called inside a tokio runtime.
pub(super) fn listener(audit: &Arc<AuditLog>, metrics: &Arc<Metrics>) -> RobotsChangeListener {
    let (sender, waiting) = mpsc::channel(WAITING_MAX);
    let (audit, counted) = (Arc::clone(audit), Arc::clone(metrics));
    tokio::spawn(examine_all(waiting, audit, counted));
    let metrics = Arc::clone(metrics);
    RobotsChangeListener(Arc::new(move |change| {
        // A fetch must not wait for the examination of earlier changes.
        if sender.try_send(change).is_err() {
            count(&metrics, "unexamined");
        }
    }))
}

async fn examine_all(
    mut waiting: mpsc::Receiver<AnswerChange>,
    audit: Arc<AuditLog>,
    metrics: Arc<Metrics>,
) {
    while let Some(change) = waiting.recv().await {
        count(&metrics, examine(&audit, change).await);
    }
}

/// Examines one change. Returns the metric label for the result.
async fn examine(audit: &AuditLog, change: AnswerChange) -> &'static str {
    let origin = change.after.key.origin.clone();
    let bounds = EffectBounds {
        urls: URLS_MAX,
        examples: 0,
        deadline: clock::instant() + EXAMINATION_TIME,
    };
    // Twice the time: at its deadline the query ends by itself, with the results so
    // far.
    let asked = audit.query(2 * EXAMINATION_TIME, move |reader| {
        change_effect(reader, &change, &bounds)
    });
    match asked.await {
        Ok(effect) if 0 < effect.all.newly_disallowed => {
            let (newly_disallowed, urls) = (effect.all.newly_disallowed, effect.all.urls);
            tracing::info!(
                %origin, newly_disallowed, urls,
                "a robots.txt has changed, and disallows URLs that were crawled"
            );
            "newly_disallows"
        }
        Ok(effect) if !effect.is_cut => "disallows_no_more",
        // One of the URLs that were not read may be newly disallowed.
        Ok(_) => "unexamined",
        Err(error) => {
            tracing::debug!(%error, %origin, "a changed robots.txt was not examined");
            "unexamined"
        }
    }
}

fn count(metrics: &Metrics, result: &'static str) {
    let changes = &metrics.robots_changes;
    changes.get_or_create(&ResultLabel { result }).inc();
}
