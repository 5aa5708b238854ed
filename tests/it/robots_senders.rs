//! Bot walls that block some clients from robots.txt: the answer to one client allows
//! nothing to another. The rules are ours; see docs/robots.md.

use serde_json::json;

use crate::kit::assert_members;
use crate::kit::client::{Reply, assert_metric, get_from, reload};
use crate::kit::origin::{Origin, Script};
use crate::kit::page::Page;
use crate::kit::proxy::{Config, Proxy, resolve};

const ROBOTS: &str = "User-agent: GoodBot\nDisallow: /p\n";

/// Returns an origin that answers `status` to any `User-Agent` with "evil" in it.
async fn walled(status: u16) -> Origin {
    let wall = Page::text("no").with_status(status);
    let script = Script::robots(ROBOTS).robots_for("evil", wall);
    script.start().await
}

fn config(origin: &Origin) -> Config {
    resolve("o.test", origin.address())
}

/// Requests the page that robots.txt disallows to GoodBot.
async fn get_disallowed(proxy: &Proxy, last: u8, agent: &str) -> Reply {
    get_from(proxy, last, "http://o.test/p", agent).await
}

/// Requests the page that robots.txt disallows to GoodBot, and asserts that its rule
/// refuses it.
async fn assert_rule(proxy: &Proxy, last: u8, agent: &str) {
    let reply = get_disallowed(proxy, last, agent).await;
    assert_eq!(reply.status(), 403, "{agent}: {}", reply.text());
    assert_eq!(reply.json()["reason"], "rule", "{agent}");
}

/// Requests the page, and asserts that it is forwarded.
async fn assert_open(proxy: &Proxy, last: u8, agent: &str) {
    let reply = get_disallowed(proxy, last, agent).await;
    assert_eq!(reply.status(), 200, "{agent}: {}", reply.text());
}

// RFC 9309, section 2.3.1.3: a 4xx allows everything to the client that got it.
#[tokio::test]
async fn a_bot_wall_for_one_client_allows_no_page_to_another() {
    for status in [400, 401, 403, 404, 410, 451] {
        let origin = walled(status).await;
        let proxy = config(&origin).start().await;
        assert_open(&proxy, 2, "GoodBot/1 evil").await;
        assert_eq!(origin.targets(), ["/p"]);
        let rows = proxy.place().completed(1).await;
        let expected = json!({"verdict": "allow", "reason": "unavailable"});
        assert_members(&rows[0], &expected);
        assert_rule(&proxy, 3, "GoodBot/1").await;
        // Once fetched, the file also applies to the client that the wall blocks.
        assert_rule(&proxy, 4, "GoodBot/2").await;
        assert_rule(&proxy, 2, "GoodBot/1 evil").await;
        assert_eq!((origin.robots_fetches(), origin.targets().len()), (2, 1));
        proxy.stop().await.assert_verified().await;
    }
}

#[tokio::test]
async fn after_a_restart_a_bot_wall_allows_no_page_to_another_client() {
    let origin = walled(403).await;
    let proxy = config(&origin).start().await;
    assert_open(&proxy, 2, "GoodBot/1 evil").await;
    let proxy = proxy.stop().await.start().await;
    // The answer of the wall is kept over the restart.
    assert_open(&proxy, 3, "GoodBot/1 evil").await;
    assert_eq!(origin.robots_fetches(), 1);
    assert_rule(&proxy, 3, "GoodBot/1").await;
    let proxy = proxy.stop().await.start().await;
    assert_rule(&proxy, 2, "GoodBot/1 evil").await;
    assert_eq!(origin.robots_fetches(), 2);
}

#[tokio::test]
async fn crawler_entries_with_one_token_do_not_share_a_robots_txt() {
    let open = Page::text("User-agent: *\nAllow: /\n");
    let script = Script::robots(ROBOTS).robots_for("theirs", open);
    let origin = script.start().await;
    let table = "crawler = [{ token = \"GoodBot\", user_agent = \"theirs\" }, \
                     { token = \"GoodBot\", client = [\"127.0.0.3\"] }]";
    let proxy = config(&origin).set(table).start().await;
    assert_open(&proxy, 2, "theirs/1").await;
    assert_rule(&proxy, 3, "ours/1").await;
    assert_rule(&proxy, 3, "GoodBot/1").await;
    assert_eq!(origin.robots_fetches(), 2);
}

#[tokio::test]
async fn reordering_crawler_entries_fetches_no_robots_txt_again() {
    let origin = Script::robots(ROBOTS).start().await;
    let ours = "{ token = \"GoodBot\", client = [\"127.0.0.3\"] }";
    let other = "{ token = \"OtherBot\", user_agent = \"other\" }";
    let table = |first, second| format!("crawler = [{first}, {second}]");
    let proxy = config(&origin).set(&table(ours, other)).start().await;
    assert_rule(&proxy, 3, "GoodBot/1").await;
    let reordered = config(&origin).set(&table(other, ours));
    proxy.place().configure(&reordered);
    reload(&proxy).await;
    assert_rule(&proxy, 3, "GoodBot/1").await;
    assert_eq!(origin.robots_fetches(), 1);
}

#[tokio::test]
async fn a_site_without_robots_txt_is_asked_for_at_most_eight_user_agents_of_a_client() {
    let missing = Page::text("no").with_status(404);
    let refused = Page::text("no").with_status(403);
    let script = Script::robots_page(missing).robots_for("GoodBot/4", refused);
    let origin = script.start().await;
    let refusing = "robots.status.unauthorized = \"refuse\"";
    let proxy = config(&origin).set(refusing).start().await;
    for number in 0..8 {
        let reply = get_disallowed(&proxy, 2, &format!("GoodBot/{number}")).await;
        let status = if number == 4 { 403 } else { 200 };
        assert_eq!(reply.status(), status, "{number}");
    }
    assert_eq!(origin.robots_fetches(), 8);
    // The strictest of the eight answers counts for all that follow.
    for number in 8..12 {
        let reply = get_disallowed(&proxy, 2, &format!("GoodBot/{number}")).await;
        assert_eq!(reply.json()["reason"], "restricted");
    }
    assert_open(&proxy, 2, "GoodBot/0").await;
    assert_eq!(origin.robots_fetches(), 8);
    assert_metric(&proxy, "politesse_robots_max_senders_total 4\n").await;
    // The limit counts per client.
    assert_open(&proxy, 3, "GoodBot/12").await;
    assert_eq!(origin.robots_fetches(), 9);
    proxy.stop().await.assert_verified().await;
}
