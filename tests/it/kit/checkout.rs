//! Repository files outside the program: helpers to read them and to run commands that
//! check them.

use std::path::Path;

use serde_json::Value;
use tokio::process::Command;

use super::program::finish;

/// Returns the root directory of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Reads a file; `path` is relative to the repository's [`root`].
pub(crate) fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the Rust files below `folder`, each with its path from there and its text.
pub(crate) fn rust_sources(folder: &Path) -> Vec<(String, String)> {
    let mut folders = vec![folder.to_owned()];
    let mut sources = Vec::new();
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                sources.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    sources
}

/// Runs a command, which must succeed, and returns its output.
pub(crate) async fn done(command: Command) -> String {
    let outcome = finish(command, b"").await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    outcome.stdout
}

/// Parses the documents of a YAML file with PyYAML, which resolves anchors and merges.
pub(crate) async fn yaml(path: &str) -> Vec<Value> {
    let mut python = Command::new(root().join("target/venv/bin/python"));
    let program =
        "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)";
    python.args(["-c", program]).kill_on_drop(true);
    let outcome = finish(python, text(path).as_bytes()).await;
    let made_by = "tests/run makes target/venv";
    assert_eq!(outcome.code, Some(0), "{outcome:?}; {made_by}");
    serde_json::from_str(&outcome.stdout).unwrap()
}
