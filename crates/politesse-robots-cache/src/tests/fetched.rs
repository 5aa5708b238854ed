//! Robots.txt as fetched over HTTP.

use std::sync::Arc;

use http::{HeaderValue, Response};

use crate::fetch::{Asker, FetchError, HttpFetcher, RobotsFetcher, RobotsRequest};
use politesse_base::clients::client::Client;
use politesse_base::tasks::Tasks;
use politesse_decision::access::Cause;
use politesse_decision::decide::RobotsPermit;
use politesse_decision::snapshot::{RobotsBody, Validators};
use politesse_net::testing::{OK, RawOrigin, Setup, Step, setup};
use politesse_pace::Scheduler;
use politesse_pace::options::Options;
use politesse_robots::origin::{Origin, Scheme};

async fn fetch(setup: &Setup, asker: &Asker) -> Result<Response<RobotsBody>, Cause> {
    let fetcher = fetcher(setup);
    let origin = Origin::new(Scheme::Http, "h.test");
    let permit = RobotsPermit::first(&origin.unwrap());
    let mut turn = fetcher
        .turn(permit.target().origin.host(), &Client::proxy())
        .await
        .unwrap();
    let request = RobotsRequest {
        permit,
        asker,
        known: None,
        claim: None,
    };
    let fetched = fetcher.fetch(request, &mut turn).await;
    fetched.map_err(|error| match error {
        FetchError::Unreachable(cause) => cause,
        FetchError::TurnLost => panic!("no turn is lost without a fleet"),
    })
}

fn fetcher(setup: &Setup) -> HttpFetcher {
    let scheduler = Scheduler::new(Options::default(), Arc::default(), Tasks::default());
    HttpFetcher {
        upstream: Arc::clone(&setup.upstream),
        scheduler: Arc::new(scheduler),
        max_bytes: 20,
    }
}

async fn fetched(script: &'static [Step]) -> Result<Response<RobotsBody>, Cause> {
    let origin = RawOrigin::start(&[script]).await;
    fetch(&setup(&origin), &Asker::default()).await
}

// Ours.
#[tokio::test]
async fn our_request_identifies_the_crawler_and_adds_nothing_else() {
    let origin = RawOrigin::start(&[&[OK]]).await;
    let asker = Asker {
        client: None,
        entry: None,
        user_agent: Some(HeaderValue::from_static("ExampleBot/1.0")),
        from: Some(HeaderValue::from_static("a@b.test")),
    };
    let hop = fetch(&setup(&origin), &asker).await.unwrap();
    assert_eq!(
        (hop.status().as_u16(), &*hop.body().bytes, hop.body().whole),
        (200, &b"ok"[..], true)
    );
    assert_eq!(
        origin.requests(),
        [
            "GET /robots.txt HTTP/1.1\r\nHost: h.test\r\nUser-Agent: ExampleBot/1.0\r\n\
          From: a@b.test\r\nAccept: text/plain,*/*;q=0.5\r\nAccept-Encoding: identity\r\n\r\n"
        ]
    );
}

// RFC 9110, sections 13.1.2 and 13.1.3: with the known validators, and only with those.
#[tokio::test]
async fn our_request_carries_the_known_validators() {
    let origin = RawOrigin::start(&[&[OK]]).await;
    let fetcher = fetcher(&setup(&origin));
    let known = Validators {
        etag: Some(HeaderValue::from_static("W/\"1\"")),
        last_modified: Some(HeaderValue::from_static("yesterday")),
    };
    let permit = RobotsPermit::first(&Origin::new(Scheme::Http, "h.test").unwrap());
    let mut turn = fetcher
        .turn(permit.target().origin.host(), &Client::proxy())
        .await
        .unwrap();
    let asker = Asker::default();
    let request = RobotsRequest {
        permit,
        asker: &asker,
        known: Some(&known),
        claim: None,
    };
    fetcher.fetch(request, &mut turn).await.unwrap();
    let end = "If-None-Match: W/\"1\"\r\nIf-Modified-Since: yesterday\r\n\r\n";
    assert!(
        origin.requests()[0].ends_with(end),
        "{:?}",
        origin.requests()
    );
}

// RFC 9309, section 2.5: an endless file is read up to the limit.
#[tokio::test]
async fn a_file_over_the_limit_is_truncated_at_a_line() {
    const ENDLESS: &[Step] = &[
        Step::Answer("HTTP/1.1 200 OK\r\n\r\nDisallow: /a\nDisallow: /b\n"),
        Step::Hold,
    ];
    let hop = fetched(ENDLESS).await.unwrap();
    assert_eq!(
        (&*hop.body().bytes, hop.body().whole),
        (&b"Disallow: /a\n"[..], false)
    );
}

// Ours: a body with an unknown coding, or not in the coding it declares, is not a file.
#[tokio::test]
async fn a_body_that_cannot_be_decoded_is_not_parsed() {
    const GZIP: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1fk",
    )];
    const UNKNOWN: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nContent-Encoding: x-new\r\nContent-Length: 2\r\n\r\nok",
    )];
    const CODED_TWICE: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nContent-Encoding: br, gzip\r\nContent-Length: 2\r\n\r\nok",
    )];
    assert!(matches!(fetched(GZIP).await, Err(Cause::Coding)));
    assert!(matches!(fetched(UNKNOWN).await, Err(Cause::Coding)));
    assert!(matches!(fetched(CODED_TWICE).await, Err(Cause::Coding)));
}

// Ours: values that sites send for a file without a coding (RFC 9110, section 8.4.1,
// reserves `identity`).
#[tokio::test]
async fn names_that_are_not_codings_are_ignored() {
    const NONE: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nContent-Encoding: None\r\nContent-Length: 2\r\n\r\nok",
    )];
    const CHARSET: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nContent-Encoding: UTF-8\r\nContent-Length: 2\r\n\r\nok",
    )];
    const IDENTITY: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nContent-Encoding: Identity, none\r\nContent-Length: 2\r\n\r\nok",
    )];
    const PLAIN_GZIP: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nContent-Encoding: none, GZip\r\nContent-Length: 2\r\n\r\nok",
    )];
    for script in [NONE, CHARSET, IDENTITY, PLAIN_GZIP] {
        let hop = fetched(script).await.unwrap();
        assert_eq!(&*hop.body().bytes, b"ok");
    }
}

// RFC 9309, section 2.3.1.4.
#[tokio::test]
async fn a_truncated_body_is_not_a_file() {
    const SHORT: &[Step] = &[Step::Answer(
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
    )];
    assert!(matches!(fetched(SHORT).await, Err(Cause::Broken)));
}

#[tokio::test]
async fn the_page_reuses_the_connection_of_a_missing_file() {
    const MISSING: Step = Step::Answer("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone");
    let origin = RawOrigin::start(&[&[MISSING, OK]]).await;
    let setup = setup(&origin);
    assert_eq!(
        fetch(&setup, &Asker::default()).await.unwrap().status(),
        404
    );
    assert_eq!(setup.page("http://h.test/").await, "ok");
    assert_eq!(origin.connections(), 1);
}
