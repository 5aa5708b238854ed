//! Monitoring: the contents of `/metrics`, and agreement of the Grafana dashboard and the
//! alerts in `contrib` with it. `tests/full.sh` checks the alerts with promtool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::kit::client::{Crawler, ask, get, get_admin, get_as, metrics};
use crate::kit::origin::{Script, site};
use crate::kit::paced::asking_for_less;
use crate::kit::page::Page;
use crate::kit::proxy::{Config, resolve};
use crate::kit::{assert_contains, until};

const DASHBOARD: &str = "contrib/grafana/politesse.json";
const RULES: [&str; 2] = [
    "contrib/prometheus/politesse.rules.yml",
    "contrib/prometheus/politesse.test.yml",
];
/// Labels that are in no table: `instance`, added by Prometheus, and `le` of histogram
/// buckets.
const ADDED: [&str; 2] = ["instance", "le"];

fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// Returns every series of the reference, with its labels. A unit test keeps the
/// reference in step with the code.
fn series() -> BTreeMap<String, BTreeSet<String>> {
    let mut series = BTreeMap::new();
    for row in file("docs/reference/metrics.md").lines() {
        let cells: Vec<&str> = row.split(" | ").collect();
        let Some(name) = row
            .strip_prefix("| `")
            .and_then(|row| row.split('`').next())
        else {
            continue;
        };
        let labels = cells[2]
            .split(", ")
            .map(|label| label.trim_matches(['`', ' ']));
        let labels: BTreeSet<String> = labels
            .filter(|label| !label.is_empty())
            .map(str::to_owned)
            .collect();
        if cells[1] == "histogram" {
            for end in ["bucket", "sum", "count"] {
                series.insert(format!("{name}_{end}"), labels.clone());
            }
        } else {
            series.insert(name.to_owned(), labels);
        }
    }
    assert!(40 < series.len(), "{series:?}");
    series
}

/// A series selector in an expression: name and matchers.
struct Selector {
    name: String,
    matchers: Vec<(String, String)>,
}

fn selectors(text: &str) -> Vec<Selector> {
    let is_of_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let places = text.match_indices("politesse_").map(|(at, _)| &text[at..]);
    let selectors = places.map(|rest| {
        let end = rest
            .find(|letter| !is_of_name(letter))
            .unwrap_or(rest.len());
        let braces = rest[end..].strip_prefix('{');
        let inside = braces
            .and_then(|rest| rest.split('}').next())
            .unwrap_or_default();
        let pairs = inside.split(',').filter(|pair| !pair.is_empty());
        let matchers = pairs.map(|pair| {
            let (label, value) = pair.split_once('=').unwrap();
            let value = value.trim_matches(['~', '"']);
            (
                label.trim_end_matches('!').trim().to_owned(),
                value.to_owned(),
            )
        });
        Selector {
            name: rest[..end].to_owned(),
            matchers: matchers.collect(),
        }
    });
    selectors.collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&file(DASHBOARD)).unwrap()
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
    let mut sources = String::new();
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![top.join("src"), top.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let texts = RULES.map(file).into_iter().chain(expressions());
    let mut asked_for = BTreeSet::new();
    for text in texts {
        for Selector { name, matchers } in selectors(&text) {
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
                let mut names = selectors(&text).into_iter().map(|selector| selector.name);
                let is_known = ADDED.contains(&label) || names.any(|name| has_it(&name));
                assert!(is_known, "by {label}: {text}");
            }
        }
    }
    assert!(asked_for.contains("politesse_report_mode"));
}

// Ours: the properties that Grafana requires. Grafana itself is not available as a
// package of Debian, PyPI or npm.
#[test]
fn the_grafana_dashboard_is_well_formed() {
    let dashboard = dashboard();
    assert_eq!(dashboard["uid"], "politesse");
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 36);
    let names: Vec<_> = dashboard["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
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
        let references: BTreeSet<_> = targets
            .iter()
            .map(|target| target["refId"].as_str())
            .collect();
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
        for selector in selectors(&expression) {
            let is_of_instance =
                |(label, value): &(String, String)| label == "instance" && value == "$instance";
            assert!(selector.matchers.iter().any(is_of_instance), "{expression}");
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
    let origin = Script::robots(robots)
        .page("/less", asking_for_less(503, Some("9")))
        .page("/page", Page::html("<meta name=robots content=noindex>"))
        .start()
        .await;
    let tls = Script::robots("")
        .name("secret-tls.test")
        .expired()
        .tls()
        .start()
        .await;
    let gone = "127.0.0.1:9".parse().unwrap();
    let proxy = resolve("secret-host.test", origin.address())
        .resolve("secret-tls.test", tls.address())
        .resolve("secret-gone.test", gone)
        .start()
        .await;
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
    ask(
        &proxy,
        "TRACE",
        "http://secret-host.test/",
        &["Max-Forwards: secret"],
    )
    .await;
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

// Ours: every series without labels exists from the start, with the right value.
#[tokio::test]
async fn series_without_labels_are_exported_from_the_start() {
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
    assert!(value("politesse_audit_free_bytes").await > 0.0);
    assert_eq!(value("politesse_tls_cert_end_timestamp_seconds").await, 0.0);
    let start = value("politesse_start_timestamp_seconds").await;
    let years = (value("politesse_ca_end_timestamp_seconds").await - start) / 31_557_600.0;
    assert!((9.0..11.0).contains(&years), "{years}");
    assert_eq!(value("politesse_pace_backed_off").await, 0.0);
    get(&proxy, "http://o.test/less").await;
    assert_eq!(value("politesse_pace_backed_off").await, 1.0);
    let text = metrics(&proxy).await;
    let build = concat!(
        "politesse_build_info{version=\"",
        env!("CARGO_PKG_VERSION"),
        "\"} 1"
    );
    assert!(text.contains(build), "{text}");
}

// Ours: Prometheus sees no increase in a series that first appears with the value 1.
#[tokio::test]
async fn counters_used_by_alerts_start_at_0() {
    let text = metrics(&Config::default().start().await).await;
    let rules = file(RULES[0]);
    let lines = rules.lines().map(str::trim);
    let mut seen = 0;
    for expression in lines.filter_map(|line| line.strip_prefix("expr: ")) {
        for Selector { name, matchers } in selectors(expression) {
            for (label, words) in matchers {
                for word in words.split('|') {
                    let line = format!("{name}{{{label}=\"{word}\"}} 0\n");
                    assert!(text.contains(&line), "{line}{text}");
                    seen += 1;
                }
            }
        }
    }
    assert!(6 < seen, "{seen}");
}

// Ours: docs/archive.md. Trouble of the archive must be visible on the dashboard.
#[test]
fn the_dashboard_shows_every_archive_series() {
    let shown = expressions().concat();
    let known = series();
    let of_archive = known.keys().filter(|name| name.contains("_archive_"));
    assert!(3 < of_archive.clone().count());
    for name in of_archive {
        assert!(shown.contains(name.as_str()), "{name}");
    }
}

// Ours: a client that hangs up while it waits for an answer is counted once.
#[tokio::test]
async fn a_client_that_hangs_up_is_counted_once() {
    let (gate, origin) = crate::kit::paced::held("/slow").await;
    let proxy = resolve("o.test", origin.address()).start().await;
    get(&proxy, "http://o.test/1").await;
    let mut crawler = Crawler::abrupt(&proxy).await;
    crawler.start_get("http://o.test/slow", "o.test").await;
    origin.arrival("/slow").await;
    drop(crawler);
    let line = "politesse_clients_gone_total 1\n";
    until("the count", async || {
        metrics(&proxy).await.contains(line).then_some(())
    })
    .await;
    gate.open(1);
}

// Ours: the metric shows only a CA that is in use.
#[tokio::test]
async fn without_interception_the_ca_end_metric_is_0() {
    let proxy = Config::default()
        .set("https.mode = \"refuse\"")
        .start()
        .await;
    let text = metrics(&proxy).await;
    assert_contains(&text, "politesse_ca_end_timestamp_seconds 0\n");
}
