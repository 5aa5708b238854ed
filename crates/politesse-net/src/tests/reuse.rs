//! Connections that are used again, and requests that are sent again.

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
async fn a_connection_is_used_again_after_a_clean_end() {
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
async fn a_body_dropped_half_way_closes_its_connection() {
    const LONG: Step = Step::Answer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab");
    let origin = RawOrigin::start(&[&[LONG, Step::Hold], &[OK]]).await;
    let setup = setup(&origin);
    drop(setup.get(URL).await.unwrap());
    assert_eq!(setup.page(URL).await, "ok");
    assert_eq!(origin.connections(), 2);
}

// Ours: an origin that does not read the body takes it for the next request, and its
// answer would be that to another crawler.
#[tokio::test]
async fn a_connection_with_an_upload_is_used_for_nothing_else() {
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

// Ours: hyper writes all that follows an HTTP/1.0 answer as HTTP/1.0, where a body of
// unknown length is none.
#[tokio::test]
async fn a_connection_of_an_old_origin_is_not_used_again() {
    const OLD: Step =
        Step::Answer("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok");
    let origin = RawOrigin::start(&[&[OLD, OK], &[OK]]).await;
    let setup = setup(&origin);
    assert_eq!(setup.page(URL).await, "ok");
    assert_eq!(setup.page(URL).await, "ok");
    assert_eq!(origin.connections(), 2);
}

// proxy, section 3, 7: an origin that closes as we write made 502s.
#[tokio::test]
async fn an_origin_that_closes_idle_connections_is_asked_again() {
    let origin = RawOrigin::start(&[&[OK, Step::Close], &[OK, Step::Close], &[OK]]).await;
    let setup = setup(&origin);
    for _ in 0..3 {
        assert_eq!(setup.page(URL).await, "ok");
    }
    assert_eq!(origin.connections(), 3);
    assert_eq!(setup.metrics.upstream_retries.get(), 2);
    assert_eq!(origin.requests().len(), 5);
}

/// Asks for the URL at a host of this pace; whether an answer came.
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

// Ours: a process that stood still may find its host in the hands of another node.
#[tokio::test]
async fn nothing_is_sent_in_a_turn_that_was_lost() {
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

// Ours: no two starts closer than the delay. What is sent again is a start of
// its own.
#[tokio::test]
async fn nothing_is_sent_again_without_another_start() {
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

// The same: where the pause is long nothing has to be sent again.
#[tokio::test]
async fn behind_a_long_pause_no_connection_is_used_again() {
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
async fn a_connection_closed_in_time_is_not_used() {
    let origin = RawOrigin::start(&[&[OK]]).await;
    let setup = setup(&origin);
    for _ in 0..20 {
        assert_eq!(setup.page(URL).await, "ok");
    }
    assert_eq!(origin.requests().len(), 20);
}

// RFC 9110, section 9.2.2: what may have had an effect is not repeated.
#[tokio::test]
async fn what_may_have_had_an_effect_is_not_sent_again() {
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
async fn a_fresh_connection_that_fails_is_not_tried_again() {
    let origin = RawOrigin::start(&[&[Step::Close], &[OK]]).await;
    let sent = setup(&origin).get(URL).await;
    assert!(matches!(sent.unwrap_err(), UpstreamError::Incomplete(_)));
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn free_connections_are_bounded_in_number_and_time() {
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

// Ours: 1,047 descriptors were open 20 s after a crawl.
#[tokio::test]
async fn an_idle_connection_is_closed_though_no_request_comes() {
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
async fn the_connection_free_for_longest_makes_room() {
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
