//! The configuration page: every value with its source line, before and after a
//! reload, and never a secret. Every test here is ours.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::dashboard::{Browser, token};
use crate::kit::origin::Script;
use crate::kit::proxy::{Config, Place};
use crate::kit::{assert_contains, assert_contains_each, assert_members};
use crate::reload::hang_up;

/// A text that occurs only in secrets.
const SECRET: &str = "hunter2";
/// SHA-256 digest of a credential, in hexadecimal.
const DIGEST: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddee2a";

const OVERRIDES: &str = "robots.override = [\n\
    { origin = \"http://o.test\", path = \"/over\", action = \"allow\", reason = \"r-over\", \
      until = 2001-01-01T00:00:00Z },\n\
    { origin = \"http://o.test\", agent = \"BarBot\", action = \"allow\", reason = \"r-now\", \
      until = 2999-01-01T00:00:00Z },\n\
    { origin = \"*.o.test\", action = \"deny\", reason = \"<script>alert(1)</script>\" },\n\
]";

/// Finds a configuration key in the JSON of the page.
fn key<'a>(page: &'a Value, table: &str, name: &str) -> &'a Value {
    let mut keys = page["keys"].as_array().unwrap().iter();
    let found = keys.find(|key| key["table"] == table && key["name"] == name);
    found.unwrap_or_else(|| panic!("{table}.{name} is not listed"))
}

/// Returns the number of the first line of `politesse.toml` that begins with `start`.
fn line_of(place: &Place, start: &str) -> usize {
    let text = std::fs::read_to_string(place.path("politesse.toml")).unwrap();
    let found = text.lines().position(|line| line.starts_with(start));
    1 + found.unwrap()
}

#[tokio::test]
async fn every_value_is_shown_with_its_source_line_also_after_a_reload() {
    let origin = Script::robots("").start().await;
    let config = || Config::default().resolve("o.test", origin.address());
    let browser = Browser::new(config().set("proxy.place_wait = \"7s\"")).await;
    let place = browser.proxy.place();
    let before = browser.json("/api/v1/configuration").await;
    let found = key(&before, "proxy", "place_wait");
    assert_members(found, &json!({"value": "\"7s\"", "source": "file"}));
    let line = line_of(place, "proxy.place_wait");
    let text = found["place"].as_str().unwrap();
    let expected = format!("politesse.toml, line {line}");
    assert!(text.ends_with(&expected), "{text}");
    let default = key(&before, "proxy", "via");
    assert_members(default, &json!({"value": "true", "source": "default"}));

    // All values are printed as in `config show`.
    let shown = place.run(&["config", "show"]).await.stdout;
    for key in before["keys"].as_array().unwrap() {
        let field = |name: &str| key[name].as_str().unwrap();
        let line = format!("{} = {}  # ", field("name"), field("value"));
        assert!(shown.contains(&line), "{line} in\n{shown}");
    }
    let list = ["audit", "events", "--kind", "configuration", "--json"];
    let events = place.run(&list).await;
    assert!(events.stdout.contains(before["sha256"].as_str().unwrap()));
    assert!(events.stdout.contains(before["policy"].as_str().unwrap()));

    let changed = config().set("robots.redirects = 7");
    place.configure(&changed.set("proxy.place_wait = \"9s\""));
    hang_up(&browser.proxy, "successful").await;
    let after = browser.json("/api/v1/configuration").await;
    let found = key(&after, "proxy", "place_wait");
    assert_eq!(found["value"], "\"9s\"");
    let text = found["place"].as_str().unwrap();
    let line = line_of(place, "proxy.place_wait");
    assert!(text.ends_with(&format!("line {line}")), "{text}");
    assert_ne!(after["sha256"], before["sha256"]);
    assert!(before["in_force_since"].as_str() < after["in_force_since"].as_str());
    let page = browser.get("/configuration").await.text();
    assert_contains(&page, "<code><bdi>&quot;9s&quot;</bdi></code>");
    assert!(page.contains(after["sha256"].as_str().unwrap()), "{page}");
    let set = browser.get("/configuration?keys=set").await.text();
    assert!(set.contains("<code>place_wait</code>"), "{set}");
    assert!(!set.contains("<code>header_timeout</code>"), "{set}");
    assert!(page.contains("<code>header_timeout</code>"), "{page}");
}

#[tokio::test]
async fn a_failed_reload_is_shown_until_one_succeeds() {
    let browser = Browser::new(Config::default()).await;
    let place = browser.proxy.place();
    let before = browser.json("/api/v1/configuration").await;
    assert!(before["failed_reload"].is_null());
    // Two values that may contain secrets, and one misspelt key.
    let crawler = format!("crawler = [{{ token = \"FooBot\", credential = \"{DIGEST}\" }}]");
    let wrong = Config::default()
        .set(&format!("upstream.parent = \"http://me:{SECRET}@a.test\""))
        .set(&format!("proxy.conntact = \"{SECRET}\""))
        .set(&crawler);
    place.configure(&wrong);
    hang_up(&browser.proxy, "failed").await;
    let after = browser.json("/api/v1/configuration").await;
    assert_eq!(after["sha256"], before["sha256"]);
    assert_eq!(after["in_force_since"], before["in_force_since"]);
    let problems = after["failed_reload"]["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 3, "{problems:?}");
    let page = browser.get("/configuration").await.text();
    let wanted = [
        "The last reload failed",
        "upstream.parent has a wrong value; ",
        "proxy.conntact is not a key; did you mean proxy.contact?",
        "credential of entry 1 of crawler has a wrong value; ",
    ];
    assert_contains_each(&page, &wanted);
    for text in [page, after.to_string()] {
        assert!(!text.contains(SECRET) && !text.contains(DIGEST), "{text}");
    }
    // A change of a key that requires a restart also fails the reload.
    place.configure(&Config::default().set("log.burst = 7"));
    hang_up(&browser.proxy, "failed").await;
    let page = browser.get("/configuration").await.text();
    assert!(page.contains("log.burst cannot be changed"), "{page}");
    place.configure(&Config::default());
    hang_up(&browser.proxy, "successful").await;
    let page = browser.get("/configuration").await.text();
    assert!(!page.contains("The last reload failed"), "{page}");
}

#[tokio::test]
async fn no_page_shows_a_secret_from_the_configuration() {
    let config = Config::default()
        .set(&format!(
            "crawler = [{{ token = \"BazBot\", credential = \"sha256:{DIGEST}\" }}]"
        ))
        .set(&format!(
            "audit.seal_to = [\"exec:true {SECRET}\", \"http://127.0.0.1:1/{SECRET}?{SECRET}\"]"
        ))
        .set(&format!("proxy.contact = \"https://me:{SECRET}@a.test/c\""))
        .set(&format!(
            "robots.override = [{{ origin = \"http://a.test\", action = \"deny\", \
                 reason = \"see https://me:{SECRET}@wiki.test/x\" }}]"
        ))
        .set("upstream.parent_auth = \"parent.auth\"");
    let credentials = |place: &Place| {
        let path = place.path("parent.auth");
        std::fs::write(&path, format!("me:{SECRET}\n")).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    };
    let browser = Browser::with(config, credentials).await;
    let place = browser.proxy.place();
    let ca_key = std::fs::read_to_string(place.path("certs/ca.key")).unwrap();
    let ca_key = ca_key.lines().nth(1).unwrap();
    for path in [
        "/configuration",
        "/configuration?keys=set",
        "/api/v1/configuration",
    ] {
        let text = browser.get(path).await.text();
        for secret in [SECRET, DIGEST, &token(&browser.proxy), ca_key] {
            assert!(!text.contains(secret), "{path} has {secret}: {text}");
        }
        assert!(text.contains("sha256:…"), "{path}: {text}");
        assert!(text.contains("http://127.0.0.1:1/…"), "{path}: {text}");
    }
    let page = browser.json("/api/v1/configuration").await;
    assert_eq!(key(&page, "audit", "seal_to")["is_partial"], true);
    assert_eq!(key(&page, "audit", "store")["is_partial"], false);
}

#[tokio::test]
async fn an_expired_override_is_marked_as_over() {
    let browser = Browser::new(Config::default().set(OVERRIDES)).await;
    let page = browser.json("/api/v1/configuration").await;
    let overrides = page["overrides"].as_array().unwrap();
    let first = line_of(browser.proxy.place(), "{ origin");
    let expected = [
        ("r-over", false),
        ("r-now", true),
        ("<script>alert(1)</script>", true),
    ];
    assert_eq!(overrides.len(), expected.len());
    for (at, (entry, (reason, in_force))) in overrides.iter().zip(expected).enumerate() {
        assert_eq!(entry["override"]["reason"], reason);
        assert_eq!(entry["in_force"], in_force, "{entry}");
        let place = entry["place"].as_str().unwrap();
        let expected = format!(", line {}", first + at);
        assert!(place.ends_with(&expected), "{place}");
    }
    assert_eq!(overrides[0]["override"]["until"], "2001-01-01T00:00:00Z");
    assert_eq!(overrides[1]["override"]["agent"], "BarBot");
    let page = browser.get("/configuration").await.text();
    assert_eq!(page.matches(">over</span>").count(), 1, "{page}");
    assert_eq!(page.matches(">in force</span>").count(), 2, "{page}");
    assert!(!page.contains("<script>") && page.contains("&lt;script&gt;"));
}

#[tokio::test]
async fn the_configuration_page_shows_the_ca_and_health_of_the_proxy() {
    let browser = Browser::new(Config::default()).await;
    let place = browser.proxy.place();
    let shown = place.run(&["ca", "show"]).await.stdout;
    let page = browser.json("/api/v1/configuration").await;
    let sha256 = page["ca"]["sha256"].as_str().unwrap();
    assert!(shown.contains(sha256), "{shown}");
    assert!(page["ca"]["valid_from"].as_str() < page["ca"]["valid_until"].as_str());
    assert_eq!(page["process"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(page["process"]["report_mode"], false);
    assert!(page["record"]["problem"].is_null());
    assert!(0 < page["process"]["free_bytes"].as_i64().unwrap());
    let page = browser.get("/configuration").await.text();
    let proxy = browser.proxy.address();
    let wanted = [
        sha256,
        "href=\"/ca.pem\"",
        "href=\"/client\"",
        "href=\"/readyz\"",
        "Python requests",
        &format!("curl --proxy http://{proxy} --cacert ca.pem"),
    ];
    assert_contains_each(&page, &wanted);
    let guide = browser.get("/client").await.text();
    assert!(guide.contains("Python requests") && guide.contains(sha256));
}

#[tokio::test]
async fn an_overview_without_requests_links_to_the_client_setup_page() {
    let browser = Browser::new(Config::default()).await;
    let page = browser.get("/").await.text();
    assert!(!page.contains("href=\"/client\""), "{page}");
    let browser = Browser::idle(Place::with(&Config::default())).await;
    let page = browser.get("/").await.text();
    assert!(page.contains("href=\"/client\""), "{page}");
}
