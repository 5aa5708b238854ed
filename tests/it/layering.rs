//! The arrows of ARCHITECTURE.md: what may import what, and where the words
//! that keep the invariants may stand. It reads the sources as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn sources() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders: Vec<PathBuf> = vec![root.clone()];
    let mut sources = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).unwrap().display().to_string();
                sources.insert(name, production(&fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(sources.len() > 30, "the sources were not found");
    sources.retain(|name, _| !name.ends_with("tests.rs") && !name.contains("/tests/"));
    sources
}

/// The text without its tests and without comments.
fn production(text: &str) -> String {
    let end = text.find("#[cfg(test)]").unwrap_or(text.len());
    text[..end]
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect()
}

fn layer(module: &str) -> Option<u8> {
    Some(match module {
        "decision" => 0,
        "upstream" => 1,
        "pace" => 2,
        "audit" | "robots_cache" => 3,
        "proxy" => 4,
        "admin" | "config" => 5,
        "serve" | "cli" | "main" | "lib" => 6,
        _ => return None,
    })
}

fn first_segment(name: &str) -> &str {
    name.split(['/', '.']).next().unwrap()
}

/// The modules after `crate::` in a text.
fn imports(text: &str) -> impl Iterator<Item = &str> {
    text.split("crate::").skip(1).flat_map(|rest| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        let end = rest.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
        Some(&rest[..end.unwrap_or(rest.len())])
    })
}

// architecture, section 3.
#[test]
fn a_layer_imports_only_lower_layers() {
    for (name, text) in sources() {
        let own = first_segment(&name);
        let Some(own_layer) = layer(own) else {
            continue;
        };
        for import in imports(&text) {
            let Some(import_layer) = layer(import) else {
                continue;
            };
            let downwards = import_layer < own_layer || import == own || own_layer == 6;
            // Settings fill the options of every module, the admin pages' too.
            let settings = name == "config/settings.rs" || name.starts_with("config/");
            assert!(
                downwards || settings && import == "admin",
                "{name} imports crate::{import}"
            );
        }
    }
}

// architecture, section 3: a file uses only siblings that its mod.rs lists
// below it.
#[test]
fn a_file_imports_only_siblings_below_it() {
    let sources = sources();
    for folder in [
        "decision",
        "upstream",
        "pace",
        "robots_cache",
        "audit",
        "proxy",
    ] {
        let order: Vec<&str> = sources[&format!("{folder}/mod.rs")]
            .lines()
            .filter_map(|line| line.trim().trim_start_matches("pub ").strip_prefix("mod "))
            .filter_map(|line| line.strip_suffix(';'))
            .collect();
        for (name, text) in &sources {
            let Some(file) = name.strip_prefix(&format!("{folder}/")) else {
                continue;
            };
            let own = first_segment(file);
            let Some(place) = order.iter().position(|module| *module == own) else {
                continue;
            };
            let nested =
                file.contains('/') && !file.ends_with("/mod.rs") || file.ends_with("/mod.rs");
            let absolute = format!("crate::{folder}::");
            let siblings = text
                .split(&absolute)
                .skip(1)
                .chain(text.split("super::").skip(1).filter(|_| !nested));
            for rest in siblings {
                let end = rest.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
                let import = &rest[..end.unwrap_or(rest.len())];
                let Some(other) = order.iter().position(|module| *module == import) else {
                    continue;
                };
                assert!(
                    other >= place,
                    "{name} imports {import}, which stands above it"
                );
            }
        }
    }
}

// Invariant 5.
#[test]
fn decision_is_pure() {
    for (name, text) in sources() {
        if first_segment(&name) != "decision" {
            continue;
        }
        for word in [
            "tokio::",
            "hyper::",
            "std::fs",
            "TcpStream",
            "::now()",
            "async ",
            "std::env",
            "moka",
        ] {
            assert!(!text.contains(word), "{name} holds {word}");
        }
    }
}

// Invariant 1: the one leave that no rule gave.
#[test]
fn a_robots_permit_is_known_to_four_files() {
    for (name, text) in sources() {
        let allowed = [
            "decision/decide.rs",
            "robots_cache/worker.rs",
            "robots_cache/fetch.rs",
            "upstream/client.rs",
        ];
        if !allowed.iter().any(|file| name.ends_with(file)) {
            assert!(!text.contains("RobotsPermit"), "{name} knows RobotsPermit");
        }
    }
}

// Invariant 3.
#[test]
fn receipts_are_made_by_the_audit_alone() {
    for (name, text) in sources() {
        if first_segment(&name) != "audit" {
            assert!(!text.contains("Receipt::issue"), "{name} makes a receipt");
        }
    }
}

// architecture, section 6.
#[test]
fn tasks_are_spawned_in_the_listed_files_alone() {
    const WAYS: [&str; 3] = ["spawn(", "spawn_blocking(", ".execute("];
    let listed = [
        "proxy/connection.rs",
        "proxy/listener.rs",
        "robots_cache/worker.rs",
        "upstream/connect.rs",
        "upstream/parent.rs",
        "upstream/egress/resolver.rs",
        "pace/scheduler.rs",
        "audit/mod.rs",
        "audit/reader_pool.rs",
        "admin/mod.rs",
        "admin/pace.rs",
        "tasks.rs",
    ];
    // A command of `run` is a process, what the store executes is SQL, the demo's
    // site ends with its process, and the log begins before any runtime.
    let own = [
        "cli/run/mod.rs",
        "cli/run/seal/mod.rs",
        "cli/demo/site.rs",
        "cli/log.rs",
        "serve/control/server.rs",
        "audit/store.rs",
        "audit/transaction.rs",
    ];
    let listed: BTreeSet<&str> = listed.into_iter().chain(own).collect();
    let sources = sources();
    let spawning = sources
        .iter()
        .filter(|(_, text)| WAYS.iter().any(|way| text.contains(way)))
        .map(|(name, _)| name.as_str());
    assert_eq!(spawning.collect::<BTreeSet<_>>(), listed);
}

#[test]
fn nobody_below_the_command_line_reads_the_environment() {
    for (name, text) in sources() {
        if layer(first_segment(&name)) == Some(6) {
            continue;
        }
        assert!(!text.contains("env::var"), "{name} reads the environment");
    }
}
