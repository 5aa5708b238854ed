//! Redirects of robots.txt: where they lead, and which are not followed.

use std::num::NonZeroUsize;

use tokio::time::sleep;

use super::kit::*;
use super::*;
use politesse_decision::decide::{Policy, decide};
use politesse_decision::overrides::Override;
use politesse_decision::snapshot::AccessResult;
use politesse_robots::Dialect;

// RFC 9309, section 2.3.1.2: at least five are followed.
#[tokio::test(start_paused = true)]
async fn five_redirects_are_followed_and_a_sixth_is_not() {
    let mut script = Script::default().at(ROBOTS, [to("/1")]);
    for (at, location) in [("1", "/2"), ("2", "/3"), ("3", "/4"), ("4", "/5")] {
        script = script.at(&format!("http://a.test/{at}"), [to(location)]);
    }
    script = script.at("http://a.test/5", [text("User-agent: *"), to("/6")]);
    let snapshot = ask(&cache(&script)).await;
    let hops: Vec<String> = (1..5).map(|at| format!("http://a.test/{at}")).collect();
    let hops = [&[ROBOTS.to_owned()][..], &hops].concat();
    assert_eq!((&snapshot.hops, snapshot.file().is_some()), (&hops, true));
    assert_eq!(snapshot.url, "http://a.test/5");
    let snapshot = ask(&cache(&script)).await;
    assert_eq!(cause(&snapshot), Some(Cause::Redirects));
    assert_eq!((&snapshot.hops, snapshot.status), (&hops, Some(301)));
    assert_eq!(script.asked().len(), 12);
}

// RFC 9309, section 2.3.1.4.
#[tokio::test(start_paused = true)]
async fn circular_and_invalid_redirects_are_unreachable() {
    for (reply, expected) in [
        (to("/robots.txt"), Cause::Redirects),
        (to("ftp://a.test/"), Cause::RedirectTarget),
        (to("http://u@b.test/robots.txt"), Cause::RedirectTarget),
        (status(302), Cause::RedirectTarget),
    ] {
        let script = Script::default().at(ROBOTS, [reply]);
        let snapshot = ask(&cache(&script)).await;
        assert_eq!(cause(&snapshot), Some(expected));
        assert_eq!(script.asked(), [ROBOTS]);
    }
}

// Ours: the snapshot lists each hop, no matter how the fetch ends.
#[tokio::test(start_paused = true)]
async fn a_failure_after_redirects_lists_its_hops() {
    let (second, third) = ("http://www.a.test/robots.txt", "http://a.test/x");
    for (reply, expected) in [
        (to(ROBOTS), Cause::Redirects),
        (to(third), Cause::Redirects),
        (to("ftp://a.test/"), Cause::RedirectTarget),
        (to("http://b.test/private"), Cause::RedirectDisallowed),
        (status(503), Cause::Status),
        (Reply::Never, Cause::Timeout),
        (Reply::Fail(unconnected), Cause::RedirectTarget),
    ] {
        let script = Script::default()
            .at(ROBOTS, [to(second)])
            .at(second, [to(third)])
            .at(third, [reply])
            .at(
                "http://b.test/robots.txt",
                [text("User-agent: *\nDisallow: /")],
            );
        let snapshot = ask(&cache(&script)).await;
        assert_eq!(cause(&snapshot), Some(expected));
        assert_eq!(snapshot.hops, [ROBOTS, second]);
        assert_eq!(snapshot.url, third);
    }
}

fn unconnected() -> Cause {
    UpstreamError::NoConnection(NoConnection::Refused).into()
}

// Ours: the hops are recorded even if there is no file.
#[tokio::test(start_paused = true)]
async fn a_missing_file_lists_its_hops() {
    let script = Script::default()
        .at(ROBOTS, [to("/gone")])
        .at("http://a.test/gone", [status(404)]);
    let snapshot = ask(&cache(&script)).await;
    assert!(matches!(snapshot.result, AccessResult::Unavailable));
    assert_eq!(snapshot.hops, [ROBOTS]);
}

// RFC 9309, section 2.3.1.2: across authorities, for the initial one.
#[tokio::test(start_paused = true)]
async fn a_redirect_to_another_robots_txt_is_followed_without_a_check() {
    let other = "https://www.a.test/robots.txt";
    let script = Script::default()
        .at(ROBOTS, [to(other)])
        .at(other, [text("User-agent: *")]);
    let snapshot = ask(&cache(&script)).await;
    assert!(snapshot.file().is_some());
    assert_eq!(snapshot.key.origin.to_string(), "http://a.test");
    assert_eq!(script.asked(), [ROBOTS, other]);
}

// Ours: a redirect must not make the proxy fetch a disallowed page.
#[tokio::test(start_paused = true)]
async fn a_page_of_another_origin_is_checked_before_it_is_fetched() {
    let rules = "User-agent: *\nDisallow: /private";
    let script = Script::default()
        .at(ROBOTS, [to("http://b.test/private?delete")])
        .at("http://b.test/robots.txt", [text(rules)]);
    let snapshot = ask(&cache(&script)).await;
    assert_eq!(cause(&snapshot), Some(Cause::RedirectDisallowed));
    assert_eq!(script.asked(), [ROBOTS, "http://b.test/robots.txt"]);

    let script = script
        .at(ROBOTS, [to("http://b.test/open")])
        .at("http://b.test/open", [text("User-agent: *")]);
    let snapshot = ask(&cache(&script)).await;
    assert_eq!(snapshot.url, "http://b.test/open");
}

#[tokio::test(start_paused = true)]
async fn a_page_with_unknown_rules_is_not_fetched() {
    for reply in [status(503), status(403), Reply::Panic] {
        let script = Script::default()
            .at(ROBOTS, [to("http://b.test/x")])
            .at("http://b.test/robots.txt", [reply]);
        let snapshot = ask(&cache(&script)).await;
        assert_eq!(cause(&snapshot), Some(Cause::RedirectDisallowed));
    }
}

// Ours: two origins could wait for each other.
#[tokio::test(start_paused = true)]
async fn two_origins_that_redirect_to_each_other_do_not_deadlock() {
    let second = after(SECOND, to("http://a.test/y"));
    let script = Script::default()
        .at(ROBOTS, [after(SECOND, to("http://b.test/x"))])
        .at("http://b.test/robots.txt", [second]);
    let cache = cache(&script);
    let began = clock::instant();
    let (a, b) = tokio::join!(
        ask(&cache),
        ask_as(&cache, "http://b.test/", "ExampleBot/1.0")
    );
    assert_eq!(cause(&a), Some(Cause::RedirectDisallowed));
    assert_eq!(cause(&b), Some(Cause::RedirectDisallowed));
    assert!(clock::instant().duration_since(began) < 3 * SECOND);
    assert_eq!(script.asked().len(), 2);
}

// Ours: neither do three.
#[tokio::test(start_paused = true)]
async fn three_origins_in_a_ring_do_not_deadlock() {
    let page = |name: &str| to(format!("http://{name}.test/x").leak());
    let (b, c) = ("http://b.test/robots.txt", "http://c.test/robots.txt");
    let script = Script::default()
        .at(ROBOTS, [after(SECOND, page("b"))])
        .at(b, [after(SECOND, page("c"))])
        .at(c, [after(SECOND, page("a"))]);
    let cache = cache(&script);
    let began = clock::instant();
    let snapshots = tokio::join!(
        ask(&cache),
        ask_as(&cache, b, "ExampleBot"),
        ask_as(&cache, c, "ExampleBot")
    );
    for snapshot in [snapshots.0, snapshots.1, snapshots.2] {
        assert_eq!(cause(&snapshot), Some(Cause::RedirectDisallowed));
    }
    assert!(clock::instant().duration_since(began) < 3 * SECOND);
    assert_eq!(script.asked().len(), 3);
}

// Ours: five hops, however different they look.
#[tokio::test(start_paused = true)]
async fn a_redirect_to_itself_with_a_growing_query_ends() {
    let mut script = Script::default();
    let mut url = ROBOTS.to_owned();
    for n in 0..6 {
        let next: &str = format!("?{}", "a".repeat(n + 1)).leak();
        script = script.at(&url, [to(next)]);
        url = format!("{ROBOTS}{next}");
    }
    let snapshot = ask(&cache(&script)).await;
    assert_eq!(cause(&snapshot), Some(Cause::Redirects));
    assert_eq!(script.asked().len(), 6);
}

// Ours: a page that an old file allowed may be disallowed by now.
#[tokio::test(start_paused = true)]
async fn a_page_is_not_checked_against_rules_that_could_not_be_refreshed() {
    let rules = "http://b.test/robots.txt";
    let script = Script::default()
        .at(ROBOTS, [to("http://b.test/open")])
        .at(rules, [text("User-agent: *\nDisallow: /private")]);
    let options = Options {
        max_waiting: NonZeroUsize::new(1).unwrap(),
        ..options()
    };
    let cache = cache_with(options, &script);
    ask_as(&cache, rules, "ExampleBot").await;
    advance(24 * HOUR).await;
    let snapshot = ask(&cache).await;
    assert_eq!(cause(&snapshot), Some(Cause::Busy));
    assert_eq!(script.asked(), [rules, ROBOTS]);
}

// Ours: the same holds for pages of the origin itself.
#[tokio::test(start_paused = true)]
async fn an_old_file_decides_nothing_if_no_socket_was_left_for_a_refresh() {
    let no_socket = || UpstreamError::NoConnection(NoConnection::NoSocket).into();
    let script = Script::default().at(ROBOTS, [text("User-agent: *"), Reply::Fail(no_socket)]);
    let cache = cache(&script);
    let policy = Arc::new(options().policy);
    for is_out_of_date in [false, true] {
        let inquiry = Arc::new(inquiry("http://a.test/page", "ExampleBot"));
        let decision = decide(&inquiry, &ask(&cache).await, &policy, clock::now());
        assert_eq!(decision.evidence().is_out_of_date(), is_out_of_date);
        advance(24 * HOUR).await;
    }
}

/// Returns the policy of the options with an override that denies `path` of `origin`.
fn denying(origin: &str, path: &str) -> Policy {
    let entry = format!(
        r#"{{"origin": "{origin}", "path": "{path}", "action": "deny", "reason": "ours"}}"#
    );
    let entry: Override = serde_json::from_str(&entry).unwrap();
    options().policy.with(|terms| terms.overrides.push(entry))
}

// Ours: a page that the operator denies is not fetched for a robots.txt, either.
#[tokio::test(start_paused = true)]
async fn a_page_of_the_same_origin_that_the_operator_denies_is_not_fetched() {
    for (location, is_followed) in [("/private/rules", false), ("/open", true)] {
        let script = Script::default()
            .at(ROBOTS, [to(location)])
            .at("http://a.test/open", [text("User-agent: *")]);
        let options = Options {
            policy: denying("http://a.test", "/private"),
            ..options()
        };
        let snapshot = ask(&cache_with(options, &script)).await;
        assert_eq!(snapshot.file().is_some(), is_followed, "{location}");
        assert_eq!(script.asked().len(), 1 + usize::from(is_followed));
    }
}

// Ours: a page that is denied while its turn is waited for is not fetched, nor is one
// whose robots.txt has expired by then.
#[tokio::test(start_paused = true)]
async fn a_redirect_to_a_page_is_checked_again_when_its_turn_comes() {
    let (rules, page) = ("http://b.test/robots.txt", "http://b.test/open");
    let pause = 10 * SECOND;
    for (ttl, is_denied, expected) in [
        (HOUR, false, None),
        (HOUR, true, Some(Cause::RedirectDisallowed)),
        (pause / 2, false, Some(Cause::Busy)),
    ] {
        let script = Script::default()
            .at(ROBOTS, [to(page)])
            .at(rules, [text("User-agent: *")])
            .at(page, [text("User-agent: *")]);
        script.paced(pause, pause);
        let options = Options {
            ttl,
            ttl_min: SECOND,
            ..options()
        };
        let cache = cache_with(options, &script);
        let latest = Arc::clone(&cache.worker.sources.latest_policy);
        // The third turn is that of the page.
        let denied = tokio::spawn(async move {
            sleep(pause * 5 / 2).await;
            if is_denied {
                latest.store(Arc::new(denying("http://b.test", "/open")));
            }
        });
        let snapshot = ask(&cache).await;
        denied.await.unwrap();
        assert_eq!(cause(&snapshot), expected);
        assert_eq!(script.turns(), ["a.test", "b.test", "b.test"]);
        let asked = if expected.is_none() { 3 } else { 2 };
        assert_eq!(script.asked().len(), asked, "{ttl:?} {is_denied}");
    }
}

// Ours: waiting requests continue with the cache that they started with, whose files were
// read in its dialect.
#[tokio::test(start_paused = true)]
async fn a_new_policy_does_not_change_the_dialect_of_a_cache() {
    let script = Script::default()
        .at(ROBOTS, [to("http://b.test/open")])
        .at("http://b.test/robots.txt", [text("User-agent: *")]);
    let cache = cache(&script);
    let dialect = options().policy.terms().dialect;
    let other = denying("http://b.test", "/open").in_dialect(Dialect::Draft1996);
    assert_ne!(other.terms().dialect, dialect);
    cache.worker.sources.latest_policy.store(Arc::new(other));
    assert_eq!(cache.worker.redirect_policy().terms().dialect, dialect);
    let snapshot = ask(&cache).await;
    assert_eq!(cause(&snapshot), Some(Cause::RedirectDisallowed));
}
