//! Responses that odd origins send and every client takes: fields of an odd form,
//! and codings that are none.

use super::kit::client::{curl, get};
use super::kit::proxy::{Proxy, resolve};
use super::kit::raw_origin::{Bytes, RawOrigin};
use super::kit::run;

/// Returns an answer of status 200 with these field lines and this body.
fn answer(fields: &str, body: &str) -> Bytes {
    let head = format!(
        "HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    );
    Bytes::of((head + body).as_bytes())
}

/// Starts an origin that answers like this to everything, and a proxy.
async fn answering(robots: Bytes, page: Bytes) -> (RawOrigin, Proxy) {
    let origin = RawOrigin::start(move |target| {
        let is_robots = target == "/robots.txt";
        if is_robots {
            robots.clone()
        } else {
            page.clone()
        }
    })
    .await;
    let proxy = resolve("o.test", origin.address()).start().await;
    (origin, proxy)
}

// RFC 9110, section 5.5; RFC 9112, sections 5.1 and 5.2.
#[test]
fn odd_fields_of_a_page_are_passed_on_in_their_regular_form() {
    run(async {
        let odd = "X-Control: a\x01b\x7fc\r\nX-Fold: a\r\n  b\r\nX-Robots-Tag : noindex\r\n\
            PHP Warning: in /a.php\r\nX-Last: z\r\n";
        let (origin, proxy) = answering(Bytes::text(""), answer(odd, "the page")).await;
        let fetched = curl(&proxy, &["--include", "http://o.test/a"]).await;
        assert_eq!(fetched.code, Some(0), "{fetched:?}");
        let text = fetched.stdout.to_ascii_lowercase();
        for line in [
            "x-control: a b c\r\n",
            "x-fold: a b\r\n",
            "x-robots-tag: noindex\r\n",
            "x-last: z\r\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(
            !text.contains("warning") && text.ends_with("the page"),
            "{text}"
        );
        let page = get(&proxy, "http://o.test/b").await;
        assert!(page.head.value("robots-directives").contains("noindex"));
        assert_eq!(origin.lines().len(), 2);
    });
}

// Ours: it was refused, and the whole site with it.
#[test]
fn odd_fields_of_a_robots_txt_do_not_hide_its_rules() {
    run(async {
        for fields in [
            "X: a\x02b\r\n",
            "X: a\r\n\tb\r\n",
            "X : a\r\n",
            "X Y: a\r\n",
            "X[]: a\r\n",
        ] {
            let robots = answer(fields, "User-agent: *\nDisallow: /no\n");
            let (origin, proxy) = answering(robots, Bytes::text("the page")).await;
            assert_eq!(get(&proxy, "http://o.test/a").await.text(), "the page");
            let refused = get(&proxy, "http://o.test/no").await;
            assert_eq!(
                (refused.status(), &refused.json()["reason"]),
                (403, &"rule".into())
            );
            assert_eq!(origin.lines(), ["GET /a"], "{fields:?}");
        }
    });
}

// RFC 9110, section 5.5; RFC 9112, sections 2.2, 5.1 and 6.3. Ours: names that
// resemble others.
#[test]
fn fields_that_can_be_read_in_two_ways_are_refused() {
    run(async {
        for fields in [
            "X: a\0b\r\n",
            "X: a\rb\r\n",
            "X\r\n",
            "X\u{e9}: a\r\n",
            "Transfer-Encoding : chunked\r\n",
            "Connection : close\r\n",
            "Content Length: 3\r\n",
            "X Robots Tag: noindex\r\n",
        ] {
            let (_origin, proxy) = answering(Bytes::text(""), answer(fields, "the page")).await;
            let refused = get(&proxy, "http://o.test/a").await;
            refused.assert_error(502, "http_protocol_error");
        }
        let page = Bytes::of(b"HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\nabc");
        let (_origin, proxy) = answering(Bytes::text(""), page).await;
        get(&proxy, "http://o.test/a")
            .await
            .assert_error(502, "http_protocol_error");
    });
}

// Ours: what is held back of one response must not reach the next.
#[test]
fn a_connection_is_used_again_after_an_odd_head() {
    run(async {
        let (origin, proxy) = answering(answer("X : a\r\n", ""), answer("X : a\r\n", "page")).await;
        for _ in 0..3 {
            assert_eq!(get(&proxy, "http://o.test/a").await.text(), "page");
        }
        assert_eq!(origin.connections(), 1);
    });
}

// Ours: Content-Encoding as sites write it for files that have none.
#[test]
fn a_robots_txt_with_a_coding_that_is_none_is_read() {
    run(async {
        for coding in ["none", "identity", "UTF-8", "gzip"] {
            let fields = format!("Content-Encoding: {coding}\r\n");
            let robots = answer(&fields, "User-agent: *\nDisallow: /no\n");
            let (_origin, proxy) = answering(robots, Bytes::text("the page")).await;
            assert_eq!(
                get(&proxy, "http://o.test/a").await.status(),
                200,
                "{coding}"
            );
            let refused = get(&proxy, "http://o.test/no").await;
            assert_eq!(refused.json()["reason"], "rule", "{coding}");
        }
    });
}
