//! Spellings of URLs against nginx, Apache and lighttpd with their default settings: the
//! proxy forwards none for which the server would serve a disallowed file.
//!
//! Each spelling is requested from the server directly, to learn which file it serves,
//! and then through the proxy.

use std::collections::BTreeSet;

use crate::kit::client;
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::run;
use crate::kit::web_server::{Kind, WebServer};
use crate::nginx;

const ROBOTS: &str = "User-agent: *\nDisallow: /private\nDisallow: /x=y\nDisallow: /100%25\n\
                      Disallow: /open/no\nDisallow: /*.key$\nAllow: /a\n";

/// Files on the server. [`is_disallowed`] says which of them must not be fetched.
const FILES: &[&str] = &[
    "/private/secret",
    "/private/a/b",
    "/secret",
    "/a/page",
    "/a/b/page",
    "/a/;x/page",
    "/a\\b/page",
    "/h/secret",
    "/x=y",
    "/100%",
    "/open/no/x",
    "/open/yes",
    "/deep/down/it.key",
    "/PRIVATE/secret",
    "/%70rivate/secret",
    "/a/..;/private/secret",
    "/.../private/secret",
];

/// Reports whether [`ROBOTS`] disallows `file` by its plain name, as its owner means it.
fn is_disallowed(file: &str) -> bool {
    let names = ["/private/", "/x=y", "/100%", "/open/no"];
    file.ends_with(".key") || names.iter().any(|name| file.starts_with(name))
}

fn spellings() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for name in NAMES {
        for front in FRONTS {
            all.insert(format!("{front}{name}/secret"));
        }
    }
    for front in FRONTS {
        for between in BETWEEN {
            all.insert(format!("{front}private{between}secret"));
        }
        for file in [
            "x=y",
            "x%3Dy",
            "x%3dy?",
            "100%25",
            "open/no/x",
            "deep/down/it.key?",
            "deep/down/it.key;v",
        ] {
            all.insert(format!("{front}{file}"));
        }
    }
    for between in BETWEEN {
        for end in ENDS {
            all.insert(format!("/private{between}{end}"));
            all.insert(format!("/a{between}..{between}private{between}{end}"));
            all.insert(format!("/open{between}yes{between}..{between}no{between}x"));
        }
    }
    all
}

const FRONTS: &[&str] = &[
    "/",
    "//",
    "///",
    "////",
    "/./",
    "/.//",
    "/%2e/",
    "/%2E%2f",
    "/%2F",
    "/%2f%2F",
    "/a/../",
    "/a/%2e%2e/",
    "/a/.%2E/",
    "/a/%2e./",
    "/a//../",
    "/a/..//",
    "/a/./../",
    "/a/b/../../",
    "/a/b/..%2f../",
    "/a/..%2f",
    "/a%2f..%2f",
    "/a%2F%2e%2E%2F",
    "/a/%2e%2e%2f",
    "/../",
    "/%2e%2e/",
    "/a/../../",
    "/a/b//..//../",
    "/a%2f/..//",
    "/%61/../",
    "/.%2f",
    "/a/b/%2e%2e/%2e%2e/",
    "/a/b%2f..%2f..%2f",
    "/;/",
    "/;x=1/",
    "/a/..;/",
    "/a/..;x/",
    "/a/..%3b/",
    "/a/;x/../../",
    "/a;x/../",
    "/a\\..\\",
    "/a/..\\",
    "/a/..%5c",
    "/\\",
    "/%5c",
    "/%5C..%2f",
    "/a\\b/../",
    "/a%5Cb/../",
    "//h/",
    "//h/../",
    "///h/../",
    "/\\h/",
    "//h%2f..%2f",
    "/...//../",
    "/.../",
    "/%252e/",
    "/a/%252e%252e/",
    "/a/..%252f",
    "/a/..%c0%af",
    "/a%00/../",
    "/%20/../",
    "/a/..%00/",
    "/a?/../",
    "/a%3F/../",
    "/a%23/../",
    "/%/../",
    "/%zz/../",
];

const NAMES: &[&str] = &[
    "private",
    "%70rivate",
    "privat%65",
    "%50RIVATE",
    "PRIVATE",
    "%2570rivate",
    "private;v=1",
    "private%3Bv",
    "private.",
    "private%20",
    "private%00",
    "p%72iv%61te",
    "private%2e",
    "./private",
    "x/../private",
    "%2e/private",
];

const BETWEEN: &[&str] = &[
    "/",
    "//",
    "///",
    "%2F",
    "%2f%2f",
    "/%2f",
    "/./",
    "/%2e/",
    "/.%2f",
    "/x/../",
    "/x/..%2f",
    "/x//..//",
    "/;/",
    "/..;/",
    "\\",
    "%5c",
    "/\\",
    "/../private/",
    "%2f..%2fprivate%2f",
    "/..//private/",
    "%00/",
];

const ENDS: &[&str] = &[
    "secret",
    "secre%74",
    "secret?",
    "secret?q=/../",
    "secret;v",
    "secret%00",
    "secret/",
    "secret%2f",
    "./secret",
    "a/../secret",
    "a/b",
    "a%2fb",
    "a//b",
    "secret/.",
    "secret/..",
    "secret%",
    "",
    "?",
];

#[test]
fn no_spelling_of_a_disallowed_file_reaches_nginx() {
    run(assert_no_leak(Kind::Nginx));
}

#[test]
fn no_spelling_of_a_disallowed_file_reaches_apache() {
    run(assert_no_leak(Kind::Apache));
}

#[test]
fn no_spelling_of_a_disallowed_file_reaches_lighttpd() {
    run(assert_no_leak(Kind::Lighttpd));
}

/// Asserts that no spelling for which the server serves a disallowed file reaches it
/// through the proxy.
async fn assert_no_leak(kind: Kind) {
    let server = start(kind).await;
    let config = resolve("o.test", server.address());
    let proxy = config.start().await;
    let (mut disallowed, mut asked, mut pages) = (Vec::new(), 0, 0);
    for (place, spelling) in spellings().into_iter().enumerate() {
        let (status, body) = server.direct(&spelling).await;
        let is_disallowed = served(status, &body).is_some_and(|file| is_disallowed(&file));
        asked += 1;
        // Of the harmless spellings only every fourth, to save time.
        if is_disallowed || place % 4 == 0 {
            pages += usize::from(through(&proxy, &spelling).await.is_some());
        }
        if is_disallowed {
            disallowed.push(spelling);
        }
    }
    proxy.stop().await;
    let log = server.access_log().await;
    let ours = log.lines().filter(|line| line.contains("ExampleBot"));
    let ours: Vec<&str> = ours.collect();
    // nginx logs no User-Agent for a 400.
    let has_every_request = asked + ours.len() <= log.lines().count();
    assert!(has_every_request && pages <= ours.len(), "{log}");
    for spelling in &disallowed {
        let line = format!("\"GET {spelling} HTTP/1.1\"");
        let leaks = ours.iter().filter(|asked| asked.contains(&line));
        assert_eq!(leaks.count(), 0, "{kind:?} was asked for {spelling}");
    }
    assert!(150 < disallowed.len(), "{}", disallowed.len());
    assert!(10 < pages, "{pages}");
}

/// Requests a spelling through the proxy, and returns the file that is served. Asserts that
/// the answer is an allowed page, an error of the server, or a refusal that names its rule.
async fn through(proxy: &Proxy, spelling: &str) -> Option<String> {
    let reply = client::get(proxy, &format!("http://o.test{spelling}")).await;
    let file = served(reply.status(), &reply.text());
    let is_allowed = !file.as_deref().is_some_and(is_disallowed);
    assert!(is_allowed, "{spelling} is {file:?}");
    let told = reply.head.values("proxy-status");
    if told.iter().any(|value| value.starts_with("politesse")) {
        assert_eq!(reply.status(), 403, "{spelling}");
        let problem = reply.json();
        assert_eq!(problem["reason"], "rule", "{spelling}");
        let rule = problem["rule"]["text"].as_str().unwrap();
        assert!(ROBOTS.contains(rule), "{spelling}: {rule}");
        let detail = problem["detail"].as_str().unwrap();
        let says =
            detail.contains("disallows this URL") || detail.contains("which servers take for /");
        assert!(says, "{spelling}: {detail}");
    }
    file
}

/// Returns the name of the file in an answer, taken from its mark.
fn served(status: u16, body: &str) -> Option<String> {
    let (_, rest) = body.split_once("MARK<").filter(|_| status == 200)?;
    let (file, _) = rest.split_once('>')?;
    Some(file.to_owned())
}

async fn start(kind: Kind) -> WebServer {
    let mut files = vec![("/robots.txt", ROBOTS.to_owned())];
    files.extend(FILES.iter().map(|file| (*file, format!("MARK<{file}>\n"))));
    WebServer::start(kind, &files).await
}

// Checks the model of `readings_reference` against the real nginx: the file that it names
// is served, and a URL that it refuses gets 400.
#[tokio::test]
async fn the_model_of_nginx_serves_the_same_files_as_nginx() {
    let server = start(Kind::Nginx).await;
    for spelling in spellings() {
        let (status, body) = server.direct(&spelling).await;
        let file = served(status, &body);
        let Some(wanted) = nginx::file(&spelling) else {
            assert_eq!(status, 400, "{spelling}");
            continue;
        };
        let wanted = String::from_utf8_lossy(&wanted).into_owned();
        assert_ne!(status, 400, "{spelling} is {wanted}");
        let exists = FILES.contains(&&*wanted);
        assert_eq!(file, exists.then_some(wanted), "{spelling}");
    }
}
