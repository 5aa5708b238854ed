//! `audit show` and `audit robots`: a decision with everything it is based on, and the
//! robots.txt in force at a time.

use serde_json::{Value, json};

use crate::kit::client::{get, get_as};
use crate::kit::origin::{Script, site};
use crate::kit::page::Page;
use crate::kit::proxy::{Place, resolve};
use crate::kit::{assert_contains, assert_members, sha256};

const ROBOTS: &str = "# \u{1b}[2J\r\nUser-agent: *\r\nDisallow: /private\r\n";

async fn show(place: &Place, subject: &str) -> (String, Value) {
    let text = place.audit(&format!("show {subject}")).await;
    let json = place.audit(&format!("show {subject} --json")).await;
    (text.stdout, json.json_lines().remove(0))
}

// Ours.
#[tokio::test]
async fn show_prints_all_parts_of_a_decision() {
    let named = "crawler = [{ token = \"InHouse\", user_agent = \"acme\" }]";
    let (_origin, proxy) = site(Script::robots(ROBOTS), &[named]).await;
    let refused = get_as(&proxy, "ExampleBot/1.0", "http://o.test/private/x").await;
    get_as(&proxy, "acme crawler", "http://o.test/a/../private/x").await;
    get_as(&proxy, "ExampleBot/1.0", "http://o.test/a").await;
    proxy.place().completed(3).await;
    let page = refused.json();
    let number = page["decision"].as_str().unwrap();
    let place = proxy.place();

    let (text, json) = show(place, number).await;
    for wanted in [
        "decision     3\n",
        "request      GET http://o.test/private/x\n",
        "client       127.0.0.1\n",
        "user_agent   ExampleBot/1.0\n",
        "crawler      ExampleBot, as its User-Agent says\n",
        "verdict      disallow\n",
        "reason       rule: ",
        "rule         line 3: Disallow: /private\n",
        "group        *, by line 2: User-agent: *\n",
        "effect       enforced: ",
        "wait         0 ms\n",
        "status       403\n",
        "robots       http://o.test/robots.txt, status 200, successful\n",
        "  fetched    20",
        "  expires    20",
        "policy       ",
        "  dialect    rfc9309\n",
        "verify       the row is as it was written, and deciding again gives the same\n",
        "\nrobots.txt as it was, 3 lines:\n      1 | # \\u{1b}[2J\n      2 | User-agent: *\n>     3 | Disallow: /private\n",
    ] {
        assert_contains(&text, wanted);
    }
    assert_eq!(json["robots"]["text"], ROBOTS);
    assert_eq!(json["robots"]["sha256"], sha256(ROBOTS.as_bytes()));
    assert!(json["robots"]["fetched_at"].is_string());
    assert!(json["robots"]["expires_at"].is_string());
    assert_eq!(json["candidates"], json!(["ExampleBot"]));
    assert_members(&json, &json!({"as_written": true, "decided_again": "same"}));
    assert_eq!(json["policy_json"]["readings"], "server");
    let mut row = place.rows().await.remove(0);
    row.as_object_mut().unwrap().remove("robots");
    assert_members(&json, &row);

    let (text, _) = show(place, &place.number(2).to_string()).await;
    assert!(text.contains("reading      /private/x: "), "{text}");
    assert_contains(&text, "crawler      InHouse; named by the configuration");
}

// Ours: docs/readings.md. The file is read again with its charset and origin.
#[tokio::test]
async fn a_rule_in_another_form_or_charset_is_cited_and_decided_again() {
    const CYRILLIC: &[u8] = b"Disallow: /\xEA\xEE\xF2\n";
    let head = b"User-agent: *\nDisallow: /Special%3ARandom\nDisallow: http://o.test/cart\n";
    let file = [head, CYRILLIC].concat();
    let robots = Page::typed("text/plain; charset=windows-1251", &file);
    let (origin, proxy) = site(Script::robots_page(robots), &[]).await;
    let place = proxy.place();
    let plain = "disallows this URL.";
    let taken = "which servers take for /Special%3ARandom.";
    for (number, path, line, told, reading) in [
        (1, "/Special:Random", 2, taken, Some("/Special%3ARandom")),
        (2, "/cart/1", 3, plain, None),
        (3, "/%D0%BA%D0%BE%D1%82", 4, plain, None),
    ] {
        let refused = get(&proxy, &format!("http://o.test{path}")).await.json();
        assert_eq!(refused["rule"]["line"], line, "{refused}");
        assert_contains(refused["detail"].as_str().unwrap(), told);
        place.completed(number).await;
        let (text, json) = show(place, refused["decision"].as_str().unwrap()).await;
        let wanted = json!({"line": line, "reading": reading, "decided_again": "same"});
        assert_members(&json, &wanted);
        assert_eq!(json["robots"]["charset"], "windows-1251");
        assert_contains(&text, "  charset    windows-1251\n");
    }
    origin.assert_only_robots_fetched();
    place.assert_verified().await;
}

// Ours.
#[tokio::test]
async fn show_with_a_url_prints_the_newest_decision_and_counts_the_others() {
    let (_origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    for url in ["/a", "/b", "/a", "/a?b", "/it's", "/it's"] {
        get(&proxy, &format!("http://o.test{url}")).await;
    }
    proxy.place().completed(6).await;
    let place = proxy.place();
    let (text, json) = show(place, "HTTP://O.test:80/a").await;
    assert_members(&json, &json!({"seq": place.number(3), "others": 1}));
    assert_contains(&text, "others       1 more about this URL: ");
    let (text, json) = show(place, "http://o.test/b").await;
    assert_members(&json, &json!({"seq": place.number(2), "others": 0}));
    assert!(!text.contains("others"), "{text}");
    let last = place.number(6);
    let (text, _) = show(place, &last.to_string()).await;
    assert!(text.contains(r"--url 'http://o.test/it'\''s'"), "{text}");
    for (subject, code, told) in [
        ("http://o.test/c", 1, "no decision about http://o.test/c"),
        ("99", 1, format!("its decisions are 3 to {last}").as_str()),
        ("o.test", 2, "a whole URL"),
        ("-1", 2, ""),
    ] {
        let outcome = place.audit_code(code, &format!("show {subject}")).await;
        assert_eq!(outcome.stdout, "", "{subject}");
        assert_contains(&outcome.stderr, told);
    }
}

// Ours: a changed row is not passed off as the decision that was made.
#[tokio::test]
async fn show_reports_a_changed_row() {
    let (_origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    get(&proxy, "http://o.test/a").await;
    get(&proxy, "http://o.test/b").await;
    proxy.place().completed(2).await;
    let place = proxy.stop().await;
    let second = place.number(2);
    place.refer_to_copy(1, "client", "'192.0.2.1', credential");
    let change = format!("UPDATE decision SET path = '/private' WHERE seq = {second}");
    place.database().execute_batch(&change).unwrap();
    let (text, json) = show(&place, "3").await;
    assert_contains(&text, "THE ROW IS NOT AS IT WAS WRITTEN");
    assert_eq!(json["as_written"], false);
    let (text, json) = show(&place, &second.to_string()).await;
    assert_contains(&text, "deciding again gives disallow rule");
    assert_eq!(json["decided_again"], "deciding again gives disallow rule");
}

// Ours.
#[tokio::test]
async fn robots_prints_the_file_in_force_at_a_time() {
    let (_origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    get_as(&proxy, "FooBot/1", "http://o.test/a").await;
    let place = proxy.stop().await;
    // The file was fetched an hour ago, and the next process fetches it again.
    let an_hour_ago = "UPDATE snapshot SET fetched_us = fetched_us - 3600000000,
                         expires_us = expires_us - 3600000000; DELETE FROM kept";
    place.database().execute_batch(an_hour_ago).unwrap();
    let later = Script::robots("User-agent: *\nDisallow:\n").start().await;
    place.configure(&resolve("o.test", later.address()));
    let proxy = place.start().await;
    get_as(&proxy, "FooBot/1", "http://o.test/a").await;
    let place = proxy.stop().await;

    let now = place.audit("robots o.test").await;
    assert_eq!(now.stdout, "User-agent: *\nDisallow:\n");
    assert_contains(&now.stderr, "http://o.test/robots.txt");
    let then = "robots http://o.test --at 30m --crawler foobot";
    assert_eq!(place.audit(then).await.stdout, ROBOTS);
    let before = place.audit_code(1, "robots o.test --at 2h").await;
    assert_eq!(before.stdout, "");
    assert_contains(&before.stderr, "the first was fetched at 20");
}

// Ours.
#[tokio::test]
async fn robots_asks_for_a_choice_between_several_files_in_force() {
    let (_origin, proxy) = site(Script::robots(ROBOTS).names(["o.test", "none.test"]), &[]).await;
    get_as(&proxy, "FooBot/1", "http://o.test/a").await;
    get_as(&proxy, "BarBot/1", "http://o.test/a").await;
    get_as(&proxy, "BarBot/1", "http://o.test:8080/a").await;
    proxy.place().completed(3).await;
    let place = proxy.stop().await;
    // If all files have the same bytes, no choice is needed.
    assert_eq!(place.audit("robots o.test").await.stdout, ROBOTS);
    let missing = "UPDATE snapshot SET body = NULL, result = 'unavailable', status = 404
                       WHERE token = 'BarBot' AND origin = 'http://o.test'";
    place.database().execute_batch(missing).unwrap();
    let several = place.audit_code(2, "robots o.test").await;
    assert_eq!(several.stdout, "");
    for choice in [
        " audit robots http://o.test --crawler 'FooBot'",
        " audit robots http://o.test --crawler 'BarBot'",
        " audit robots http://o.test:8080 --crawler 'BarBot'",
    ] {
        assert_contains(&several.stderr, choice);
    }
    let file = "robots http://o.test --crawler FooBot";
    assert_eq!(place.audit(file).await.stdout, ROBOTS);
    let none = "robots http://o.test --crawler BarBot";
    let none = place.audit_code(1, none).await;
    assert_eq!(none.stdout, "");
    assert_contains(&none.stderr, "there was no file");
    let nobody = place.audit_code(1, "robots q.test").await;
    assert_contains(&nobody.stderr, "no robots.txt of q.test");
}
