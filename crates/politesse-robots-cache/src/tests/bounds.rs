//! Limits of the cache: time, number, bytes.

use std::num::NonZeroUsize;

use hyper::rt::Executor;
use tokio::time::{advance, sleep};

use super::kit::*;
use super::*;
use politesse_base::clients::directory::ClientDirectory;
use politesse_base::tasks::Tasks;

#[tokio::test(start_paused = true)]
async fn a_thousand_requests_share_one_fetch() {
    let script = Script::default().at(ROBOTS, [after(SECOND, text("User-agent: *"))]);
    let cache = Arc::new(cache(&script));
    let tasks = Tasks::default();
    for _ in 0..1000 {
        let cache = Arc::clone(&cache);
        tasks.execute(async move {
            assert!(ask(&cache).await.file().is_some());
        });
    }
    tasks.0.close();
    tasks.0.wait().await;
    assert_eq!(script.asked(), [ROBOTS]);
}

// RFC 9309, section 2.3.1.4.
#[tokio::test(start_paused = true)]
async fn all_hops_together_have_one_time_limit() {
    let script = Script::default()
        .at(ROBOTS, [after(20 * SECOND, to("/1"))])
        .at("http://a.test/1", [after(20 * SECOND, text(""))]);
    let began = clock::instant();
    let snapshot = ask(&cache(&script)).await;
    assert_eq!(cause(&snapshot), Some(Cause::Timeout));
    assert_eq!(
        (snapshot.url.as_str(), snapshot.status),
        ("http://a.test/1", None)
    );
    assert_eq!(snapshot.hops, [ROBOTS]);
    assert_eq!(clock::instant().duration_since(began).as_secs(), 30);

    let script = Script::default().at(ROBOTS, [Reply::Never]);
    assert_eq!(cause(&*ask(&cache(&script)).await), Some(Cause::Timeout));
}

/// Returns the URLs of the robots.txt files of `count` hosts.
fn robots_urls(count: usize) -> Vec<String> {
    let hosts = 0..count;
    hosts
        .map(|n| format!("http://h{n}.test/robots.txt"))
        .collect()
}

/// Adds an answer with `file` for each of `urls`.
fn serving(script: Script, urls: &[String], file: &'static str) -> Script {
    let add = |script: Script, url: &String| script.at(url, [text(file)]);
    urls.iter().fold(script, add)
}

/// Returns a cache that keeps two snapshots at most.
fn cache_of_two(script: &Script) -> RobotsCache<Script> {
    let options = Options {
        max_snapshots: NonZeroUsize::new(2).unwrap(),
        ..options()
    };
    cache_with(options, script)
}

// Ours: a wildcard domain can serve a large file under any number of names.
#[tokio::test(start_paused = true)]
async fn the_bytes_of_snapshots_are_limited() {
    let file: &'static str = "#".repeat(99_000).leak();
    let urls = robots_urls(20);
    let script = serving(Script::default(), &urls, file);
    let options = Options {
        max_snapshot_bytes: 500_000,
        ..options()
    };
    let cache = cache_with(options, &script);
    for url in &urls {
        ask_as(&cache, url, "ExampleBot").await;
    }
    assert_eq!(cache.worker.table.len(), 5);
}

// Ours: an origin may send a field of any length.
#[tokio::test(start_paused = true)]
async fn the_bytes_of_a_content_type_are_limited() {
    let long: &'static str = Box::leak("x".repeat(100_000).into_boxed_str());
    let reply = Reply::Answer(200, vec![("content-type", long)], "User-agent: *");
    let snapshot = ask(&cache(&Script::default().at(ROBOTS, [reply]))).await;
    let kept = snapshot.file().unwrap().content_type.clone().unwrap();
    assert_eq!(kept.len(), 256);
}

// Ours: a wildcard domain can also redirect to long URLs that end without a file.
#[tokio::test(start_paused = true)]
async fn the_bytes_of_hops_are_limited() {
    let long: &str = format!("/{}", "x".repeat(7_900)).leak();
    let origins: Vec<String> = (0..20).map(|n| format!("http://h{n}.test")).collect();
    let script = origins.iter().fold(Script::default(), |script, origin| {
        script
            .at(&format!("{origin}/robots.txt"), [to(long)])
            .at(&format!("{origin}{long}"), [to("/2")])
            .at(&format!("{origin}/2"), [status(404)])
    });
    let options = Options {
        max_snapshot_bytes: 80_000,
        ..options()
    };
    let cache = cache_with(options, &script);
    for origin in &origins {
        ask_as(&cache, origin, "ExampleBot").await;
    }
    assert_eq!(cache.worker.table.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_snapshots_is_limited() {
    let urls = robots_urls(100);
    let script = serving(Script::default(), &urls, "");
    let cache = cache_of_two(&script);
    for url in &urls {
        let snapshot = ask_as(&cache, url, "ExampleBot").await;
        assert!(holds(&cache, &snapshot), "{url}");
    }
    assert_eq!(cache.worker.table.len(), 2);
    assert_eq!(script.asked(), urls);
}

// Ours: running fetches are not in the limited list.
#[tokio::test(start_paused = true)]
async fn a_running_fetch_cannot_be_evicted() {
    let slow = Script::default().at(ROBOTS, [after(20 * SECOND, text(""))]);
    let urls = robots_urls(50);
    let script = serving(slow, &urls, "");
    let cache = cache_of_two(&script);
    assert!(timeout(SECOND, ask(&cache)).await.is_err());
    for url in &urls {
        ask_as(&cache, url, "ExampleBot").await;
    }
    assert_eq!(cache.worker.table.len(), 2);
    assert!(ask(&cache).await.file().is_some());
    assert_eq!(
        script.asked().iter().filter(|url| *url == ROBOTS).count(),
        1
    );
}

// Ours: `robots.max_fetches`. The next fetches wait, and then have their full time.
#[tokio::test(start_paused = true)]
async fn running_fetches_are_limited_and_others_wait() {
    let (b, c) = ("http://b.test/robots.txt", "http://c.test/robots.txt");
    let script = Script::default()
        .at(ROBOTS, [after(20 * SECOND, text(""))])
        .at(b, [after(5 * SECOND, text(""))])
        .at(c, [after(20 * SECOND, text(""))]);
    let options = Options {
        max_fetches: NonZeroUsize::new(1).unwrap(),
        ..options()
    };
    let cache = cache_with(options, &script);
    let began = clock::instant();
    let waited = || clock::instant().duration_since(began).as_secs();
    let (first, second, third) = tokio::join!(
        async { (ask(&cache).await, waited()) },
        async { (ask_as(&cache, b, "ExampleBot").await, waited()) },
        async { (ask_as(&cache, c, "ExampleBot").await, waited()) },
    );
    assert!(first.0.file().is_some() && first.1 == 20);
    assert!(second.0.file().is_some() && second.1 == 25);
    assert!(third.0.file().is_some() && third.1 == 45);
    assert_eq!(script.asked(), [ROBOTS, b, c]);
    assert_eq!(cache.worker.table.metrics.robots_fetches_under_way.get(), 0);
}

// Ours: neither the running fetches of a client nor its queued ones hold up another
// client, which may want the same robots.txt.
#[tokio::test(start_paused = true)]
async fn no_client_waits_for_the_fetches_of_another() {
    let hanging = ["http://h0.test/robots.txt", "http://h1.test/robots.txt"];
    let mut script = Script::default().at(ROBOTS, [text("User-agent: *")]);
    for url in hanging {
        script = script.at(url, [Reply::Never]);
    }
    let options = Options {
        max_fetches: NonZeroUsize::new(4).unwrap(),
        ..options()
    };
    let cache = cache_with(options, &script);
    let directory = ClientDirectory::default();
    let [bad, good] = [1, 2].map(|n| directory.at([192, 0, 2, n].into()));
    let ask = async |client: &Arc<Client>, url| {
        let asker = Asker {
            client: Some(Arc::clone(client)),
            ..Asker::default()
        };
        let inquiry = inquiry(url, "ExampleBot");
        let lookup = cache.snapshot(&inquiry, &asker, Duration::MAX, std::future::pending());
        let snapshot = lookup.await.snapshot;
        (snapshot.file().is_some(), clock::instant())
    };
    let begun = clock::instant();
    let late = async {
        sleep(SECOND).await;
        ask(&good, ROBOTS).await
    };
    let (_, _, queued, late) = tokio::join!(
        ask(&bad, hanging[0]),
        ask(&bad, hanging[1]),
        ask(&bad, ROBOTS),
        late,
    );
    assert_eq!(
        (queued, late),
        ((true, begun + SECOND), (true, begun + SECOND))
    );
    assert_eq!(script.asked().len(), 3);
}

// Ours: a fetch that waits for another fetch holds no slot that the other one needs.
#[tokio::test(start_paused = true)]
async fn a_checked_redirect_finds_a_free_slot() {
    let script = Script::default()
        .at(ROBOTS, [to("http://b.test/open")])
        .at("http://b.test/robots.txt", [text("")])
        .at("http://b.test/open", [text("User-agent: *")]);
    let options = Options {
        max_fetches: NonZeroUsize::new(1).unwrap(),
        ..options()
    };
    assert!(ask(&cache_with(options, &script)).await.file().is_some());
}

// Ours: a large file is read outside the serving threads, and its rules are ready when
// the first decision needs them.
#[tokio::test]
async fn the_rules_of_a_file_are_compiled_for_its_first_crawler() {
    for rules in [1, 20_000] {
        let lines = "Disallow: /private/page\n".repeat(rules);
        let body: &str = format!("User-agent: *\n{lines}").leak();
        let script = Script::default().at(ROBOTS, [text(body)]);
        let snapshot = ask(&cache(&script)).await;
        let robots = &snapshot.file().unwrap().robots;
        let ready = robots.memory();
        let binding = robots.binding(&Crawler::parse("ExampleBot/1.0"));
        assert!(!binding.judge("/private/page").allows());
        assert_eq!(robots.memory(), ready, "{rules}");
        drop(robots.binding(&Crawler::parse("OtherBot")));
        assert!(ready < robots.memory(), "{rules}");
    }
}

// Ours: each fetch is counted by its outcome.
#[tokio::test(start_paused = true)]
async fn metrics_count_fetches_by_outcome() {
    let tagged = Reply::Answer(200, vec![("etag", "1")], "");
    let replies = [tagged, status(304), status(503), status(404), status(503)];
    let script = Script::default().at(ROBOTS, replies);
    let cache = cache(&script);
    for pause in [24 * HOUR, 24 * HOUR, 30 * SECOND, HOUR, SECOND] {
        ask(&cache).await;
        advance(pause).await;
    }
    let rendered = cache.worker.table.metrics.render();
    for result in [
        "successful",
        "confirmed",
        "stale",
        "unavailable",
        "unreachable",
    ] {
        let line = format!("politesse_robots_fetches_total{{result=\"{result}\"}} 1\n");
        assert!(rendered.contains(&line), "{result}: {rendered}");
    }
}

// RFC 9309, section 2.3.1.4: an origin that was not asked did not fail. A request that
// waits longer than a fetch may take is refused as busy, and the pause stays short.
#[tokio::test(start_paused = true)]
async fn an_origin_that_was_not_asked_has_not_failed() {
    let (b, c) = ("http://b.test/robots.txt", "http://c.test/robots.txt");
    let script = Script::default()
        .at(ROBOTS, [Reply::Never])
        .at(b, [Reply::Never])
        .at(c, [text("User-agent: *")]);
    let options = Options {
        max_fetches: NonZeroUsize::new(1).unwrap(),
        ..options()
    };
    let cache = cache_with(options, &script);
    let later = async |pause, url| {
        sleep(pause).await;
        let snapshot = ask_as(&cache, url, "ExampleBot").await;
        (cause(&snapshot), asked_again_in(&snapshot))
    };
    let (first, second, third) = tokio::join!(
        later(Duration::ZERO, ROBOTS),
        later(SECOND, b),
        later(2 * SECOND, c),
    );
    assert_eq!(first, (Some(Cause::Timeout), 30));
    // It had its full time once its turn came.
    assert_eq!(second, (Some(Cause::Timeout), 30));
    assert_eq!(third, (Some(Cause::Busy), 1));
    assert_eq!(script.asked(), [ROBOTS, b]);
    advance(SECOND).await;
    assert_eq!(later(Duration::ZERO, c).await, (None, 86_400));
}

// Ours: waiting fetches are limited as well, even if their clients hung up in the
// meantime (ARCHITECTURE.md, invariant 8). An earlier copy continues to serve.
#[tokio::test(start_paused = true)]
async fn waiting_fetches_are_limited() {
    let b = "http://b.test/robots.txt";
    let script = Script::default()
        .at(ROBOTS, [Reply::Never])
        .at(b, [text("User-agent: *"), status(404)]);
    let options = Options {
        max_waiting: NonZeroUsize::new(1).unwrap(),
        ..options()
    };
    let cache = cache_with(options, &script);
    ask_as(&cache, b, "ExampleBot").await;
    advance(24 * HOUR).await;
    let hangs = async { cause(&*ask(&cache).await) };
    let refused = async {
        tokio::task::yield_now().await;
        let earlier = ask_as(&cache, b, "ExampleBot").await;
        let none = ask_as(&cache, "http://c.test/", "ExampleBot").await;
        (earlier.file().is_some(), earlier.stale, cause(&none))
    };
    let (hangs, refused) = tokio::join!(hangs, refused);
    assert_eq!(hangs, Some(Cause::Timeout));
    assert_eq!(refused, (true, Some(Cause::Busy), Some(Cause::Busy)));
    assert!(ask_as(&cache, b, "ExampleBot").await.stale.is_none());
    assert_eq!(script.asked(), [b, ROBOTS, b]);
    let rendered = cache.worker.table.metrics.render();
    for line in [
        "politesse_robots_waiting 0\n",
        "politesse_robots_fetches_total{result=\"busy\"} 2\n",
    ] {
        assert!(rendered.contains(line), "{rendered}");
    }
}

// Ours: clients that hung up do not hold up waiting ones, but a fetch that has started
// serves the next request.
#[tokio::test(start_paused = true)]
async fn no_request_waits_for_cancelled_ones() {
    let b = "http://b.test/robots.txt";
    let script = Script::default()
        .at(ROBOTS, [after(20 * SECOND, text(""))])
        .at(b, [text("")]);
    let options = Options {
        max_fetches: NonZeroUsize::new(1).unwrap(),
        ..options()
    };
    let cache = cache_with(options, &script);
    let hang_up = timeout(SECOND, ask(&cache)).await;
    assert!(hang_up.is_err());
    for n in 0..10 {
        let url = format!("http://h{n}.test/");
        let hang_up = timeout(SECOND, ask_as(&cache, &url, "ExampleBot")).await;
        assert!(hang_up.is_err());
    }
    let asked = ask_as(&cache, b, "ExampleBot").await;
    assert!(asked.file().is_some());
    assert_eq!(script.asked(), [ROBOTS, b]);
    assert!(ask(&cache).await.file().is_some());
}
