//! The layering rules of ARCHITECTURE.md: which files may use which names. The tests
//! search the sources as text.

use std::collections::{BTreeMap, BTreeSet};

use crate::kit::checkout::{root, rust_sources};

/// Returns the production code of each source file by path: `decision/ruling.rs` in the
/// crate `politesse-decision`, `serve/parts.rs` in the root package.
fn sources() -> BTreeMap<String, String> {
    let mut sources = BTreeMap::new();
    for (name, text) in rust_sources(&root().join("src")) {
        sources.insert(name, production(&text));
    }
    for (path, text) in rust_sources(&root().join("crates")) {
        let Some((package, name)) = path.split_once("/src/") else {
            continue;
        };
        let layer = package.trim_start_matches("politesse-").replace('-', "_");
        sources.insert(format!("{layer}/{name}"), production(&text));
    }
    assert!(sources.len() > 30, "the sources were not found");
    sources.retain(|name, _| {
        let is_for_tests = name.ends_with("tests.rs") || name.ends_with("testing.rs");
        !is_for_tests && !name.contains("/tests/")
    });
    sources
}

/// Returns `text` without unit tests and comments.
fn production(text: &str) -> String {
    // Unindented only: an indented attribute concerns a single item.
    let end = text.find("\n#[cfg(test)]").unwrap_or(text.len());
    text[..end]
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect()
}

// Invariant 5 (ARCHITECTURE.md).
#[test]
fn decision_is_pure() {
    for (name, text) in sources() {
        if !name.starts_with("decision/") {
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
            assert!(!text.contains(word), "{name} contains {word}");
        }
    }
}

// Invariants 1 and 3 (ARCHITECTURE.md); ours for the environment.
#[test]
fn only_listed_files_use_permits_receipts_and_the_environment() {
    let permitting = [
        "decision/decide.rs",
        "robots_cache/worker.rs",
        "robots_cache/fetch.rs",
        "net/client.rs",
    ];
    let starting = ["serve/", "cli/", "main.rs", "lib.rs"];
    for (allowed, word) in [
        (&permitting[..], "RobotsPermit"),
        (&["record/"], "Receipt::issue"),
        (&starting, "env::var"),
    ] {
        for (name, text) in sources() {
            let is_allowed = allowed.iter().any(|place| name.starts_with(place));
            assert!(is_allowed || !text.contains(word), "{name} contains {word}");
        }
    }
}

// Ours: every spawned task must end with the process.
#[test]
fn only_listed_files_spawn_tasks() {
    // SQL is executed, too, but no future is.
    const WAYS: [&str; 4] = [
        "spawn(",
        "spawn_blocking(",
        "tasks.execute(",
        ".execute(async",
    ];
    let listed = BTreeSet::from([
        "proxy/connection.rs",
        "proxy/listener.rs",
        "proxy/progress.rs",
        "proxy/upload.rs",
        "robots_cache/worker.rs",
        "fleet/heartbeat.rs",
        "net/connect.rs",
        "net/parent.rs",
        "net/pool.rs",
        "net/private.rs",
        "net/egress/resolver.rs",
        "pace/context.rs",
        "pace/queue.rs",
        "pace/scheduler.rs",
        "record/lib.rs",
        "record/reader_pool.rs",
        "record/writer.rs",
        "admin/archive_asker.rs",
        "admin/live.rs",
        "admin/lib.rs",
        "admin/pages/decisions.rs",
        "admin/pages/host.rs",
        "admin/pages/news.rs",
        "admin/pages/overview.rs",
        "admin/pages/queues.rs",
        "admin/state_pages.rs",
        "base/tasks.rs",
        // Exceptions: `run` spawns a process, tasks of the demo end with its process, the
        // log starts before any runtime, archives are read by scoped threads, and threads
        // started as a test of resources are joined.
        "cli/run/mod.rs",
        "cli/run/seal/mod.rs",
        "cli/demo/mod.rs",
        "cli/demo/site.rs",
        "cli/doctor.rs",
        "cli/judge/scan.rs",
        "cli/process.rs",
        "cli/log.rs",
        "serve/control/server.rs",
        "archive/connection.rs",
        "archive/shipper.rs",
        "serve/archive.rs",
        "serve/fleet.rs",
        "serve/head_export.rs",
        "serve/lifecycle.rs",
        "serve/robots_changes.rs",
    ]);
    let mut spawning = sources();
    spawning.retain(|_, text| WAYS.iter().any(|way| text.contains(way)));
    let spawning: BTreeSet<_> = spawning.keys().map(String::as_str).collect();
    assert_eq!(spawning, listed);
}

/// Types whose derived `Debug` prints bytes of a message. None of them holds a client's
/// credential.
const SHOWN: [&str; 15] = [
    // Parts of responses, from an origin or from the proxy.
    "AheadBuffer",
    "AnnotatedResponse",
    "HeadRepair",
    "HeldBody",
    "PageValidators",
    "ProxyBody",
    "RestrictedNames",
    // `Accept`, `From`, `User-Agent`, and names from the configuration.
    "AnswerForm",
    "Asker",
    "CrawlerNames",
    "Options",
    // Heads without the credential for this proxy, and a body that is not printed.
    "ConditionalRequest",
    "OutgoingHead",
    "StreamingUpload",
    // The value is marked as sensitive.
    "Credentials",
];

// Ours: credentials must never reach a log or an error text, even by careless printing.
#[test]
fn no_derived_debug_prints_a_credential() {
    let raw = [
        "Vec<u8>",
        "Bytes",
        "BytesMut",
        "Box<[u8]>",
        "HeaderMap",
        "HeaderValue",
        "Request<",
    ];
    let mut shown = BTreeSet::new();
    for (name, text) in sources() {
        let layer = name.split('/').next().unwrap();
        if !["proxy", "admin", "net", "base"].contains(&layer) {
            continue;
        }
        for part in text.split("#[derive(").skip(1) {
            let (traits, definition) = part.split_once(")]").unwrap();
            let ends = ["\n}", ";\n"]
                .into_iter()
                .filter_map(|end| definition.find(end));
            let body = &definition[..ends.min().unwrap_or(definition.len())];
            let is_type = |word: &&str| ["struct", "enum"].contains(word);
            let names = |letter: char| letter.is_whitespace() || "(<{".contains(letter);
            let mut words = body.split(names).skip_while(|word| !is_type(word));
            if traits.contains("Debug") && raw.iter().any(|raw| has_word(body, raw)) {
                shown.insert(words.nth(1).unwrap_or_default().to_owned());
            }
        }
    }
    let listed = SHOWN.map(str::to_owned);
    assert_eq!(shown, BTreeSet::from(listed));
}

/// Reports whether `text` contains `word`, other than as the end of a longer word.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_')
    })
}
