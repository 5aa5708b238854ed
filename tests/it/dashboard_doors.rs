//! Access to the admin listener: sign-in links, foreign requests, and limits on
//! connections. Every test here is ours.

use crate::dashboard::{Browser, place_with_admin_tls, post};
use crate::kit::client::{Crawler, Reply, get, get_admin};
use crate::kit::origin::{Script, site};
use crate::kit::proxy::{Config, Proxy};
use crate::kit::soon;

/// More connections than the listener serves at a time.
const MANY: usize = 80;

async fn ask(browser: &Browser, line: &str, fields: &[&str]) -> Reply {
    let admin = browser.proxy.admin();
    let host = format!("Host: {admin}");
    let lines = [&[line, &*host][..], fields].concat();
    Crawler::to(admin).await.ask(&lines).await
}

async fn healthz(proxy: &Proxy) -> u16 {
    get_admin(proxy.admin(), "/healthz", &[]).await.status()
}

#[tokio::test]
async fn pending_request_bodies_do_not_block_other_clients() {
    let proxy = Config::default().start().await;
    let admin = proxy.admin();
    let mut waiting = Vec::new();
    for _ in 0..MANY {
        let head =
            format!("POST /login HTTP/1.1\r\nHost: {admin}\r\nContent-Length: 16000\r\n\r\nto");
        let mut client = Crawler::to(admin).await;
        client.send(head.as_bytes()).await;
        waiting.push(client);
    }
    assert_eq!(healthz(&proxy).await, 200);
    assert!(soon("an end", waiting[0].closes()).await);
}

#[tokio::test]
async fn stalled_tls_handshakes_are_closed_to_make_room() {
    let proxy = place_with_admin_tls().start().await;
    let mut begun = Vec::new();
    for _ in 0..MANY {
        let mut client = Crawler::to(proxy.admin()).await;
        client.send(&[0x16, 3, 1]).await;
        begun.push(client);
    }
    assert_eq!(healthz(&proxy).await, 200);
    // The descriptor is freed at once, not only at the handshake timeout.
    assert!(soon("an end", begun[0].closes()).await);
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
    let line = "GET /polite/decisions?host=o.test&verdict=disallow HTTP/1.1";
    let reply = ask(&browser, line, &linked).await;
    assert_eq!(reply.status(), 200);
    let way = "/polite/decisions?host=o.test&amp;verdict=disallow";
    let page = reply.text();
    assert!(page.contains(&format!("0; url={way}")), "{page}");
    assert!(page.contains(&format!("href=\"{way}\"")), "{page}");
    assert!(!page.contains("private"), "{page}");
    // The redirect page repeats the request from our own site, with the cookie.
    let own = ["Sec-Fetch-Site: same-origin", &browser.cookie];
    let reply = ask(&browser, line, &own).await;
    assert!(reply.text().contains("/private/2"), "{}", reply.text());
    let reply = ask(&browser, line, &own[..1]).await;
    assert_eq!(reply.status(), 303);
    let login = "GET /polite/login?to=%2Fdecisions HTTP/1.1";
    assert_eq!(ask(&browser, login, &linked).await.status(), 200);
    // Frames and scripts are not redirected to the view.
    let framed = [linked[0], linked[1], "Sec-Fetch-Dest: iframe"];
    assert_eq!(ask(&browser, line, &framed).await.status(), 303);
    let outside = "GET /polite//evil.test/ HTTP/1.1";
    let page = ask(&browser, outside, &linked).await.text();
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
        assert!(
            page.text()
                .contains(&format!("name=\"once\" value=\"{code}\""))
        );
    }
    let (form, own) = (format!("once={code}"), format!("Origin: http://{admin}"));
    let foreign = ["Origin: http://evil.test"];
    assert_eq!(post(admin, "/login", &foreign, &form).await.status(), 403);
    let signed_in = post(admin, "/login", &[&own], &form).await;
    assert_eq!(signed_in.status(), 303);
    let cookie = signed_in.head.value("set-cookie");
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    let page = get_admin(admin, "/decisions", &[&cookie]).await;
    assert_eq!(page.status(), 200);
    let again = post(admin, "/login", &[&own], &form).await;
    assert_eq!(again.status(), 403);
    assert!(again.text().contains("was used before"), "{}", again.text());
    let outcome = proxy.place().run_ok(&["dashboard"]).await;
    let another = outcome
        .stdout
        .trim()
        .strip_prefix(&format!("http://{admin}/login?"));
    let form = another.unwrap();
    assert_eq!(post(admin, "/login", &[&own], form).await.status(), 303);
}

// Ours: docs/dashboard.md, Signing in.
#[tokio::test]
async fn a_link_to_a_decision_opens_its_page() {
    let (_origin, proxy) = site(Script::robots("User-agent: *\nDisallow: /\n"), &[]).await;
    let refusal = get(&proxy, "http://o.test/").await.json();
    let seq = refusal["decision"].as_str().unwrap();
    let link = proxy.place().run(&["dashboard", seq]).await;
    let admin = proxy.admin();
    let form = link.stdout.trim();
    let form = form.strip_prefix(&format!("http://{admin}/login?"));
    let own = format!("Origin: http://{admin}");
    let signed_in = post(admin, "/login", &[&own], form.unwrap()).await;
    assert_eq!(signed_in.status(), 303);
    let location = signed_in.head.value("location");
    assert_eq!(location, format!("/decisions/{seq}"));
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
    for named in ["(Origin: http://evil.test)", &format!("http://{admin}")] {
        assert!(reply.text().contains(named), "{}", reply.text());
    }
    let own = format!("Origin: http://{admin}");
    let long = format!("{form}&robots={}", "a".repeat(3 << 20));
    let reply = post(admin, "/test", &[&browser.cookie, &own], &long).await;
    assert_eq!(reply.status(), 413);
    assert!(reply.text().contains("bytes at most"));
    // Without a session a browser is redirected to the login page; a 401 would open
    // its built-in password prompt.
    let reply = post(admin, "/queues", &[&own], &form).await;
    assert_eq!(
        (reply.status(), reply.head.value("location")),
        (303, "/login?to=%2F")
    );
    // A client that sends `Authorization` is no browser and gets 401.
    let wrong = [&*own, "Authorization: Bearer no"];
    assert_eq!(post(admin, "/queues", &wrong, &form).await.status(), 401);
}

#[tokio::test]
async fn a_reverse_proxy_may_send_the_default_port_in_x_forwarded_host() {
    let config = Config::default()
        .set("admin.hosts = [\"dash.test\"]")
        .set("admin.trusted_proxies = [\"127.0.0.1\"]");
    let proxy = config.start().await;
    let token = std::fs::read_to_string(proxy.place().path("data/admin-token")).unwrap();
    let form = format!("token={}", token.trim());
    let front = [
        "X-Forwarded-Host: dash.test:443",
        "X-Forwarded-Proto: https",
        "Origin: https://dash.test",
    ];
    let reply = post(proxy.admin(), "/login", &front, &form).await;
    assert_eq!(reply.status(), 303, "{}", reply.text());
}

#[tokio::test]
async fn an_unknown_path_gets_404_or_405_with_an_explanation() {
    let browser = Browser::new(Config::default().set("admin.base_path = \"/polite\"")).await;
    let text = "there is no such page; begin at /\n";
    let reply = ask(&browser, "GET /nothing HTTP/1.1", &[]).await;
    assert_eq!((reply.status(), &*reply.text()), (404, text));
    let reply = browser.get("/api/v1/nothing").await;
    assert_eq!((reply.status(), &*reply.text()), (404, text));
    // A signed-in browser gets an error page with the menu.
    for (path, why) in [
        ("/nothing", "There is no such page."),
        ("/decisions/99999", "no decision with this number"),
        (
            "/hosts?host=never.test",
            "There is no record of never.test.",
        ),
    ] {
        let reply = browser.get(path).await;
        assert_eq!(reply.status(), 404, "{path}");
        assert!(reply.text().contains(why), "{}", reply.text());
        assert!(reply.text().contains("href=\"/polite/decisions\""));
    }
    let reply = browser.get("/logout").await;
    assert_eq!(
        (reply.status(), &*reply.text()),
        (405, "this method is not for this page\n")
    );
    // The host of an absolute target is checked below the base path, too.
    let foreign = "GET http://evil.test/polite/healthz HTTP/1.1";
    assert_eq!(ask(&browser, foreign, &[]).await.status(), 421);
}
