//! Robots.txt files of paced origins: they take turns like pages.

use crate::kit::client::get;
use crate::kit::origin::Script;
use crate::kit::page::Page;
use crate::kit::{proxy::resolve, run};

/// An origin whose robots.txt is elsewhere, and asks for two seconds.
fn elsewhere() -> Script {
    let rules = Page::text("User-agent: *\nCrawl-delay: 2\n");
    Script::robots_page(Page::redirect("/rules")).page("/rules", rules)
}

// Issue 6, Deliver 1: robots.txt fetches take turns. A pause that is longer than
// `robots.timeout` does not make the page unreachable that a redirect leads to.
#[test]
fn a_pause_before_a_redirected_robots_txt_is_no_time_out() {
    run(async {
        let origin = elsewhere().start().await;
        let proxy = resolve("o.test", origin.address())
            .set("robots.timeout = \"1s\"")
            .set("robots.ttl = \"3s\"")
            .set("robots.ttl_min = \"1s\"")
            .start()
            .await;
        for page in 0..5 {
            let reply = get(&proxy, &format!("http://o.test/{page}")).await;
            assert_eq!(reply.status(), 200, "{page}: {}", reply.text());
        }
        let log = origin.log();
        let count = |target: &str| log.iter().filter(|seen| seen.target == target).count();
        assert!(2 <= count("/rules"), "{log:?}");
        assert!(count("/robots.txt") <= count("/rules") + 1, "{log:?}");
    });
}
