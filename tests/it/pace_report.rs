//! Pace in report mode, which forwards disallowed requests.

use std::sync::Arc;

use crate::kit::client::get;
use crate::kit::origin::Script;
use crate::kit::paced::{
    all, asking_for_less, assert_apart, assert_later, column, ms, pages, standard, statuses,
    verified,
};

// Ours: disallowed requests are forwarded, but no faster than others.
#[tokio::test]
async fn disallowed_requests_take_turns_in_report_mode() {
    let robots = "User-agent: *\nDisallow: /private\nCrawl-delay: 0.4\n";
    let origin = Script::robots(robots).start().await;
    let config = standard(&origin).set("enforcement.mode = \"report\"");
    let proxy = Arc::new(config.start().await);
    let paths = ["/private/1", "/2", "/private/3", "/4"];
    let urls = paths.map(|path| format!("http://o.test{path}"));
    assert_eq!(statuses(&all(&proxy, &urls).await), [200; 4]);
    assert_apart(&pages(&[&origin]), 4, ms(400));
    let (_place, rows) = verified(proxy, 4).await;
    let reported = rows.iter().filter(|row| row["effect"] == "reported");
    assert_eq!(reported.count(), 2, "{rows:?}");
    let waits = rows.iter().filter(|row| row["wait_ms"] != 0);
    assert_eq!(waits.count(), 3, "{rows:?}");
}

// Ours: every mode puts requests off during a back-off.
#[tokio::test]
async fn a_host_is_backed_off_in_report_mode_too() {
    let origin = Script::robots("User-agent: *\nDisallow: /private\n")
        .page("/private/1", asking_for_less(503, Some("300")))
        .start()
        .await;
    let config = standard(&origin).set("enforcement.mode = \"report\"");
    let proxy = Arc::new(config.start().await);
    assert_eq!(get(&proxy, "http://o.test/private/1").await.status(), 503);
    for path in ["/private/2", "/3"] {
        let reply = get(&proxy, &format!("http://o.test{path}")).await;
        let seconds = assert_later(&reply, "backoff");
        assert!((290..=300).contains(&seconds), "{seconds}");
    }
    assert_eq!(origin.targets(), ["/private/1"]);
    let (_place, rows) = verified(proxy, 3).await;
    assert_eq!(column(&rows, "verdict"), ["disallow", "later", "later"]);
    assert_eq!(
        column(&rows, "effect"),
        ["reported", "enforced", "enforced"]
    );
}
