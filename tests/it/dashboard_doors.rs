//! Access to the admin listener: sign-in links, foreign requests, and limits on
//! connections. Every test here is ours.

use crate::dashboard::{Browser, cookie, place_with_admin_tls, post};
use crate::kit::client::{Crawler, get, get_admin};
use crate::kit::proxy::Config;
use crate::kit::{assert_contains, assert_contains_each};

/// More connections than the listener serves at a time.
const MANY: usize = 80;

#[tokio::test]
async fn unfinished_bodies_and_handshakes_are_closed_to_make_room() {
    let proxy = place_with_admin_tls().start().await;
    let admin = proxy.admin();
    let head = format!("POST /login HTTP/1.1\r\nHost: {admin}\r\nContent-Length: 16000\r\n\r\nto");
    for begin in [head.as_bytes(), &[0x16, 3, 1]] {
        let mut waiting = Vec::new();
        for _ in 0..MANY {
            let mut client = Crawler::to(admin).await;
            client.send(begin).await;
            waiting.push(client);
        }
        let health = get_admin(admin, "/healthz", &[]).await;
        assert_eq!(health.status(), 200, "{begin:?}");
        // The descriptor is freed at once, not only at the timeout.
        assert!(waiting[0].closes().await, "{begin:?}");
    }
}

#[tokio::test]
async fn a_link_from_another_site_opens_the_linked_view() {
    let browser = Browser::new(Config::default().set("admin.base_path = \"/polite\"")).await;
    let linked = [
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Mode: navigate",
        "Sec-Fetch-Dest: document",
    ];
    // Browsers send no `SameSite=Strict` cookie with a cross-site navigation.
    let path = "/polite/decisions?host=o.test&verdict=disallow";
    let admin = browser.proxy.admin();
    let ask = async |path: &str, fields: &[&str]| get_admin(admin, path, fields).await;
    let reply = ask(path, &linked).await;
    assert_eq!(reply.status(), 200);
    let way = "/polite/decisions?host=o.test&amp;verdict=disallow";
    let page = reply.text();
    let wanted = [format!("0; url={way}"), format!("href=\"{way}\"")];
    assert_contains_each(&page, &wanted);
    assert!(!page.contains("private"), "{page}");
    // The redirect page repeats the request from our own site, with the cookie.
    let own = ["Sec-Fetch-Site: same-origin", &browser.cookie];
    let reply = ask(path, &own).await;
    assert_contains(&reply.text(), "/private/2");
    let reply = ask(path, &own[..1]).await;
    assert_eq!(reply.status(), 303);
    let login = "/polite/login?to=%2Fdecisions";
    assert_eq!(ask(login, &linked).await.status(), 200);
    // Frames and scripts are not redirected to the view.
    let framed = [linked[0], linked[1], "Sec-Fetch-Dest: iframe"];
    assert_eq!(ask(path, &framed).await.status(), 303);
    let page = ask("/polite//evil.test/", &linked).await.text();
    assert!(!page.contains("evil.test"), "{page}");
}

// Ours: docs/decisions/018-one-admin-token.md.
#[tokio::test]
async fn a_sign_in_link_works_once_and_only_by_its_button() {
    let proxy = Config::default().start().await;
    let (admin, banner) = (proxy.admin(), proxy.banner().join("\n"));
    let mark = "to sign in, once and within ten minutes: ";
    let (_, link) = banner.split_once(mark).unwrap();
    let link = link.lines().next().unwrap();
    let path = link.strip_prefix(&format!("http://{admin}")).unwrap();
    let (_, code) = path.split_once("once=").unwrap();
    // Chat programs fetch links for a preview; a GET must not use up the code.
    for _ in 0..2 {
        let page = get_admin(admin, path, &[]).await;
        assert_eq!(page.status(), 200);
        assert!(page.head.values("set-cookie").is_empty());
        let field = format!("name=\"once\" value=\"{code}\"");
        assert_contains(&page.text(), &field);
    }
    let (form, own) = (format!("once={code}"), format!("Origin: http://{admin}"));
    let foreign = ["Origin: http://evil.test"];
    assert_eq!(post(admin, "/login", &foreign, &form).await.status(), 403);
    let signed_in = post(admin, "/login", &[&own], &form).await;
    assert_eq!(signed_in.status(), 303);
    let page = get_admin(admin, "/decisions", &[&cookie(&signed_in)]).await;
    assert_eq!(page.status(), 200);
    let again = post(admin, "/login", &[&own], &form).await;
    assert_eq!(again.status(), 403);
    assert_contains(&again.text(), "was used before");
    // The command prints another link, which can lead to a decision: docs/dashboard.md,
    // Signing in.
    let refusal = get(&proxy, "http://10.0.0.1/").await.json();
    let seq = refusal["decision"].as_str().unwrap();
    let story = format!("/decisions/{seq}");
    for (command, to) in [(&["dashboard"][..], "/"), (&["dashboard", seq], &story)] {
        let link = proxy.place().run_ok(command).await.stdout;
        let form = link.trim().strip_prefix(&format!("http://{admin}/login?"));
        let signed_in = post(admin, "/login", &[&own], form.unwrap()).await;
        let found = (signed_in.status(), signed_in.head.value("location"));
        assert_eq!(found, (303, to));
    }
}

#[tokio::test]
async fn a_refused_form_names_the_reason() {
    let browser = Browser::new(Config::default()).await;
    let admin = browser.proxy.admin();
    let token = browser.form_token().await;
    let form = format!("form_token={token}&host=o.test&reason=a");
    let foreign = [&*browser.cookie, "Origin: http://evil.test"];
    let reply = post(admin, "/queues", &foreign, &form).await;
    assert_eq!(reply.status(), 403);
    let named = ["(Origin: http://evil.test)", &format!("http://{admin}")];
    assert_contains_each(&reply.text(), &named);
    let own = format!("Origin: http://{admin}");
    let long = format!("{form}&robots={}", "a".repeat(3 << 20));
    let reply = post(admin, "/test", &[&browser.cookie, &own], &long).await;
    assert_eq!(reply.status(), 413);
    assert!(reply.text().contains("bytes at most"));
    // Without a session a browser is redirected to the login page; a 401 would open
    // its built-in password prompt.
    let reply = post(admin, "/queues", &[&own], &form).await;
    let found = (reply.status(), reply.head.value("location"));
    assert_eq!(found, (303, "/login?to=%2F"));
    // A client that sends `Authorization` is no browser and gets 401.
    let wrong = [&*own, "Authorization: Bearer no"];
    assert_eq!(post(admin, "/queues", &wrong, &form).await.status(), 401);
}

#[tokio::test]
async fn an_unknown_path_gets_404_or_405_with_an_explanation() {
    let browser = Browser::new(Config::default().set("admin.base_path = \"/polite\"")).await;
    let text = "there is no such page; begin at /\n";
    let admin = browser.proxy.admin();
    let reply = get_admin(admin, "/nothing", &[]).await;
    assert_eq!((reply.status(), &*reply.text()), (404, text));
    let reply = browser.get("/api/v1/nothing").await;
    assert_eq!((reply.status(), &*reply.text()), (404, text));
    // A signed-in browser gets an error page with the menu.
    let host = "/hosts?host=never.test";
    for (path, why) in [
        ("/nothing", "There is no such page."),
        ("/decisions/99999", "no decision with this number"),
        (host, "There is no record of never.test."),
    ] {
        let reply = browser.get(path).await;
        assert_eq!(reply.status(), 404, "{path}");
        assert_contains_each(&reply.text(), &[why, "href=\"/polite/decisions\""]);
    }
    let reply = browser.get("/logout").await;
    let text = "this method is not for this page\n";
    assert_eq!((reply.status(), &*reply.text()), (405, text));
    // The host of an absolute target is checked below the base path, too.
    let foreign = "http://evil.test/polite/healthz";
    assert_eq!(get_admin(admin, foreign, &[]).await.status(), 421);
}
