//! The overview: it covers the requested range, its figures add up, and they are
//! updated live. Every test here is ours.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::dashboard::{Browser, post};
use crate::dashboard_live::Stream;
use crate::kit::client::get;
use crate::kit::clock::{instant, since};
use crate::kit::origin::Script;
use crate::kit::paced::{asking_for_less, standard};
use crate::kit::proxy::{Config, Place};
use crate::kit::{assert_contains, assert_contains_each, assert_members};

/// Sums the field `key` over `entries`.
fn sum(entries: &Value, key: &str) -> u64 {
    let entries = entries.as_array().unwrap().iter();
    entries.map(|entry| entry[key].as_u64().unwrap()).sum()
}

/// Asserts that all figures of an overview cover one range and add up.
fn assert_consistent(json: &Value) {
    let buckets = json["buckets"].as_array().unwrap();
    assert_eq!(buckets[0]["from"], json["from"], "{json}");
    for key in ["requests", "refusals", "bytes"] {
        assert_eq!(sum(&json["buckets"], key), json["sums"][key], "{json}");
    }
    for list in ["crawlers", "over_time"] {
        let requests = sum(&json[list], "requests");
        assert_eq!(requests, json["sums"]["requests"], "{json}");
    }
    for (class, count) in json["sums"]["classes"].as_object().unwrap() {
        let classes = buckets.iter().map(|bucket| &bucket["classes"]);
        let counts = classes.map(|classes| classes[class].as_u64().unwrap());
        assert_eq!(counts.sum::<u64>(), *count, "{class}: {json}");
    }
}

#[tokio::test]
async fn each_range_has_all_its_buckets_and_links() {
    let browser = Browser::new(Config::default()).await;
    // Its class becomes `error` only when its exchange ends.
    get(&browser.proxy, "http://never.test/").await;
    browser.proxy.place().completed(5).await;
    for (hours, step, count) in [
        (1, "minute", 60),
        (24, "hour", 24),
        (168, "day", 7),
        (720, "day", 30),
    ] {
        let path = format!("/api/v1/overview?hours={hours}");
        let json = browser.json(&path).await;
        let expected = json!({"step": step, "counted_from": null, "report_mode": false});
        assert_members(&json, &expected);
        assert_eq!(json["buckets"].as_array().unwrap().len(), count, "{json}");
        assert_members(&json["sums"], &json!({"requests": 5, "refusals": 4}));
        let expected = json!({"name": "Disallow: /private", "refusals": 2});
        assert_members(&json["rules"][0], &expected);
        assert_eq!(json["sums"]["classes"]["error"], 1, "{json}");
        assert_consistent(&json);
        let page = browser.get(&format!("/?hours={hours}")).await.text();
        let wanted = [
            &*format!("Requests each {step}"),
            "rule=Disallow%3A+%2Fprivate\"><code>",
            "href=\"/crawlers?crawler=ExampleBot\"",
        ];
        assert_contains_each(&page, &wanted);
        assert!(!page.contains("Report mode"), "{page}");
        let (_, chart) = page.split_once("<svg class=\"over-time\"").unwrap();
        let (chart, _) = chart.split_once("</svg>").unwrap();
        assert_eq!(chart.matches("<title>").count(), count, "{chart}");
    }
}

#[tokio::test]
async fn figures_are_compared_with_the_previous_period() {
    let browser = Browser::new(Config::default()).await;
    let page = browser.get("/").await.text();
    assert_contains(&page, ">no earlier data<");
    let place = browser.proxy.stop().await;
    let a_day_back = "UPDATE decision SET time_us = time_us - 24 * 3600000000";
    place.database().execute(a_day_back, []).unwrap();
    let browser = Browser::idle(place).await;
    for _ in 0..3 {
        get(&browser.proxy, "http://never.test/").await;
    }
    browser.proxy.place().completed(7).await;
    let json = browser.json("/api/v1/overview").await;
    assert_eq!(json["sums"]["requests"], 3, "{json}");
    assert_eq!(json["before"]["requests"], 4, "{json}");
    assert_consistent(&json);
    let page = browser.get("/").await.text();
    // Requests in total: 3 after 4. Requests refused by a rule: 0 after 3.
    let changes = ["25.0 % fewer than before", "100 % fewer than before"];
    assert_contains_each(&page, &changes);
}

#[tokio::test]
async fn a_restart_keeps_the_minutes_of_the_last_hour() {
    let browser = Browser::new(Config::default()).await;
    let before = browser.json("/api/v1/overview?hours=1").await;
    let place = browser.proxy.stop().await;
    let browser = Browser::idle(place).await;
    get(&browser.proxy, "http://never.test/").await;
    browser.proxy.place().completed(5).await;
    let json = browser.json("/api/v1/overview?hours=1").await;
    assert_eq!(json["sums"]["requests"], 5, "{json}");
    assert_consistent(&json);
    // Live totals count from the start of this process.
    assert_ne!(json["live"]["since"], before["live"]["since"]);
    let totals = json["live"]["classes"].as_object().unwrap().values();
    assert_eq!(totals.map(|count| count.as_u64().unwrap()).sum::<u64>(), 1);
}

/// Returns the data of the newest `counts` event.
fn newest_counts(stream: &Stream) -> Value {
    let events = stream.text.split("event: counts\ndata: ").skip(1);
    let whole = events.filter_map(|event| event.split_once("\n\n"));
    let (data, _) = whole.last().unwrap();
    serde_json::from_str(data).unwrap()
}

#[tokio::test]
async fn a_refusal_is_streamed_within_a_second_and_a_half() {
    let browser = Browser::new(Config::default()).await;
    let base = browser.json("/api/v1/overview").await;
    let mut stream = Stream::open(&browser, "/overview/stream", &[]).await;
    stream.until("event: counts").await;
    stream.until("\n\n").await;
    // The stream starts with the totals that the page shows. Nothing is streamed while
    // nothing is counted.
    assert_eq!(newest_counts(&stream), base["live"]);
    let more = stream.until("event: counts\n\n");
    assert!(timeout(Duration::from_millis(2500), more).await.is_err());
    assert_eq!(stream.text.matches("event: counts").count(), 1);
    let begun = instant();
    get(&browser.proxy, "http://o.test/private/now").await;
    stream.until("\"rule\":4").await;
    let taken = since(begun);
    assert!(taken < Duration::from_millis(1500), "{taken:?}");
    // Page counts plus streamed changes equal the counts of a fresh page.
    browser.proxy.place().completed(5).await;
    let json = browser.json("/api/v1/overview").await;
    assert_eq!(newest_counts(&stream), json["live"]);
    let added = |class: &str| {
        let count = |json: &Value| json[class].as_i64().unwrap();
        count(&json["sums"]["classes"]) - count(&base["sums"]["classes"])
    };
    assert_eq!((added("rule"), added("sent")), (1, 0), "{json}");
    let archive = browser.get("/api/v1/overview/stream?of=archive").await;
    assert_eq!(archive.status(), 400);
}

#[tokio::test]
async fn a_back_off_is_counted_down_and_ended_on_the_overview() {
    let page = asking_for_less(429, Some("630"));
    let origin = Script::robots("").page("/bad", page).start().await;
    let browser = Browser::idle(Place::with(&standard(&origin))).await;
    let proxy = &browser.proxy;
    let (admin, own) = (proxy.admin(), format!("Origin: http://{}", proxy.admin()));
    get(proxy, "http://o.test/bad").await;
    let page = browser.get("/?hours=1").await.text();
    let form = "method=\"post\" action=\"/?hours=1\"";
    assert_contains_each(&page, &["ends in 10 min ", form]);
    let token = browser.form_token().await;
    let order = async |reason: &str| {
        let form = format!("form_token={token}&host=o.test&reason={reason}");
        post(admin, "/?hours=1", &[&own, &browser.cookie], &form).await
    };
    let refused = order("").await;
    assert_eq!(refused.status(), 400);
    assert_contains(&refused.text(), "a reason is wanted");
    let done = order("asked").await;
    assert_eq!(done.status(), 200);
    let wanted = ["The back-off of", "Requests each minute", "None now."];
    assert_contains_each(&done.text(), &wanted);
}
