//! `upstream.parent`: requests that go through another proxy. Only the parent resolves
//! the names in these tests.

use crate::kit::addresses::free_address;
use crate::kit::client::{ask, get, reload};
use crate::kit::origin::Script;
use crate::kit::parent::Parent;
use crate::kit::proxy::{Config, Place};
use crate::kit::raw_origin::{Bytes, RawOrigin};
use crate::kit::{assert_contains, run};

const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

fn through(parent: std::net::SocketAddr) -> Config {
    Config::default().set(&format!("upstream.parent = \"http://{parent}\""))
}

/// Returns a folder with credentials for the parent that only their owner may read.
fn with_credentials(config: Config) -> Place {
    let place = Place::with(&config.set("upstream.parent_auth = \"parent.auth\""));
    place.write("parent.auth", "Aladdin:open sesame\n", 0o600);
    place
}

/// Credentials of the example in RFC 7617, section 2, as sent to the parent.
const SHOWN: &str = "Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n";

// Ours: a reload reads corrected credentials.
#[tokio::test]
async fn a_reload_reads_the_parents_credentials_again() {
    let parent = RawOrigin::start(|_| Bytes::text("")).await;
    let proxy = with_credentials(through(parent.address())).start().await;
    assert_eq!(get(&proxy, "http://nowhere.test/a").await.status(), 200);
    proxy.place().write("parent.auth", "Ali:Baba\n", 0o600);
    reload(&proxy).await;
    get(&proxy, "http://nowhere.test/b").await;
    let last = parent.requests().pop().unwrap();
    assert_contains(&String::from_utf8_lossy(&last), "Basic QWxpOkJhYmE=");
}

// RFC 9112, section 3.2.2; RFC 9110, section 11.7.
#[tokio::test]
async fn a_plain_request_reaches_the_parent_unchanged_but_for_the_credentials() {
    let robots = "User-agent: *\nDisallow: /b\n";
    let parent = RawOrigin::with(robots, Bytes::text("from the parent")).await;
    let proxy = with_credentials(through(parent.address())).start().await;
    let fields = [
        "User-Agent: ExampleBot/1.0",
        "Proxy-Authorization: Basic Y3Jhd2xlcjpzZWNyZXQ=",
        "Proxy-Connection: keep-alive",
        "Cookie: a=b",
    ];
    let reply = ask(&proxy, "GET", "http://nowhere.test/a%2fb?c", &fields).await;
    assert_eq!((reply.status(), &*reply.text()), (200, "from the parent"));
    let refused = ask(&proxy, "GET", "http://nowhere.test/b", &fields).await;
    refused.assert_error(403, "http_request_denied");

    let sent = parent.requests();
    let sent: Vec<_> = sent
        .iter()
        .map(|head| String::from_utf8_lossy(head))
        .collect();
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent[0].starts_with("GET http://nowhere.test/robots.txt HTTP/1.1\r\n"));
    assert!(sent[1].starts_with("GET http://nowhere.test/a%2fb?c HTTP/1.1\r\n"));
    assert!(sent[1].contains("Cookie: a=b\r\n") && !sent[0].contains("Cookie"));
    for head in sent {
        assert!(head.contains("Host: nowhere.test\r\n"), "{head}");
        assert_eq!(head.matches("Proxy-").count(), 1, "{head}");
        assert!(head.contains(SHOWN), "{head}");
    }
}

// RFC 9110, section 9.3.6; RFC 9112, section 3.2.3.
#[tokio::test]
async fn https_goes_through_a_connect_and_the_origin_gets_no_credentials() {
    let script = Script::robots("User-agent: *\nDisallow: /b\n").name("nowhere.test");
    let origin = script.tls().start().await;
    let parent = Parent::start(ESTABLISHED, origin.address()).await;
    let proxy = with_credentials(through(parent.address())).start().await;
    assert_eq!(get(&proxy, "https://nowhere.test/a").await.status(), 200);
    let refused = get(&proxy, "https://nowhere.test/b").await;
    refused.assert_error(403, "http_request_denied");
    assert_eq!(origin.targets(), ["/a"]);
    for seen in origin.log() {
        assert_eq!(seen.version, http::Version::HTTP_2);
        assert_eq!(seen.values("proxy-authorization"), [""; 0]);
    }
    let heads = parent.heads();
    assert_eq!(heads.len(), 1, "{heads:?}");
    assert!(heads[0].starts_with("CONNECT nowhere.test:443 HTTP/1.1\r\n"));
    assert!(heads[0].contains("Host: nowhere.test:443\r\n"), "{heads:?}");
    assert!(heads[0].contains(SHOWN), "{heads:?}");
}

// Ours: the parent is not trusted to verify it.
#[tokio::test]
async fn the_certificate_of_the_origin_is_verified_through_a_parent() {
    let script = Script::robots("").name("nowhere.test").expired();
    let origin = script.tls().start().await;
    let parent = Parent::start(ESTABLISHED, origin.address()).await;
    let proxy = through(parent.address()).start().await;
    let reply = get(&proxy, "https://nowhere.test/a").await;
    reply.assert_error(502, "tls_certificate_error");
    assert_eq!(origin.log().len(), 0);
}

/// Asserts the outcome of a request if the parent gives `answer` to CONNECT: the page, or
/// a status and an error type.
async fn assert_outcome(answer: &str, outcome: Result<(), (u16, &str)>) {
    let script = Script::robots("").name("nowhere.test");
    let origin = script.tls().start().await;
    let parent = Parent::start(answer, origin.address()).await;
    let config = through(parent.address()).set("upstream.connect_timeout = \"2s\"");
    let proxy = config.start().await;
    let reply = get(&proxy, "https://nowhere.test/a").await;
    match outcome {
        Ok(()) => {
            assert_eq!(reply.status(), 200);
            assert_eq!(origin.targets(), ["/a"]);
        }
        Err((status, error)) => {
            reply.assert_error(status, error);
            assert_eq!(origin.log().len(), 0);
        }
    }
}

/// Defines one test per row: the parent's answer to CONNECT, and the client's outcome.
macro_rules! answers {
    ($($name:ident: $answer:expr => $outcome:expr;)+) => {$(
        #[test]
        fn $name() {
            run(assert_outcome(&$answer, $outcome));
        }
    )+};
}

const UNAVAILABLE: Result<(), (u16, &str)> = Err((502, "destination_unavailable"));

// Ours: without a connection the client gets 502 or 504. RFC 9209, section 2.3; RFC 9110,
// section 9.3.6 (the framing of a 2xx is ignored). The limits are ours.
answers! {
    a_407_to_connect_is_a_configuration_error:
        "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n"
        => Err((502, "proxy_configuration_error"));
    a_403_to_connect_makes_the_origin_unavailable:
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno" => UNAVAILABLE;
    a_504_to_connect_makes_the_origin_unavailable:
        "HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n" => UNAVAILABLE;
    a_redirect_to_connect_is_not_followed:
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n"
        => UNAVAILABLE;
    a_parent_that_does_not_speak_http_is_refused: "SSH-2.0-x\r\n\r\n" => UNAVAILABLE;
    bytes_after_the_parents_head_are_refused:
        "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"
        => UNAVAILABLE;
    an_oversized_head_of_a_parent_is_refused:
        format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(64 * 1024)) => UNAVAILABLE;
    a_silent_parent_times_out: "" => Err((504, "connection_timeout"));
    the_framing_of_a_parents_200_is_ignored:
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" => Ok(());
    interim_responses_of_a_parent_are_skipped:
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" => Ok(());
}

/// Defines one test per row: the parent's own answer to a plain request for robots.txt,
/// and the client's outcome. No page may be requested.
macro_rules! own_answers {
    ($($name:ident: $head:literal => $status:literal $error:literal;)+) => {$(
        #[test]
        fn $name() {
            run(async {
                let parent = RawOrigin::start(|target| match target {
                    "http://nowhere.test/robots.txt" => {
                        Bytes::of(concat!("HTTP/1.1 ", $head, "\r\nContent-Length: 0\r\n\r\n").as_bytes())
                    }
                    _ => Bytes::text("never requested"),
                })
                .await;
                let proxy = through(parent.address()).start().await;
                let reply = get(&proxy, "http://nowhere.test/a").await;
                reply.assert_error($status, $error);
                assert_eq!(parent.lines(), ["GET http://nowhere.test/robots.txt"]);
            });
        }
    )+};
}

// Invariant 4 (ARCHITECTURE.md): a parent's refusal does not mean that the origin has no
// robots.txt. RFC 9209, section 2.1.1, and Squid's own field.
own_answers! {
    a_407_for_robots_txt_allows_nothing:
        "407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x" => 502 "proxy_configuration_error";
    a_403_marked_as_the_parents_own_allows_nothing:
        "403 Forbidden\r\nProxy-Status: up; error=http_request_denied" => 502 "destination_unavailable";
    a_404_of_squid_allows_nothing:
        "404 Not Found\r\nX-Squid-Error: ERR_DNS_FAIL 0" => 502 "destination_unavailable";
    a_503_of_a_parent_allows_nothing: "503 Service Unavailable" => 403 "http_request_denied";
}

#[tokio::test]
async fn a_407_for_a_page_is_not_passed_on() {
    let head = "HTTP/1.1 407 x\r\nProxy-Authenticate: Basic realm=x";
    let page = Bytes::of(format!("{head}\r\nContent-Length: 0\r\n\r\n").as_bytes());
    let parent = RawOrigin::with("", page).await;
    let proxy = through(parent.address()).start().await;
    let reply = get(&proxy, "http://nowhere.test/a").await;
    reply.assert_error(502, "proxy_configuration_error");
}

// RFC 6761, section 6.4: names below `.invalid` do not exist. Ours: the start logs that the
// egress rules see only names and literal addresses.
#[tokio::test]
async fn prohibited_names_addresses_and_ports_never_reach_the_parent() {
    let parent = RawOrigin::start(|_| Bytes::text("")).await;
    let proxy = through(parent.address()).start().await;
    let (own, admin) = (proxy.address(), proxy.admin());
    for url in [
        "http://10.0.0.1/",
        "http://[fd00:ec2::254]/",
        "http://169.254.169.254/latest/",
        "https://127.0.0.1/",
        "http://metadata.google.internal/",
        "http://nowhere.test:6379/",
        &format!("http://{own}/"),
        &format!("http://{admin}/metrics"),
        &format!("http://{}/", parent.address()),
    ] {
        let reply = get(&proxy, url).await;
        reply.assert_error(502, "destination_ip_prohibited");
    }
    for url in ["http://x.invalid/", "https://invalid/"] {
        get(&proxy, url).await.assert_error(502, "dns_error");
    }
    assert_eq!(parent.lines(), [""; 0]);
    assert_contains(&proxy.log(), "upstream.parent resolves");
}

// Ours: the operator gave the address, so the proxy connects directly.
#[tokio::test]
async fn a_name_in_resolve_does_not_go_through_the_parent() {
    let parent = RawOrigin::start(|_| Bytes::text("")).await;
    let origin = Script::robots("").start().await;
    let config = through(parent.address()).resolve("near.test", origin.address());
    let proxy = config.start().await;
    assert_eq!(get(&proxy, "http://near.test/a").await.status(), 200);
    assert_eq!(origin.targets(), ["/a"]);
    assert_eq!(parent.lines(), [""; 0]);
}

#[tokio::test]
async fn an_unreachable_parent_is_a_502() {
    let address = free_address();
    let proxy = through(address).start().await;
    for url in ["http://nowhere.test/", "https://nowhere.test/"] {
        let reply = get(&proxy, url).await;
        reply.assert_error(502, "connection_refused");
    }
}

/// Asserts that `serve` fails with an error that contains `why`.
async fn assert_start_fails(place: &Place, why: &str) {
    let outcome = place.run_code(1, &["serve"]).await;
    assert_contains(&outcome.stderr, why);
}

#[tokio::test]
async fn a_parent_that_is_this_proxy_prevents_the_start() {
    let address = free_address();
    let config = through(address).set(&format!("proxy.listen = [\"{address}\"]"));
    assert_start_fails(&Place::with(&config), "is this proxy").await;
}

// Ours: only the owner of a secret's file may read it.
#[tokio::test]
async fn credentials_that_others_may_read_prevent_the_start_and_are_never_shown() {
    let place = with_credentials(through("127.0.0.1:9".parse().unwrap()));
    place.write("parent.auth", "Aladdin:open sesame\n", 0o644);
    assert_start_fails(&place, "may be read by others (mode 644)").await;
    place.write("parent.auth", "open sesame\n", 0o600);
    assert_start_fails(&place, "does not hold one line of the form user:password").await;
    std::fs::remove_file(place.path("parent.auth")).unwrap();
    assert_start_fails(&place, "cannot read").await;
    place.write("parent.auth", "Aladdin:open sesame\n", 0o600);
    let shown = place.run(&["config", "show"]).await.stdout;
    assert!(shown.contains("parent_auth = \"parent.auth\""), "{shown}");
    assert!(!shown.contains("sesame"), "{shown}");
}
