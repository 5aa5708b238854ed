//! Back-offs that an operator ends early, by command or in the dashboard.

use crate::dashboard::{Browser, post};
use crate::kit::client::get;
use crate::kit::origin::Script;
use crate::kit::paced::{asking_for_less, assert_later, standard, standard_site, verified};
use crate::kit::proxy::Place;

// Ours: the record says who ended the back-off and why.
#[tokio::test]
async fn pace_release_ends_a_back_off_and_is_on_record() {
    let page = asking_for_less(429, Some("86400"));
    let (_origin, proxy) = standard_site(Script::robots("").page("/bad", page)).await;
    let release = async |host: &str| {
        let arguments = ["pace", "release", host, "--reason=asked its owner"];
        proxy.run_admin(&arguments).await
    };
    let none = release("o.test").await.assert_code(1);
    assert!(none.stderr.contains("o.test has no back-off"), "{none:?}");
    assert_eq!(get(&proxy, "http://o.test/bad").await.status(), 429);
    assert_later(&get(&proxy, "http://o.test/1").await, "backoff");
    release("O.test").await.assert_code(0);
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 200);
    let (place, _) = verified(proxy, 3).await;
    let events = place.run(&["audit", "events"]).await;
    let line = "backoff_released o.test  by admin token from 127.0.0.1: asked its owner\n";
    assert!(events.stdout.contains(line), "{events:?}");
}

// Ours: the dashboard's button sends the same order as `pace release`.
#[tokio::test]
async fn the_dashboard_ends_a_back_off() {
    let page = asking_for_less(429, Some("86400"));
    let origin = Script::robots("").page("/bad", page).start().await;
    let browser = Browser::idle(Place::with(&standard(&origin))).await;
    let proxy = &browser.proxy;
    let (admin, own) = (proxy.admin(), format!("Origin: http://{}", proxy.admin()));
    assert_eq!(get(proxy, "http://o.test/bad").await.status(), 429);
    let page = browser.get("/queues").await.text();
    assert!(page.contains("End the back-off"), "{page}");
    let token = browser.form_token().await;
    let order = async |token: &str, host: &str, reason: &str| {
        let form = format!("form_token={token}&host={host}&reason={reason}");
        post(admin, "/queues", &[&own, &browser.cookie], &form).await
    };
    for (token, host, reason, status, text) in [
        ("0", "o.test", "a+reason", 403, ""),
        (&*token, "o.test", "+", 400, "a reason is wanted"),
        (&token, "o.test:80", "a+reason", 400, "a host is wanted"),
        (&token, "p.test", "a+reason", 404, "p.test has no back-off"),
    ] {
        let refused = order(token, host, reason).await;
        assert_eq!(refused.status(), status, "{host} {reason}");
        assert!(refused.text().contains(text), "{}", refused.text());
    }
    assert_later(&get(proxy, "http://o.test/1").await, "backoff");
    let done = order(&token, "O.test", "asked+its+%3Cowner%3E").await;
    assert_eq!(done.status(), 200);
    assert!(done.text().contains("The back-off of"), "{}", done.text());
    assert_eq!(get(proxy, "http://o.test/1").await.status(), 200);
    let events = proxy.place().run(&["audit", "events"]).await;
    let line = "backoff_released o.test  by admin token from 127.0.0.1: asked its <owner>\n";
    assert!(events.stdout.contains(line), "{events:?}");
    let page = browser.get("/hosts?host=o.test").await.text();
    for told in ["admin token from 127.0.0.1", "asked its &lt;owner&gt;"] {
        assert!(page.contains(told), "{told}: {page}");
    }
}
