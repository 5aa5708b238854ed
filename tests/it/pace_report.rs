//! Pace in report mode, which forwards disallowed requests.

use std::sync::Arc;

use crate::kit::client::get;
use crate::kit::origin::Script;
use crate::kit::paced::{
    all, asking_for_less, assert_apart, assert_later, column, ms, pages, standard, statuses,
    verified,
};

// Ours: disallowed requests are forwarded, but no faster than others, and every mode puts
// requests off during a back-off.
#[tokio::test]
async fn turns_and_back_offs_apply_to_disallowed_requests_in_report_mode() {
    let robots = "User-agent: *\nDisallow: /private\nCrawl-delay: 0.4\n";
    let origin = Script::robots(robots)
        .page("/private/5", asking_for_less(503, Some("300")))
        .start()
        .await;
    let config = standard(&origin).set("enforcement.mode = \"report\"");
    let proxy = Arc::new(config.start().await);
    let paths = ["/private/1", "/2", "/private/3", "/4"];
    let urls = paths.map(|path| format!("http://o.test{path}"));
    assert_eq!(statuses(&all(&proxy, &urls).await), [200; 4]);
    assert_eq!(get(&proxy, "http://o.test/private/5").await.status(), 503);
    for path in ["/private/6", "/7"] {
        let reply = get(&proxy, &format!("http://o.test{path}")).await;
        let seconds = assert_later(&reply, "backoff");
        assert!((290..=300).contains(&seconds), "{path}: {seconds}");
    }
    assert_apart(&pages(&[&origin]), 5, ms(400));
    let (_place, rows) = verified(proxy, 7).await;
    let (first, last) = rows.split_at(4);
    let reported = first.iter().filter(|row| row["effect"] == "reported");
    assert_eq!(reported.count(), 2, "{rows:?}");
    let waits = first.iter().filter(|row| row["wait_ms"] != 0);
    assert_eq!(waits.count(), 3, "{rows:?}");
    assert_eq!(column(last, "verdict"), ["disallow", "later", "later"]);
    let effects = ["reported", "enforced", "enforced"];
    assert_eq!(column(last, "effect"), effects);
}
