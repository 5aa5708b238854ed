//! Report mode: requests that robots.txt or the operator disallows are forwarded, and the
//! record and the response say that they would have been refused.

use serde_json::json;

use crate::kit::addresses::free_address;
use crate::kit::client::{Crawler, Reply, get, metrics};
use crate::kit::h2::H2Crawler;
use crate::kit::origin::{Script, site};
use crate::kit::page::Page;
use crate::kit::program::Outcome;
use crate::kit::proxy::{Config, Place, resolve};
use crate::kit::raw_origin::{Bytes, RawOrigin};
use crate::kit::{assert_contains, assert_members};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";
const REPORT: &str = "enforcement.mode = \"report\"";
const WOULD: &str = "politesse;details=\"would be refused: ";

fn reporting(config: Config) -> Config {
    config.set(REPORT)
}

async fn verify(place: &Place) -> Outcome {
    place.run(&["audit", "verify"]).await
}

/// Returns the members of `Proxy-Status` in the proxy's name.
fn own_members(reply: &Reply) -> Vec<&str> {
    let values = reply.head.values("proxy-status");
    let own = values.into_iter().map(|value| value.trim());
    own.filter(|value| value.starts_with("politesse")).collect()
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
    let page = Bytes::text("page");
    let origin = RawOrigin::with(ROBOTS, page).await;
    let proxy = reporting(resolve("o.test", origin.address())).start().await;
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
    let lines: Vec<String> = origin
        .requests()
        .iter()
        .map(|request| {
            String::from_utf8_lossy(request)
                .lines()
                .next()
                .unwrap()
                .into()
        })
        .collect();
    assert_eq!(
        lines,
        [
            "GET /private/a HTTP/1.1",
            "GET /x/../private/b HTTP/1.1",
            "GET /open HTTP/1.1"
        ]
    );
    let rows = proxy.place().completed(3).await;
    for (row, (verdict, effect)) in rows.iter().zip([
        ("disallow", "reported"),
        ("disallow", "reported"),
        ("allow", "enforced"),
    ]) {
        let expected = json!({"verdict": verdict, "effect": effect, "status": 200});
        assert_members(row, &expected);
    }
    let text = metrics(&proxy).await;
    for line in [
        "politesse_reported_total{reason=\"rule\"} 2",
        "politesse_report_mode 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
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
        .set(deny);
    let proxy = reporting(config).start().await;
    for (host, detail) in [
        ("p.test", "was answered with 403"),
        ("q.test", "could not be read (status 503)"),
        ("r.test", "denies this URL: asked by %C3%BCber"),
    ] {
        assert_reported(&get(&proxy, &format!("http://{host}/a")).await, detail);
    }
    assert_eq!(restricted.targets(), ["/a"]);
    assert_eq!(unreachable.targets(), ["/a"]);
    assert_eq!(denied.targets(), ["/a"]);
    let rows = proxy.place().completed(3).await;
    for (row, reason) in rows.iter().zip(["restricted", "unreachable", "override"]) {
        assert_members(row, &json!({"reason": reason, "effect": "reported"}));
    }
    proxy.stop().await.assert_verified().await;
}

// Ours: no mode forwards to a prohibited address, a malformed request, or without a
// record.
#[tokio::test]
async fn refusals_without_a_rule_apply_in_report_mode_too() {
    let origin = Script::robots(ROBOTS).start().await;
    let down = free_address();
    let config = resolve("o.test", origin.address()).resolve("p.test", down);
    let proxy = reporting(config).start().await;
    get(&proxy, "http://10.0.0.1/a")
        .await
        .assert_error(502, "destination_ip_prohibited");
    get(&proxy, "http://p.test/a")
        .await
        .assert_error(502, "connection_refused");
    let mut crawler = Crawler::plain(&proxy).await;
    let malformed = crawler
        .ask(&["GET http://u@o.test/private HTTP/1.1", "Host: o.test"])
        .await;
    malformed.assert_error(400, "http_request_error");
    let rows = proxy.place().completed(2).await;
    assert!(rows.iter().all(|row| row["effect"] == "enforced"));
    proxy
        .place()
        .database()
        .execute_batch("DROP VIEW audit_log; DROP TABLE decision;")
        .unwrap();
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
    let proxy = reporting(config).start().await;
    let reply = get(&proxy, "http://o.test/a").await;
    assert_reported(
        &reply,
        "a redirect to a page that its own robots.txt disallows",
    );
    other.assert_only_robots_fetched();
}

// Ours: the origin's members are kept, but for one in the proxy's name.
#[tokio::test]
async fn the_origins_proxy_status_is_kept_without_forged_members() {
    let page = Page::text("x").field(
        "Proxy-Status",
        "cdn; details=\"a\", politesse; details=\"forged\"",
    );
    let script = Script::robots(ROBOTS).page("/private", page);
    let (_origin, proxy) = site(script, &[REPORT]).await;
    let reply = get(&proxy, "http://o.test/private").await;
    assert_reported(&reply, "Disallow: /private");
    assert_eq!(reply.head.values("proxy-status")[0], "cdn;details=\"a\"");
    assert!(!format!("{:?}", reply.head).contains("forged"));
}

#[tokio::test]
async fn a_reported_page_over_http2_is_annotated() {
    let page = Page::html("<head><meta name=robots content=noindex></head>");
    let script = Script::robots(ROBOTS).page("/private/p", page);
    let (origin, proxy) = site(script.tls(), &[REPORT]).await;
    let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    let reply = crawler.get("https://o.test/private/p").await;
    assert_eq!(reply.status(), 200);
    let text = |name: &str| reply.headers()[name].to_str().unwrap().to_owned();
    assert!(text("proxy-status").starts_with(WOULD), "{reply:?}");
    let field = text("robots-directives");
    assert!(field.contains("noindex"), "{field}");
    assert!(field.contains("state=complete"), "{field}");
    assert_eq!(origin.targets(), ["/private/p"]);
}

// draft-ietf-aipref-attach-05, section 3.1: robots.txt states no preference for pages
// that it disallows.
#[tokio::test]
async fn a_reported_page_has_no_preference_from_robots_txt() {
    let robots = "User-agent: *\nContent-Usage: train-ai=n\nDisallow: /private\n";
    let lines = [REPORT, "directives.preferences = true"];
    let (_origin, proxy) = site(Script::robots(robots), &lines).await;
    let open = get(&proxy, "http://o.test/open").await;
    assert!(open.head.value("robots-directives").contains("train-ai"));
    let reported = get(&proxy, "http://o.test/private").await;
    assert!(
        !reported
            .head
            .value("robots-directives")
            .contains("train-ai")
    );
}

// Ours: every mode allows /robots.txt and answers it from the cache.
#[tokio::test]
async fn robots_txt_itself_is_answered_from_the_cache_without_a_remark() {
    let (origin, proxy) = site(Script::robots(ROBOTS), &[REPORT]).await;
    for _ in 0..2 {
        let reply = get(&proxy, "http://o.test/robots.txt").await;
        assert_eq!((reply.status(), reply.text()), (200, ROBOTS.to_owned()));
        assert_eq!(own_members(&reply), [""; 0]);
    }
    assert_eq!(origin.robots_fetches(), 1);
    let rows = proxy.place().completed(2).await;
    assert!(rows.iter().all(|row| row["effect"] == "cached"));
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
        let list = place
            .run(&["audit", "list", "--effect", effect, "--json"])
            .await;
        let urls: Vec<_> = list
            .json_lines()
            .iter()
            .map(|row| row["url"].clone())
            .collect();
        assert_eq!(urls, [url], "{effect}");
    }
    let list = place.run(&["audit", "list", "--effect", "reported"]).await;
    assert_contains(&list.stdout, "(line 2: Disallow: /private)  reported");
    let none = place
        .run(&["audit", "list", "--effect", "overridden"])
        .await;
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), "0 rows\n"));
    place
        .run_code(2, &["audit", "list", "--effect", "ignored"])
        .await;
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
        assert_eq!(verify(&place).await.code, Some(0), "{mode}");
        let sql = "UPDATE ruling SET effect = ?1 WHERE verdict = 'disallow' AND effect = ?2";
        let changed = place.database().execute(sql, [forged, honest]).unwrap();
        assert_eq!(changed, 1, "{mode}");
        let outcome = verify(&place).await.assert_code(1);
        let says = "3: the row says disallow rule for ExampleBot (line 2, \"Disallow: /private\")";
        assert!(outcome.stdout.contains(&format!("\n{says}")), "{outcome:?}");
        assert!(outcome.stdout.contains(", reported"), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_start_and_config_check_warn_of_report_mode() {
    let proxy = reporting(Config::default()).start().await;
    proxy.logged("enforcement.mode is").await;
    let check = proxy.place().run(&["config", "check"]).await;
    assert_contains(&check.stdout, "nothing is refused by robots.txt");
    let enforcing = Config::default().start().await;
    assert!(!enforcing.log().contains("enforcement.mode is"));
    assert!(
        metrics(&enforcing)
            .await
            .contains("politesse_report_mode 0")
    );
}

// Ours: the summary of `run` separates refused and reported requests.
#[tokio::test]
async fn run_counts_reported_requests_separately() {
    let origin = Script::robots(ROBOTS).start().await;
    let place = Place::with(&reporting(resolve("o.test", origin.address())));
    let urls = "http://o.test/private/a http://o.test/private/b http://o.test/open";
    let outcome = place
        .run_ok(&["run", "--", "sh", "-c", &format!("curl -sS {urls}")])
        .await;
    for told in [
        "3 asked, 1 allowed, 0 refused, 2 reported (enforcement.mode); waited",
        "would refuse 2 × Disallow: /private (line 2 of http://o.test/robots.txt)",
    ] {
        assert!(outcome.stderr.contains(told), "{told}: {}", outcome.stderr);
    }
}
