//! Reused connections and retried requests.

use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::{Empty, Full};
use tokio::time::timeout;

use crate::client::{Options, UpstreamError};
use crate::testing::{
    OK, Paced, RawOrigin, Setup, Step, body, options, outgoing, permit, setup, setup_with,
};

const URL: &str = "http://h.test/";

#[tokio::test]
async fn a_connection_is_reused_after_a_clean_end() {
    const CHUNKED: Step =
        Step::Answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    const NONE: Step = Step::Answer("HTTP/1.1 304 Not Modified\r\n\r\n");
    let origin = RawOrigin::start(&[&[OK, CHUNKED, NONE, OK]]).await;
    let setup = setup(&origin);
    for expected in ["ok", "ok", "", "ok"] {
        assert_eq!(setup.page(URL).await, expected);
    }
    assert_eq!(origin.connections(), 1);
    assert_eq!(setup.metrics.upstream_retries.get(), 0);
}

#[tokio::test]
async fn a_partly_read_body_closes_its_connection() {
    const LONG: Step = Step::Answer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab");
    let origin = RawOrigin::start(&[&[LONG, Step::Hold], &[OK]]).await;
    let setup = setup(&origin);
    drop(setup.get(URL).await.unwrap());
    assert_eq!(setup.page(URL).await, "ok");
    assert_eq!(origin.connections(), 2);
}

// Ours: an origin that does not read the body takes it for the next request, and another
// crawler would get the answer to it.
#[tokio::test]
async fn a_connection_is_not_reused_after_an_upload() {
    for method in [Method::GET, Method::POST] {
        let origin = RawOrigin::start(&[&[OK, OK], &[OK]]).await;
        let setup = setup(&origin);
        let mut head = outgoing(method, &[]);
        let upload = Full::new(Bytes::from_static(b"GET /private HTTP/1.1\r\n\r\n"));
        let mut paced = at(Duration::ZERO, 1);
        let sent = setup
            .upstream
            .forward(permit(URL), &mut head, upload, &mut paced);
        assert_eq!(body(sent.await.unwrap()).await.unwrap(), "ok");
        assert_eq!(setup.page(URL).await, "ok");
        assert_eq!(origin.connections(), 2);
        let first = origin.requests()[0].to_ascii_lowercase();
        assert!(first.contains("\r\nconnection: close\r\n"), "{first}");
    }
}

// Ours: after an HTTP/1.0 answer, hyper sends later requests as HTTP/1.0, where a body of
// unknown length cannot be sent.
#[tokio::test]
async fn a_connection_is_not_reused_after_http_1_0() {
    const OLD: Step =
        Step::Answer("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok");
    let origin = RawOrigin::start(&[&[OLD, OK], &[OK]]).await;
    let setup = setup(&origin);
    assert_eq!(setup.page(URL).await, "ok");
    assert_eq!(setup.page(URL).await, "ok");
    assert_eq!(origin.connections(), 2);
}

// Ours: an origin that closes an idle connection during a write must not cause a 502.
#[tokio::test]
async fn a_request_on_a_closed_idle_connection_is_retried() {
    let origin = RawOrigin::start(&[&[OK, Step::Close], &[OK, Step::Close], &[OK]]).await;
    let setup = setup(&origin);
    for _ in 0..3 {
        assert_eq!(setup.page(URL).await, "ok");
    }
    assert_eq!(origin.connections(), 3);
    assert_eq!(setup.metrics.upstream_retries.get(), 2);
    assert_eq!(origin.requests().len(), 5);
}

/// Requests the URL at a host of this pace. Returns whether an answer came.
async fn at_pace(setup: &Setup, mut starts: Paced) -> bool {
    let (mut head, body_sent) = (outgoing(Method::GET, &[]), Empty::<Bytes>::new());
    let sent = setup
        .upstream
        .forward(permit(URL), &mut head, body_sent, &mut starts);
    match sent.await {
        Ok(response) => body(response).await.is_ok(),
        Err(_) => false,
    }
}

fn at(pause: Duration, left: usize) -> Paced {
    Paced {
        pause,
        left,
        lost: 0,
    }
}

// Ours: while a process is suspended, another node may take over the host.
#[tokio::test]
async fn no_request_is_sent_in_a_lost_turn() {
    for (left, lost, seen) in [(1, 1, 1), (0, 1, 0), (2, 2, 0)] {
        let origin = RawOrigin::start(&[&[OK]]).await;
        let setup = setup(&origin);
        let turns = Paced {
            lost,
            ..at(Duration::ZERO, left)
        };
        assert_eq!(at_pace(&setup, turns).await, seen == 1);
        assert_eq!(origin.requests().len(), seen);
    }
}

// Ours: two starts are never closer than the delay, and a retry is a start of its own.
#[tokio::test]
async fn no_request_is_retried_without_another_turn() {
    for (left, answered, seen) in [(1, true, 3), (0, false, 2)] {
        let origin = RawOrigin::start(&[&[OK, Step::Close], &[OK]]).await;
        let setup = setup(&origin);
        let pause = Duration::from_secs(1);
        assert!(at_pace(&setup, at(pause, left)).await);
        assert_eq!(at_pace(&setup, at(pause, left)).await, answered);
        assert_eq!(origin.requests().len(), seen);
        assert_eq!(setup.metrics.upstream_retries.get(), left as u64);
    }
}

// Ours: after a long pause a reused connection is likely to be dead, so a new one avoids
// the retry.
#[tokio::test]
async fn no_connection_is_reused_after_a_long_pause() {
    let origin = RawOrigin::start(&[&[OK, Step::Close]]).await;
    let setup = setup(&origin);
    let pause = Duration::from_millis(1001);
    for count in 1..4 {
        assert!(at_pace(&setup, at(pause, 0)).await);
        assert_eq!(
            (origin.requests().len(), origin.connections()),
            (count, count)
        );
    }
}

#[tokio::test]
async fn a_connection_known_to_be_closed_is_not_reused() {
    let origin = RawOrigin::start(&[&[OK]]).await;
    let setup = setup(&origin);
    for _ in 0..20 {
        assert_eq!(setup.page(URL).await, "ok");
    }
    assert_eq!(origin.requests().len(), 20);
}

// RFC 9110, section 9.2.2: a request that may have had an effect is not repeated.
#[tokio::test]
async fn a_request_that_may_have_had_an_effect_is_not_retried() {
    const HALF: Step = Step::Answer("HTTP/1.1 200 O");
    let head = |method| outgoing(method, &[]);
    let with_body = || Full::new(Bytes::from("abc"));
    for (step, method, upload) in [
        (
            &[OK, Step::Close] as &'static [Step],
            Method::POST,
            with_body(),
        ),
        (&[OK, Step::Close], Method::POST, Full::default()),
        (&[OK, Step::Close], Method::PUT, with_body()),
        (&[OK, HALF], Method::GET, Full::default()),
    ] {
        let origin = RawOrigin::start(&[step, &[OK]]).await;
        let setup = setup(&origin);
        setup.page(URL).await;
        let sent = setup
            .upstream
            .forward(permit(URL), &mut head(method), upload, &mut Paced::freely())
            .await;
        assert!(matches!(sent.unwrap_err(), UpstreamError::Incomplete(_)));
        assert_eq!(origin.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_failure_on_a_new_connection_is_not_retried() {
    let origin = RawOrigin::start(&[&[Step::Close], &[OK]]).await;
    let sent = setup(&origin).get(URL).await;
    assert!(matches!(sent.unwrap_err(), UpstreamError::Incomplete(_)));
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn idle_connections_are_bounded_in_number_and_time() {
    const MANY: &[Step] = &[OK; 8];
    let one = NonZeroUsize::MIN;
    let twice = async |options: Options| {
        let origin = RawOrigin::start(&[MANY]).await;
        let setup = setup_with(&options, &[("h.test", origin.address)]);
        for _ in 0..2 {
            let (a, b) = tokio::join!(setup.get(URL), setup.get(URL));
            body(a.unwrap()).await.unwrap();
            body(b.unwrap()).await.unwrap();
        }
        origin.connections()
    };
    assert_eq!(twice(options()).await, 2);
    assert_eq!(
        twice(Options {
            pool_idle_per_origin: one,
            ..options()
        })
        .await,
        3
    );
    assert_eq!(
        twice(Options {
            pool_idle_total: one,
            ..options()
        })
        .await,
        3
    );
    assert_eq!(
        twice(Options {
            pool_idle_timeout: Duration::ZERO,
            ..options()
        })
        .await,
        4
    );
}

// Ours: a finished crawl must not leave a thousand descriptors open.
#[tokio::test]
async fn an_idle_connection_is_closed_even_without_further_requests() {
    const MANY: &[Step] = &[OK; 8];
    let origin = RawOrigin::start(&[MANY]).await;
    let setup = setup_with(
        &Options {
            pool_idle_timeout: Duration::from_millis(50),
            ..options()
        },
        &[("h.test", origin.address)],
    );
    for count in 1..3 {
        assert_eq!(setup.page(URL).await, "ok");
        timeout(Duration::from_secs(10), origin.ended(count))
            .await
            .unwrap();
    }
    assert_eq!(origin.connections(), 2);
}

#[tokio::test]
async fn the_longest_idle_connection_makes_room() {
    const MANY: &[Step] = &[OK; 8];
    let (a, b) = (
        RawOrigin::start(&[MANY]).await,
        RawOrigin::start(&[MANY]).await,
    );
    let names = [("a.test", a.address), ("b.test", b.address)];
    let setup = setup_with(
        &Options {
            pool_idle_total: NonZeroUsize::MIN,
            ..options()
        },
        &names,
    );
    for url in [
        "http://a.test/",
        "http://b.test/",
        "http://b.test/",
        "http://a.test/",
    ] {
        setup.page(url).await;
    }
    assert_eq!((a.connections(), b.connections()), (2, 1));
}
