//! Cases as data: `tests/cases/*.jsonl`, one JSON object a line.

use serde_json::Value;

/// The cases of `text`, less those that `skipped` names by id, each with the
/// reason why it is not run.
pub(crate) fn cases(text: &str, skipped: &[(&str, &str)]) -> Vec<Value> {
    let all = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let all: Vec<Value> = all.collect();
    for (id, _) in skipped {
        assert!(all.iter().any(|case| case["id"] == *id), "no case {id}");
    }
    let runs = |case: &Value| skipped.iter().all(|(id, _)| case["id"] != *id);
    all.into_iter().filter(runs).collect()
}

/// The strings of a list; none if the case has no such member.
pub(crate) fn strings(list: &Value) -> Vec<&str> {
    let items = list.as_array().into_iter().flatten();
    items.map(|item| item.as_str().unwrap()).collect()
}

/// What a case is right to end with: `expect` and what `also` adds.
pub(crate) fn right(case: &Value) -> Vec<&str> {
    let mut right = vec![case["expect"].as_str().unwrap()];
    right.extend(strings(&case["also"]));
    right
}

/// Runs `test` on each case, all of them even if one fails, and fails naming
/// those that did.
pub(crate) async fn each<F>(cases: Vec<Value>, test: impl Fn(Value) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut failed = Vec::new();
    for case in cases {
        let id = case["id"].clone();
        if tokio::spawn(test(case)).await.is_err() {
            failed.push(id);
        }
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}
