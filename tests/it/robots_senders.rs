//! A robots.txt that a bot wall keeps from some: what one client is answered
//! loosens nothing for another. All ours; docs/robots.md.

use crate::kit::client::{Reply, get_from, metrics, reload};
use crate::kit::origin::{Origin, Script};
use crate::kit::page::Page;
use crate::kit::proxy::{Config, Proxy, resolve};

const ROBOTS: &str = "User-agent: GoodBot\nDisallow: /p\n";

/// Returns an origin that answers `status` to any `User-Agent` with "evil" in it.
async fn walled(status: u16) -> Origin {
    let wall = Page::text("no").with_status(status);
    Script::robots(ROBOTS)
        .robots_for("evil", wall)
        .start()
        .await
}

fn config(origin: &Origin) -> Config {
    resolve("o.test", origin.address())
}

/// Asks for the page that robots.txt closes.
async fn closed(proxy: &Proxy, last: u8, agent: &str) -> Reply {
    get_from(proxy, last, "http://o.test/p", agent).await
}

fn assert_rule(reply: &Reply) {
    assert_eq!(reply.status(), 403, "{}", reply.text());
    assert_eq!(reply.json()["reason"], "rule");
}

#[tokio::test]
async fn a_bot_wall_that_one_client_meets_opens_no_page_to_another() {
    for status in [401, 403, 404, 410] {
        let origin = walled(status).await;
        let proxy = config(&origin).start().await;
        assert_eq!(closed(&proxy, 2, "GoodBot/1 evil").await.status(), 200);
        assert_eq!(origin.targets(), ["/p"]);
        assert_rule(&closed(&proxy, 3, "GoodBot/1").await);
        // A file is shared, with the client that met the wall, too.
        assert_rule(&closed(&proxy, 4, "GoodBot/2").await);
        assert_rule(&closed(&proxy, 2, "GoodBot/1 evil").await);
        assert_eq!((origin.robots_fetches(), origin.targets().len()), (2, 1));
        let outcome = proxy.stop().await.run(&["audit", "verify"]).await;
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_bot_wall_that_one_client_meets_closes_no_page_to_another() {
    let origin = walled(500).await;
    let proxy = config(&origin).start().await;
    let refused = closed(&proxy, 2, "GoodBot/1 evil").await;
    assert_eq!(refused.json()["reason"], "unreachable");
    let reply = get_from(&proxy, 3, "http://o.test/a", "GoodBot/1").await;
    assert_eq!(reply.status(), 200, "{}", reply.text());
}

#[tokio::test]
async fn requests_that_come_at_once_are_each_answered_by_their_own() {
    let origin = walled(403).await;
    let proxy = config(&origin).start().await;
    let (evil, good) = tokio::join!(
        closed(&proxy, 2, "GoodBot/1 evil"),
        closed(&proxy, 3, "GoodBot/1"),
    );
    assert_rule(&good);
    // By its own answer, or by the file if that came first.
    assert!(matches!(evil.status(), 200 | 403));
    assert!(origin.robots_fetches() <= 2);
}

#[tokio::test]
async fn many_clients_at_once_find_a_site_without_a_file_open() {
    let origin = Script::robots_page(Page::status(404)).start().await;
    let proxy = config(&origin)
        .set("pace.profile = \"owned\"")
        .start()
        .await;
    let ask = |last: u8| {
        let proxy = &proxy;
        async move {
            let agent = format!("GoodBot/1.{last}");
            let reply = get_from(proxy, last, "http://o.test/a", &agent).await;
            assert_eq!(reply.status(), 200, "{}", reply.text());
        }
    };
    tokio::join!(
        ask(2),
        ask(3),
        ask(4),
        ask(5),
        ask(6),
        ask(7),
        ask(8),
        ask(9)
    );
}

#[tokio::test]
async fn a_restart_opens_no_page_to_another_client() {
    let origin = walled(403).await;
    let proxy = config(&origin).start().await;
    assert_eq!(closed(&proxy, 2, "GoodBot/1 evil").await.status(), 200);
    let proxy = proxy.stop().await.start().await;
    // What is known of the wall is known still.
    assert_eq!(closed(&proxy, 3, "GoodBot/1 evil").await.status(), 200);
    assert_eq!(origin.robots_fetches(), 1);
    assert_rule(&closed(&proxy, 3, "GoodBot/1").await);
    let proxy = proxy.stop().await.start().await;
    assert_rule(&closed(&proxy, 2, "GoodBot/1 evil").await);
    assert_eq!(origin.robots_fetches(), 2);
}

#[tokio::test]
async fn entries_of_the_table_do_not_share_a_file() {
    let open = Page::text("User-agent: *\nAllow: /\n");
    let script = Script::robots(ROBOTS).robots_for("theirs", open);
    let origin = script.start().await;
    let table = "crawler = [{ token = \"GoodBot\", user_agent = \"theirs\" }, \
                     { token = \"GoodBot\", client = [\"127.0.0.3\"] }]";
    let proxy = config(&origin).set(table).start().await;
    assert_eq!(closed(&proxy, 2, "theirs/1").await.status(), 200);
    assert_rule(&closed(&proxy, 3, "ours/1").await);
    assert_rule(&closed(&proxy, 3, "GoodBot/1").await);
    assert_eq!(origin.robots_fetches(), 2);
}

#[tokio::test]
async fn a_reload_that_puts_entries_in_another_order_fetches_nothing() {
    let origin = Script::robots(ROBOTS).start().await;
    let ours = "{ token = \"GoodBot\", client = [\"127.0.0.3\"] }";
    let other = "{ token = \"OtherBot\", user_agent = \"other\" }";
    let table = |first, second| format!("crawler = [{first}, {second}]");
    let proxy = config(&origin).set(&table(ours, other)).start().await;
    assert_rule(&closed(&proxy, 3, "GoodBot/1").await);
    let reordered = config(&origin).set(&table(other, ours));
    proxy.place().configure(&reordered);
    reload(&proxy).await;
    assert_rule(&closed(&proxy, 3, "GoodBot/1").await);
    assert_eq!(origin.robots_fetches(), 1);
}

#[tokio::test]
async fn a_site_without_a_file_is_asked_for_eight_user_agents_of_a_client_in_an_hour() {
    let missing = Page::text("no").with_status(404);
    let refused = Page::text("no").with_status(403);
    let script = Script::robots_page(missing).robots_for("GoodBot/4", refused);
    let origin = script.start().await;
    let refusing = "robots.status.unauthorized = \"refuse\"";
    let proxy = config(&origin).set(refusing).start().await;
    for number in 0..8 {
        let status = closed(&proxy, 2, &format!("GoodBot/{number}"))
            .await
            .status();
        assert_eq!(status, if number == 4 { 403 } else { 200 }, "{number}");
    }
    assert_eq!(origin.robots_fetches(), 8);
    // The strictest of the eight answers counts for all that follow.
    for number in 8..12 {
        let reply = closed(&proxy, 2, &format!("GoodBot/{number}")).await;
        assert_eq!(reply.json()["reason"], "restricted");
    }
    assert_eq!(closed(&proxy, 2, "GoodBot/0").await.status(), 200);
    assert_eq!(origin.robots_fetches(), 8);
    let text = metrics(&proxy).await;
    assert!(
        text.contains("politesse_robots_max_senders_total 4\n"),
        "{text}"
    );
    // No client uses up those of another.
    assert_eq!(closed(&proxy, 3, "GoodBot/12").await.status(), 200);
    assert_eq!(origin.robots_fetches(), 9);
    let outcome = proxy.stop().await.run(&["audit", "verify"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[tokio::test]
async fn with_a_fixed_user_agent_an_answer_belongs_to_the_origin() {
    let origin = walled(403).await;
    let fixed = "robots.user_agent = \"Ours/1.0 evil\"";
    let proxy = config(&origin).set(fixed).start().await;
    assert_eq!(closed(&proxy, 2, "GoodBot/1").await.status(), 200);
    assert_eq!(closed(&proxy, 3, "Other/1").await.status(), 200);
    assert_eq!(origin.robots_fetches(), 1);
}
