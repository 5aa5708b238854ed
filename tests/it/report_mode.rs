//! Report mode: requests that robots.txt or the operator disallows are forwarded, and the
//! record and the response say that they would have been refused.

use serde_json::json;

use crate::kit::addresses::free_address;
use crate::kit::client::{Crawler, Reply, assert_metric, get};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Script, site};
use crate::kit::paced::column;
use crate::kit::page::Page;
use crate::kit::proxy::{Config, Place, resolve};
use crate::kit::raw_origin::{Bytes, RawOrigin};
use crate::kit::{assert_contains, assert_members};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";
const REPORT: &str = "enforcement.mode = \"report\"";
const WOULD: &str = "politesse;details=\"would be refused: ";

/// Returns the members of `Proxy-Status` in the proxy's name.
fn own_members(reply: &Reply) -> Vec<&str> {
    let mut own = reply.head.values("proxy-status");
    own.retain(|value| value.starts_with("politesse"));
    own
}

/// Asserts that `reply` is the origin's, with a remark that contains `detail`.
fn assert_reported(reply: &Reply, detail: &str) {
    assert_eq!(reply.status(), 200, "{}", reply.text());
    let [member] = own_members(reply)[..] else {
        panic!("{:?}", reply.head);
    };
    assert!(member.starts_with(WOULD), "{member}");
    assert!(member.contains(detail), "{member}");
    assert!(!member.contains("error="), "{member}");
}

#[tokio::test]
async fn a_request_that_would_be_refused_is_forwarded_unchanged_and_reported() {
    let origin = RawOrigin::with(ROBOTS, Bytes::text("page")).await;
    let config = resolve("o.test", origin.address()).set(REPORT);
    let proxy = config.start().await;
    assert_reported(
        &get(&proxy, "http://o.test/private/a").await,
        "Line 2 of http://o.test/robots.txt, \\\"Disallow: /private\\\" in the group of *",
    );
    assert_reported(
        &get(&proxy, "http://o.test/x/../private/b").await,
        "servers take for /private/b",
    );
    let open = get(&proxy, "http://o.test/open").await;
    assert_eq!((open.status(), own_members(&open)), (200, vec![]));
    // Ours: every mode allows /robots.txt and answers it from the cache.
    let robots = get(&proxy, "http://o.test/robots.txt").await;
    assert_eq!((&*robots.text(), own_members(&robots)), (ROBOTS, vec![]));
    assert_eq!(origin.robots_requests().len(), 1);
    let pages = ["GET /private/a", "GET /x/../private/b", "GET /open"];
    assert_eq!(origin.lines(), pages);
    let rows = proxy.place().completed(4).await;
    for (row, (verdict, effect)) in rows.iter().zip([
        ("disallow", "reported"),
        ("disallow", "reported"),
        ("allow", "enforced"),
        ("allow", "cached"),
    ]) {
        let expected = json!({"verdict": verdict, "effect": effect, "status": 200});
        assert_members(row, &expected);
    }
    assert_metric(&proxy, "politesse_reported_total{reason=\"rule\"} 2").await;
    assert_metric(&proxy, "politesse_report_mode 1").await;
    proxy.stop().await.assert_verified().await;
}

// Ours: a 403 for robots.txt, an unreachable robots.txt and an override.
#[tokio::test]
async fn every_reason_of_robots_txt_and_of_the_operator_is_reported() {
    let restricted = Script::robots_page(Page::status(403)).start().await;
    let unreachable = Script::robots_page(Page::status(503)).start().await;
    let denied = Script::robots("").start().await;
    let deny = "robots.override = [{ origin = \"http://r.test\", action = \"deny\", \
                    reason = \"asked by \u{fc}ber\" }]";
    let config = resolve("p.test", restricted.address())
        .resolve("q.test", unreachable.address())
        .resolve("r.test", denied.address())
        .set("robots.status.unauthorized = \"refuse\"")
        .set(deny)
        .set(REPORT);
    let proxy = config.start().await;
    for (origin, host, detail) in [
        (restricted, "p.test", "was answered with 403"),
        (unreachable, "q.test", "could not be read (status 503)"),
        (denied, "r.test", "denies this URL: asked by %C3%BCber"),
    ] {
        assert_reported(&get(&proxy, &format!("http://{host}/a")).await, detail);
        assert_eq!(origin.targets(), ["/a"], "{host}");
    }
    let rows = proxy.place().completed(3).await;
    for (row, reason) in rows.iter().zip(["restricted", "unreachable", "override"]) {
        assert_members(row, &json!({"reason": reason, "effect": "reported"}));
    }
    proxy.stop().await.assert_verified().await;
}

// Ours: a prohibited address, a malformed request, and a record that fails.
#[tokio::test]
async fn refusals_without_a_rule_apply_in_report_mode_too() {
    let origin = Script::robots(ROBOTS).start().await;
    let down = free_address();
    let config = resolve("o.test", origin.address()).resolve("p.test", down);
    let proxy = config.set(REPORT).start().await;
    for (url, status, error) in [
        ("http://10.0.0.1/a", 502, "destination_ip_prohibited"),
        ("http://p.test/a", 502, "connection_refused"),
    ] {
        get(&proxy, url).await.assert_error(status, error);
    }
    let mut crawler = Crawler::plain(&proxy).await;
    let lines = ["GET http://u@o.test/private HTTP/1.1", "Host: o.test"];
    let malformed = crawler.ask(&lines).await;
    malformed.assert_error(400, "http_request_error");
    let rows = proxy.place().completed(2).await;
    assert!(rows.iter().all(|row| row["effect"] == "enforced"));
    let broken = "DROP VIEW audit_log; DROP TABLE decision;";
    proxy.place().database().execute_batch(broken).unwrap();
    let unrecorded = get(&proxy, "http://o.test/private/a").await;
    assert_eq!(unrecorded.status(), 503, "{}", unrecorded.text());
    origin.assert_only_robots_fetched();
}

// Ours: the proxy itself does not request a disallowed hop: no crawler asked for it.
#[tokio::test]
async fn a_disallowed_redirect_of_robots_txt_is_not_followed_in_report_mode() {
    let other = Script::robots(ROBOTS).start().await;
    let hop = format!("http://p.test:{}/private/robots", other.address().port());
    let origin = Script::robots_page(Page::redirect(&hop)).start().await;
    let config = resolve("o.test", origin.address()).resolve("p.test", other.address());
    let proxy = config.set(REPORT).start().await;
    let reply = get(&proxy, "http://o.test/a").await;
    let detail = "a redirect to a page that its own robots.txt disallows";
    assert_reported(&reply, detail);
    other.assert_only_robots_fetched();
}

#[tokio::test]
async fn a_reported_page_over_http2_is_annotated() {
    let page = Page::html("<head><meta name=robots content=noindex></head>");
    let script = Script::robots(ROBOTS).page("/private/p", page);
    let (origin, proxy) = site(script.tls(), &[REPORT]).await;
    let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    let reply = crawler.get("https://o.test/private/p").await;
    assert_eq!(reply.status(), 200);
    let text = |name: &str| reply.headers()[name].to_str().unwrap();
    assert!(text("proxy-status").starts_with(WOULD), "{reply:?}");
    assert_contains(text("robots-directives"), "noindex");
    assert_contains(text("robots-directives"), "state=complete");
    assert_eq!(origin.targets(), ["/private/p"]);
}

// draft-ietf-aipref-attach-05, section 3.1: robots.txt states no preference for pages
// that it disallows.
#[tokio::test]
async fn a_reported_page_has_no_preference_from_robots_txt() {
    let robots = "User-agent: *\nContent-Usage: train-ai=n\nDisallow: /private\n";
    let lines = [REPORT, "directives.preferences = true"];
    let (_origin, proxy) = site(Script::robots(robots), &lines).await;
    for (url, has_preference) in [
        ("http://o.test/open", true),
        ("http://o.test/private", false),
    ] {
        let reply = get(&proxy, url).await;
        let stated = reply.head.value("robots-directives");
        assert_eq!(stated.contains("train-ai"), has_preference, "{url}");
    }
}

/// Returns the folder of a stopped proxy that handled a disallowed page, an allowed one and
/// /robots.txt in this mode.
async fn crawled(mode: &str) -> Place {
    let script = Script::robots(ROBOTS);
    let (_origin, proxy) = site(script, &[&format!("enforcement.mode = \"{mode}\"")]).await;
    for path in ["private/a", "open", "robots.txt"] {
        get(&proxy, &format!("http://o.test/{path}")).await;
    }
    proxy.place().completed(3).await;
    proxy.stop().await
}

// Ours: `--effect reported` lists the pages that enforcement would have cost.
#[tokio::test]
async fn audit_list_filters_by_effect() {
    let place = crawled("report").await;
    for (effect, url) in [
        ("reported", "http://o.test/private/a"),
        ("enforced", "http://o.test/open"),
        ("cached", "http://o.test/robots.txt"),
    ] {
        let rows = place.audit(&format!("list --effect {effect} --json")).await;
        assert_eq!(column(&rows.json_lines(), "url"), [url], "{effect}");
    }
    let reported = place.audit("list --effect reported").await.stdout;
    assert_contains(&reported, "(line 2: Disallow: /private)  reported");
    let none = place.audit("list --effect overridden").await;
    assert_eq!(none.stdout, "0 rows\n");
    place.audit_code(2, "list --effect ignored").await;
}

// Invariant 2 (ARCHITECTURE.md): a row's policy decides whether its effect can be
// `reported`.
#[tokio::test]
async fn verify_finds_an_effect_that_the_policy_rules_out() {
    for (mode, honest, forged) in [
        ("report", "reported", "enforced"),
        ("enforce", "enforced", "reported"),
    ] {
        let place = crawled(mode).await;
        place.assert_verified().await;
        let sql = "UPDATE ruling SET effect = ?1 WHERE verdict = 'disallow' AND effect = ?2";
        let changed = place.database().execute(sql, [forged, honest]).unwrap();
        assert_eq!(changed, 1, "{mode}");
        let outcome = place.audit_code(1, "verify").await;
        let says = "3: the row says disallow rule for ExampleBot (line 2, \"Disallow: /private\")";
        assert_contains(&outcome.stdout, &format!("\n{says}"));
        assert_contains(&outcome.stdout, ", reported");
    }
}

#[tokio::test]
async fn a_start_and_config_check_warn_of_report_mode() {
    let proxy = Config::default().set(REPORT).start().await;
    proxy.logged("enforcement.mode is").await;
    let check = proxy.place().run(&["config", "check"]).await;
    assert_contains(&check.stdout, "nothing is refused by robots.txt");
    let enforcing = Config::default().start().await;
    assert!(!enforcing.log().contains("enforcement.mode is"));
    assert_metric(&enforcing, "politesse_report_mode 0").await;
}

// Ours: the summary of `run` separates refused and reported requests.
#[tokio::test]
async fn run_counts_reported_requests_separately() {
    let origin = Script::robots(ROBOTS).start().await;
    let place = Place::with(&resolve("o.test", origin.address()).set(REPORT));
    let urls = "http://o.test/private/a http://o.test/private/b http://o.test/open";
    let script = format!("curl -sS {urls}");
    let outcome = place.run_ok(&["run", "--", "sh", "-c", &script]).await;
    outcome.assert_stderr(&[
        "3 asked, 1 allowed, 0 refused, 2 reported (enforcement.mode); waited",
        "would refuse 2 × Disallow: /private (line 2 of http://o.test/robots.txt)",
    ]);
}
