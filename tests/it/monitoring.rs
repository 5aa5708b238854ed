//! Monitoring: the contents of `/metrics`, and agreement of the Grafana dashboard and the
//! alerts in `contrib` with it. `tests/full.sh` checks the alerts with promtool.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::kit::assert_contains;
use crate::kit::checkout::{root, rust_sources, text};
use crate::kit::client::{Crawler, ask, get, get_admin, get_as, metrics};
use crate::kit::origin::{Script, site};
use crate::kit::paced::{asking_for_less, held, metric_is};
use crate::kit::page::Page;
use crate::kit::proxy::resolve;

const RULES: [&str; 2] = [
    "contrib/prometheus/politesse.rules.yml",
    "contrib/prometheus/politesse.test.yml",
];
/// Labels that are in no table: `instance`, added by Prometheus, and `le` of histogram
/// buckets.
const ADDED: [&str; 2] = ["instance", "le"];

/// Returns every series of the reference, with its labels. A unit test keeps the
/// reference in step with the code.
fn series() -> BTreeMap<String, BTreeSet<String>> {
    let mut series = BTreeMap::new();
    let reference = text("docs/reference/metrics.md");
    for row in reference.lines().filter_map(|row| row.strip_prefix("| `")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let (name, _) = row.split_once('`').unwrap();
        let labels = cells[2].split(", ");
        let labels = labels.map(|label| label.trim_matches(['`', ' ']).to_owned());
        let labels: BTreeSet<_> = labels.filter(|label| !label.is_empty()).collect();
        let ends: &[&str] = match cells[1] {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        for end in ends {
            series.insert(format!("{name}{end}"), labels.clone());
        }
    }
    assert!(40 < series.len(), "{series:?}");
    series
}

/// Returns the series selectors in a text: name, and matchers by label and value.
fn selectors(text: &str) -> Vec<(String, Vec<(String, String)>)> {
    let is_of_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let places = text.match_indices("politesse_").map(|(at, _)| &text[at..]);
    let selectors = places.map(|rest| {
        let end = rest.find(|letter| !is_of_name(letter));
        let (name, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let braces = rest.strip_prefix('{').unwrap_or_default();
        let inside = braces.split('}').next().unwrap_or_default();
        let pairs = inside.split(',').filter(|pair| !pair.is_empty());
        let matchers = pairs.map(|pair| {
            let (label, value) = pair.split_once('=').unwrap();
            let label = label.trim_end_matches('!').trim();
            (label.to_owned(), value.trim_matches(['~', '"']).to_owned())
        });
        (name.to_owned(), matchers.collect())
    });
    selectors.collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&text("contrib/grafana/politesse.json")).unwrap()
}

/// Returns the expressions of all panels.
fn expressions() -> Vec<String> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    targets
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect()
}

// Ours: a panel or alert on a missing metric would always look healthy.
#[test]
fn dashboard_and_alerts_use_only_existing_series_and_labels() {
    let known = series();
    let sources = ["src", "crates"].map(|folder| rust_sources(&root().join(folder)));
    let sources: String = sources
        .into_iter()
        .flatten()
        .map(|(_, text)| text)
        .collect();
    let mut asked_for = BTreeSet::new();
    for text in RULES.map(text).into_iter().chain(expressions()) {
        for (name, matchers) in selectors(&text) {
            let Some(labels) = known.get(&name) else {
                panic!("{name} is no series: {text}");
            };
            for (label, value) in matchers {
                let is_added = ADDED.contains(&label.as_str());
                assert!(is_added || labels.contains(&label), "{name}: {label}");
                for word in value.split('|').filter(|_| !is_added) {
                    let is_word = sources.contains(&format!("\"{word}\""));
                    assert!(is_word, "{name}: nothing is counted as {word}");
                }
            }
            asked_for.insert(name);
        }
        for by in text.split("by (").skip(1) {
            for label in by.split(')').next().unwrap().split(", ") {
                let has_it = |name: &String| known[name].contains(label);
                let mut names = selectors(&text).into_iter().map(|(name, _)| name);
                let is_known = ADDED.contains(&label) || names.any(|name| has_it(&name));
                assert!(is_known, "by {label}: {text}");
            }
        }
    }
    assert!(asked_for.contains("politesse_report_mode"));
}

// Ours: what Grafana requires, which itself is no package of Debian, PyPI or npm.
#[test]
fn the_grafana_dashboard_is_well_formed() {
    let dashboard = dashboard();
    assert_eq!(dashboard["uid"], "politesse");
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 36);
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let names: Vec<_> = variables.map(|variable| &variable["name"]).collect();
    assert_eq!(names, ["datasource", "instance"]);
    let panels = dashboard["panels"].as_array().unwrap();
    assert!((12..20).contains(&panels.len()), "{}", panels.len());
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(["stat", "timeseries"].contains(&panel["type"].as_str().unwrap()));
        assert!(!panel["title"].as_str().unwrap().is_empty());
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty());
        let references = targets.iter().map(|target| target["refId"].as_str());
        let references: BTreeSet<_> = references.collect();
        assert_eq!(references.len(), targets.len(), "{panel}");
        for asking in targets.iter().chain([panel]) {
            assert_eq!(asking["datasource"]["uid"], "${datasource}", "{panel}");
            assert_eq!(asking["datasource"]["type"], "prometheus");
        }
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{panel}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{panel} lies on another");
            }
        }
    }
    for expression in expressions() {
        for (_, matchers) in selectors(&expression) {
            let of_instance = ("instance".to_owned(), "$instance".to_owned());
            assert!(matchers.contains(&of_instance), "{expression}");
        }
    }
}

/// Returns the labels and values of `/metrics`.
fn labels(text: &str) -> BTreeSet<(String, String)> {
    let mut labels = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((_, rest)) = line.split_once('{') else {
            continue;
        };
        let (inside, _) = rest.rsplit_once('}').unwrap();
        for pair in inside.split("\",") {
            let (label, value) = pair.split_once("=\"").unwrap();
            labels.insert((label.to_owned(), value.trim_end_matches('"').to_owned()));
        }
    }
    labels
}

// Ours: `/metrics` needs no token, so it must not reveal hosts, URLs or crawlers.
#[tokio::test]
async fn no_label_names_a_host_a_url_or_a_crawler() {
    let robots = "User-agent: *\nDisallow: /secret-path\n";
    let script = Script::robots(robots)
        .page("/less", asking_for_less(503, Some("9")))
        .page("/page", Page::html("<meta name=robots content=noindex>"));
    let origin = script.start().await;
    let tls = Script::robots("").name("secret-tls.test").expired().tls();
    let tls = tls.start().await;
    let config = resolve("secret-host.test", origin.address())
        .resolve("secret-tls.test", tls.address())
        .resolve("secret-gone.test", "127.0.0.1:9".parse().unwrap());
    let proxy = config.start().await;
    let agent = "SecretBot/1.0 (+https://secret-contact.test/)";
    for path in ["page", "secret-path", "less", "robots.txt", "%zz"] {
        get_as(&proxy, agent, &format!("http://secret-host.test/{path}")).await;
    }
    for url in [
        "https://secret-tls.test/",
        "http://secret-gone.test/",
        "http://secret-unknown.invalid/",
        "http://127.0.0.1:81/secret-path",
        "http://secret@secret-host.test/",
        "http://secret-host.test:25/",
    ] {
        get(&proxy, url).await;
    }
    let hops = ["Max-Forwards: secret"];
    ask(&proxy, "TRACE", "http://secret-host.test/", &hops).await;
    let mut odd = Crawler::plain(&proxy).await;
    odd.ask_to_connect("secret-host.test:secret", &[]).await;
    let wrong = ["Authorization: Bearer secret"];
    let pace = get_admin(proxy.admin(), "/api/v1/pace", &wrong).await;
    assert_eq!(pace.status(), 401);
    let text = metrics(&proxy).await;
    assert!(!text.to_lowercase().contains("secret"), "{text}");
    let known: BTreeSet<String> = series().into_values().flatten().collect();
    for (label, value) in labels(&text) {
        assert!(known.contains(&label) || label == "le", "{label}");
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_.-+".contains(letter);
        assert!(value.chars().all(is_word), "{label}: {value}");
    }
    // The control: the requests above were counted.
    assert!(10 < labels(&text).len(), "{text}");
}

// Ours: every series without labels exists from the start, with the right value. Prometheus
// sees no increase in a counter of an alert that first appears with the value 1.
#[tokio::test]
async fn series_without_labels_and_counters_of_alerts_are_exported_from_the_start() {
    let less = asking_for_less(503, Some("300"));
    let backoff = "pace.backoff = { first = \"60s\", longest = \"1h\", forgive = \"30m\" }";
    let (_origin, proxy) = site(Script::robots("").page("/less", less), &[backoff]).await;
    let value = async |name: &str| {
        let text = metrics(&proxy).await;
        let line = format!("{name} ");
        let value = text.lines().find_map(|row| row.strip_prefix(&line));
        let value = value.unwrap_or_else(|| panic!("{name} is not in {text}"));
        value.parse::<f64>().unwrap()
    };
    for (name, labels) in series() {
        if labels.is_empty() && !name.ends_with("_bucket") {
            value(&name).await;
        }
    }
    let shown = metrics(&proxy).await;
    let rules = text(RULES[0]);
    let lines = rules.lines().map(str::trim);
    let mut seen = 0;
    for expression in lines.filter_map(|line| line.strip_prefix("expr: ")) {
        for (name, matchers) in selectors(expression) {
            for (label, words) in matchers {
                for word in words.split('|') {
                    let line = format!("{name}{{{label}=\"{word}\"}} 0\n");
                    assert_contains(&shown, &line);
                    seen += 1;
                }
            }
        }
    }
    assert!(6 < seen, "{seen}");
    assert!(value("politesse_audit_free_bytes").await > 0.0);
    assert_eq!(value("politesse_tls_cert_end_timestamp_seconds").await, 0.0);
    let start = value("politesse_start_timestamp_seconds").await;
    let years = (value("politesse_ca_end_timestamp_seconds").await - start) / 31_557_600.0;
    assert!((9.0..11.0).contains(&years), "{years}");
    assert_eq!(value("politesse_pace_backed_off").await, 0.0);
    get(&proxy, "http://o.test/less").await;
    assert_eq!(value("politesse_pace_backed_off").await, 1.0);
    let text = metrics(&proxy).await;
    let version = env!("CARGO_PKG_VERSION");
    assert_contains(
        &text,
        &format!("politesse_build_info{{version={version:?}}} 1"),
    );
}

// Ours: docs/archive.md. Trouble of the archive must be visible on the dashboard.
#[test]
fn the_dashboard_shows_every_archive_series() {
    let shown = expressions().concat();
    let known = series();
    let of_archive = known.keys().filter(|name| name.contains("_archive_"));
    assert!(3 < of_archive.clone().count());
    for name in of_archive {
        assert_contains(&shown, name);
    }
}

// Ours: a client that hangs up while it waits for an answer is counted once.
#[tokio::test]
async fn a_client_that_hangs_up_is_counted_once() {
    let (gate, origin) = held("/slow").await;
    let proxy = resolve("o.test", origin.address()).start().await;
    get(&proxy, "http://o.test/1").await;
    let mut crawler = Crawler::abrupt(&proxy).await;
    crawler.start_get("http://o.test/slow", "o.test").await;
    origin.arrival("/slow").await;
    drop(crawler);
    metric_is(&proxy, "politesse_clients_gone_total", 1.0).await;
    gate.open(1);
}
