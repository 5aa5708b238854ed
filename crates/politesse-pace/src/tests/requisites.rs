//! Files that a page embeds: they share its turn, within limits, and no faster than the
//! site allows.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;

use super::kit::*;
use crate::options::{Options, RequisiteLimits};
use crate::policy::{PaceLimits, PacePolicy, Profile};
use crate::{Destination, Embedding, UrlNumber};
use tokio::time::sleep;

fn url(path: &str) -> UrlNumber {
    UrlNumber::of(&format!("http://site.example{path}").parse().unwrap())
}

fn page(path: &str) -> Embedding {
    Embedding {
        url: url(path),
        referrer: None,
        destination: Destination::Page,
    }
}

/// A file, marked by its `Sec-Fetch-Dest`.
fn file(path: &str) -> Embedding {
    Embedding {
        destination: Destination::File,
        ..page(path)
    }
}

/// A request with only a `Referer`.
fn referred(path: &str, by: &str) -> Embedding {
    Embedding {
        referrer: Some(url(by)),
        destination: Destination::Unknown,
        ..page(path)
    }
}

fn get(embedding: Embedding) -> Get {
    Get {
        embedding: Some(embedding),
        ..Get::by("a", None)
    }
}

fn limits(in_flight: u32, rate: &str) -> PaceLimits {
    PaceLimits {
        in_flight: NonZeroU32::new(in_flight),
        rate: rate.parse().ok(),
    }
}

/// One request a second, 4 in flight, and 5 files per page within a minute.
fn options() -> Options {
    let policy = PacePolicy::new(Profile::Standard, &limits(4, "1/s"), Vec::new());
    Options {
        policy: Arc::new(policy),
        requisites: RequisiteLimits {
            files: NonZeroUsize::new(5).unwrap(),
            ..RequisiteLimits::default()
        },
        ..Options::default()
    }
}

/// Makes these requests one after the other without waiting for their turns, then waits
/// ten seconds. Returns the start times in milliseconds.
async fn starts(options: Options, gets: impl IntoIterator<Item = Get>) -> Vec<u128> {
    let origin = Origin::new(options);
    for get in gets {
        origin.get(get).await;
    }
    sleep(seconds(10)).await;
    origin.times()
}

/// Returns how many of the requests in `gets` start without turns of their own after the
/// page `/`.
async fn followed(gets: impl IntoIterator<Item = Get>) -> usize {
    let all = [get(page("/"))].into_iter().chain(gets);
    let times = starts(options(), all).await;
    times.iter().filter(|at| **at == 0).count() - 1
}

// Ours: `pace.requisites`.
#[tokio::test(start_paused = true)]
async fn files_share_the_turn_of_their_page_and_hold_up_no_page() {
    let other = Get {
        crawler: "b".to_owned(),
        ..get(page("/other"))
    };
    let files = [file("/1"), referred("/2", "/")].map(get);
    let gets = [get(page("/")), other].into_iter().chain(files);
    assert_eq!(starts(options(), gets).await, [0, 0, 0, 1000]);
}

#[tokio::test(start_paused = true)]
async fn a_page_has_a_limited_number_of_files() {
    let files = (0..8).map(|number| get(file(&format!("/{number}"))));
    assert_eq!(followed(files).await, 5);
    let files = (0..8).map(|number| get(referred(&format!("/{number}"), "/")));
    let all = [get(page("/"))].into_iter().chain(files);
    // Later files need turns of their own, and bring no further files.
    let own = [1000, 2000, 3000];
    let times = starts(options(), all).await;
    assert_eq!(times, [[0; 6].as_slice(), &own].concat());
}

#[tokio::test(start_paused = true)]
async fn a_style_sheet_embeds_files_of_its_page() {
    let files = [referred("/a.css", "/"), referred("/font", "/a.css")];
    assert_eq!(followed(files.map(get)).await, 2);
}

#[tokio::test(start_paused = true)]
async fn only_files_of_the_page_start_without_a_turn() {
    let by_another = Get {
        crawler: "b".to_owned(),
        ..get(file("/1"))
    };
    let rows = [
        ("a page", get(referred("/1", "/never"))),
        (
            "a link",
            get(Embedding {
                referrer: Some(url("/")),
                ..page("/1")
            }),
        ),
        ("a crawler without the key", Get::by("a", None)),
        ("another client", get(file("/1")).at(7)),
        ("another crawler", by_another),
        (
            "another host",
            Get {
                host: "other.example",
                ..get(file("/1"))
            },
        ),
    ];
    for (name, request) in rows {
        let origin = Origin::new(options());
        // Nothing else delays a request here.
        let of_other = Get {
            host: request.host,
            ..Get::by("c", None)
        };
        origin.get(get(page("/"))).await;
        origin.get(of_other).await;
        origin.get(request).await;
        sleep(seconds(10)).await;
        assert_eq!(
            origin.scheduler.context.metrics.pace_requisites.get(),
            0,
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn files_no_longer_follow_a_page_after_its_time() {
    for (after, expected) in [(59, 1), (60, 0)] {
        let origin = Origin::new(options());
        origin.get(get(page("/"))).await;
        sleep(seconds(after)).await;
        origin.get(get(referred("/1", "/"))).await;
        let metrics = &origin.scheduler.context.metrics;
        assert_eq!(metrics.pace_requisites.get(), expected, "{after}");
    }
}

// Ours: any crawler can send the fields of a browser.
#[tokio::test(start_paused = true)]
async fn each_file_keeps_the_delay_of_the_site() {
    let asked = asked(2);
    let gets = [page("/"), file("/1"), file("/2")].map(|embedding| Get {
        asked: asked.clone(),
        ..get(embedding)
    });
    assert_eq!(starts(options(), gets).await, [0, 2000, 4000]);
}

#[tokio::test(start_paused = true)]
async fn a_back_off_holds_up_files() {
    let origin = Origin::new(options());
    origin.get(get(page("/"))).await;
    let turn = origin.turn(get(file("/1"))).await.unwrap();
    turn.mark_sent();
    turn.record_status(429, Some(seconds(3)));
    drop(turn);
    origin.get(get(file("/2"))).await;
    sleep(seconds(10)).await;
    assert_eq!(origin.times(), [0, 3000]);
}

#[tokio::test(start_paused = true)]
async fn files_count_as_requests_in_flight() {
    let files = (0..5).map(|number| get(file(&format!("/{number}"))).taking(seconds(3)));
    let gets = [get(page("/"))].into_iter().chain(files);
    assert_eq!(starts(options(), gets).await, [0, 0, 0, 0, 0, 3000]);
}

// Ours: a page that waits for the rate of a ceiling is first in its line.
#[tokio::test(start_paused = true)]
async fn the_rate_of_a_ceiling_does_not_apply_to_files() {
    let ceilings = Options {
        total: limits(2, "1/s"),
        ..profile(Profile::Owned)
    };
    let gets = [page("/"), page("/next"), file("/1"), file("/2")].map(get);
    assert_eq!(starts(ceilings, gets).await, [0, 0, 0, 1000]);
}

// Ours: when both may start, files and pages alternate.
#[tokio::test(start_paused = true)]
async fn files_and_pages_share_the_places_of_a_host() {
    let policy = PacePolicy::new(Profile::Owned, &limits(1, ""), Vec::new());
    let origin = Origin::new(Options {
        policy: Arc::new(policy),
        ..Options::default()
    });
    let by = |crawler: &str, embedding| Get {
        crawler: crawler.to_owned(),
        ..get(embedding).taking(seconds(1))
    };
    origin.get(by("a", page("/"))).await;
    sleep(seconds(1)).await;
    for _ in 0..3 {
        origin.get(by("a", file("/1"))).await;
    }
    for _ in 0..3 {
        origin.get(by("b", page("/2"))).await;
    }
    sleep(seconds(10)).await;
    assert_eq!(origin.order(), ["a", "a", "a", "b", "a", "b", "b"]);
}

// ARCHITECTURE.md, invariant 8.
#[tokio::test(start_paused = true)]
async fn remembered_pages_are_limited_in_number_and_time() {
    let origin = Origin::new(profile(Profile::Owned));
    for number in 0..100 {
        origin.get(get(page(&format!("/{number}")))).await;
    }
    let followed = async |path| {
        let metrics = &origin.scheduler.context.metrics;
        let before = metrics.pace_requisites.get();
        origin.get(get(referred("/1", path))).await;
        metrics.pace_requisites.get() - before
    };
    assert_eq!((followed("/36").await, followed("/35").await), (1, 0));
    sleep(seconds(61)).await;
    origin.scheduler.sweep();
    let client = origin.client(0);
    // One reference in the directory, and this one.
    assert_eq!(Arc::strong_count(&client), 2);
}
