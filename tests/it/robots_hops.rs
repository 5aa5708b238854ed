//! Redirects of a robots.txt as evidence in the record (RFC 9309, section 2.3.1.2).

use serde_json::{Value, json};

use crate::kit::assert_members;
use crate::kit::client::get;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::page::Page;
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::raw_origin::{Bytes, RawOrigin};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

/// Starts `o.test`, whose robots.txt leads through two redirects to that of `p.test`, and
/// a proxy for both.
async fn moved_twice() -> (Origin, Origin, Proxy) {
    let second = Script::robots(ROBOTS).start().await;
    let first = Script::robots_page(Page::redirect("/moved?a=1"))
        .page("/moved?a=1", Page::redirect("http://p.test/robots.txt"))
        .start()
        .await;
    let config = resolve("o.test", first.address()).resolve("p.test", second.address());
    let proxy = config.start().await;
    (first, second, proxy)
}

/// Returns the two URLs that redirected on the way to the robots.txt for `o.test`.
fn hops_of_two() -> Value {
    json!(["http://o.test/robots.txt", "http://o.test/moved?a=1"])
}

// Ours: each hop is recorded.
#[tokio::test]
async fn the_record_and_the_403_list_each_redirect_of_a_robots_txt() {
    let (_first, _second, proxy) = moved_twice().await;
    let refused = get(&proxy, "http://o.test/private").await;
    refused.assert_error(403, "http_request_denied");
    get(&proxy, "http://o.test/open").await;
    get(&proxy, "http://p.test/private").await;
    let told = refused.json();
    assert_eq!(told["robots"]["url"], "http://p.test/robots.txt");
    assert_eq!(told["robots"]["hops"], hops_of_two());
    let rows = proxy.place().completed(3).await;
    for row in &rows[..2] {
        assert_eq!(row["robots"]["url"], "http://p.test/robots.txt");
        assert_eq!(row["robots"]["hops"], hops_of_two());
    }
    assert!(rows[2]["robots"].get("hops").is_none(), "{}", rows[2]);
    proxy.place().assert_verified().await;
}

// Ours: the hops of a loop, which ends without rules, are recorded as well.
#[tokio::test]
async fn a_redirect_loop_is_recorded_hop_by_hop() {
    let (_origin, proxy) = site(
        Script::robots_page(Page::redirect("/1"))
            .page("/1", Page::redirect("/2"))
            .page("/2", Page::redirect("/1")),
        &[],
    )
    .await;
    let refused = get(&proxy, "http://o.test/a").await.json();
    let rows = proxy.place().completed(1).await;
    for (told, reason) in [
        (&refused["robots"], &refused["reason"]),
        (&rows[0]["robots"], &rows[0]["reason"]),
    ] {
        assert_eq!(reason, "unreachable");
        assert_members(told, &json!({"url": "http://o.test/2", "status": 302}));
        let hops = ["http://o.test/robots.txt", "http://o.test/1"];
        assert_eq!(told["hops"], json!(hops));
    }
}

// Ours: hops are evidence, so their digest is checked.
#[tokio::test]
async fn verify_finds_changed_hops() {
    for change in ["hops = NULL", "hops = replace(hops, 'moved', 'open')"] {
        let (_first, _second, proxy) = moved_twice().await;
        get(&proxy, "http://o.test/open").await;
        let place = proxy.stop().await;
        let sql = format!("UPDATE snapshot SET {change}");
        assert_eq!(place.database().execute(&sql, []).unwrap(), 1);
        let outcome = place.run_code(1, &["audit", "verify"]).await;
        assert!(outcome.stdout.contains("\n3: "), "{outcome:?}");
    }
}

// Ours: the copy kept on disk has them, too.
#[tokio::test]
async fn hops_survive_a_restart() {
    let (first, _second, proxy) = moved_twice().await;
    get(&proxy, "http://o.test/open").await;
    let again = proxy.stop().await.start().await;
    let refused = get(&again, "http://o.test/private").await.json();
    assert_eq!(refused["robots"]["hops"], hops_of_two());
    assert_eq!(first.robots_fetches(), 1);
}

// Ours: some sites send a path in raw UTF-8, although RFC 3986, section 2.1, requires
// escapes.
#[tokio::test]
async fn a_location_in_raw_utf8_is_followed() {
    let origin = RawOrigin::start(|target| match target {
        "/robots.txt" => Bytes::of(
            "HTTP/1.1 301 Moved\r\nLocation: /r\u{f6}bots.txt\r\nContent-Length: 0\r\n\r\n"
                .as_bytes(),
        ),
        _ if target.contains("bots.txt") => Bytes::text("User-agent: *\nDisallow: /private\n"),
        _ => Bytes::text("a page"),
    })
    .await;
    let proxy = resolve("o.test", origin.address()).start().await;
    assert_eq!(get(&proxy, "http://o.test/private").await.status(), 403);
    assert_eq!(get(&proxy, "http://o.test/a").await.status(), 200);
}
