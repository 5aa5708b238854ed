//! Redirects of a robots.txt as evidence in the record (RFC 9309, section 2.3.1.2).

use serde_json::json;

use crate::kit::assert_members;
use crate::kit::client::{assert_statuses, get};
use crate::kit::origin::Script;
use crate::kit::page::Page;
use crate::kit::proxy::resolve;
use crate::kit::raw_origin::{Bytes, RawOrigin};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

// Ours: the rules apply to the origin that was asked. Each hop is recorded, and kept over a
// restart with its robots.txt.
#[tokio::test]
async fn the_record_and_the_403_list_each_redirect_of_a_robots_txt() {
    let second = Script::robots(ROBOTS).start().await;
    let first = Script::robots_page(Page::redirect("/moved?a=1"))
        .page("/moved?a=1", Page::redirect("http://p.test/robots.txt"))
        .start()
        .await;
    let config = resolve("o.test", first.address()).resolve("p.test", second.address());
    let proxy = config.start().await;
    let expected = json!({
        "url": "http://p.test/robots.txt",
        "hops": ["http://o.test/robots.txt", "http://o.test/moved?a=1"],
    });
    let refused = get(&proxy, "http://o.test/private").await;
    refused.assert_error(403, "http_request_denied");
    assert_members(&refused.json()["robots"], &expected);
    let others = [("http://o.test/open", 200), ("http://p.test/private", 403)];
    assert_statuses(&proxy, &others).await;
    let rows = proxy.place().completed(3).await;
    for row in &rows[..2] {
        assert_members(&row["robots"], &expected);
    }
    assert!(rows[2]["robots"].get("hops").is_none(), "{}", rows[2]);
    proxy.place().assert_verified().await;
    let again = proxy.stop().await.start().await;
    let refused = get(&again, "http://o.test/private").await.json();
    assert_members(&refused["robots"], &expected);
    assert_eq!(first.robots_fetches(), 1);
    assert_eq!(first.targets(), ["/moved?a=1", "/open"]);
    second.assert_only_robots_fetched();
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
        _ if target.contains("bots.txt") => Bytes::text(ROBOTS),
        _ => Bytes::text("a page"),
    })
    .await;
    let proxy = resolve("o.test", origin.address()).start().await;
    let expected = [("http://o.test/private", 403), ("http://o.test/a", 200)];
    assert_statuses(&proxy, &expected).await;
}
