//! Runs the cases of a file through the proxy, several at a time.
//!
//! A failing case does not stop the others: all failures are reported at the end.

use std::future::Future;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

/// Number of cases that run at the same time. Each has its own proxy or origins.
const SIDE_BY_SIDE: usize = 4;

/// Ids of cases that are not run, with the reason.
pub(crate) type Skipped = [(&'static str, &'static str)];

/// One line of a case file.
pub(crate) trait Line: DeserializeOwned + Send + 'static {
    fn id(&self) -> &str;
}

/// Returns the cases of `file` without those in `skipped`, which must exist.
pub(crate) fn read<C: Line>(file: &str, skipped: &Skipped) -> Vec<C> {
    let lines = file.lines();
    let mut cases: Vec<C> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for (id, _) in skipped {
        let known = cases.iter().any(|case| case.id() == *id);
        assert!(known, "{id} is skipped but does not exist");
    }
    cases.retain(|case| skipped.iter().all(|(id, _)| *id != case.id()));
    cases
}

/// Runs `meet` for each case; a panic counts as a failed case.
pub(crate) async fn every<C, F>(cases: Vec<C>, meet: impl Fn(C) -> F)
where
    C: Line,
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(SIDE_BY_SIDE));
    let mut running = Vec::new();
    for case in cases {
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let id = case.id().to_owned();
        let meeting = meet(case);
        let task = tokio::spawn(async move {
            meeting.await;
            drop(place);
        });
        running.push((id, task));
    }
    let mut missed = Vec::new();
    for (id, task) in running {
        if let Err(error) = task.await {
            missed.push(format!("{id}: {error}"));
        }
    }
    assert!(missed.is_empty(), "failed cases:\n{}", missed.join("\n"));
}
