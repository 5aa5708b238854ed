//! What is bounded: time, number, octets.

use std::num::NonZeroUsize;

use hyper::rt::Executor;

use super::kit::*;
use super::*;
use crate::tasks::Tasks;

#[tokio::test(start_paused = true)]
async fn a_thousand_askers_share_one_fetch() {
    let script = Script::default().at(ROBOTS, [after(SECOND, text("User-agent: *"))]);
    let cache = Arc::new(cache(&script));
    let tasks = Tasks::default();
    for _ in 0..1000 {
        let cache = Arc::clone(&cache);
        tasks.execute(async move {
            assert!(ask(&cache).await.copy().is_some());
        });
    }
    tasks.0.close();
    tasks.0.wait().await;
    assert_eq!(script.asked(), [ROBOTS]);
}

// RFC 9309, section 2.3.1.4; checklist 29.
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
    assert_eq!(clock::instant().duration_since(began).as_secs(), 30);

    let script = Script::default().at(ROBOTS, [Reply::Never]);
    assert_eq!(cause(&*ask(&cache(&script)).await), Some(Cause::Timeout));
}

// Ours: a wildcard domain can serve a large file under any number of names.
#[tokio::test(start_paused = true)]
async fn the_octets_of_snapshots_are_bounded() {
    let file: &str = "#".repeat(99_000).leak();
    let urls: Vec<String> = (0..20)
        .map(|n| format!("http://h{n}.test/robots.txt"))
        .collect();
    let script = urls.iter().fold(Script::default(), |script, url| {
        script.at(url, [text(file)])
    });
    let options = Options {
        max_snapshot_bytes: 500_000,
        ..options()
    };
    let cache = cache_with(options, &script);
    for url in &urls {
        ask_as(&cache, url, "ExampleBot").await;
    }
    assert_eq!(cache.shared.snapshots.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_snapshots_is_bounded() {
    let mut script = Script::default();
    let urls: Vec<String> = (0..100)
        .map(|n| format!("http://h{n}.test/robots.txt"))
        .collect();
    for url in &urls {
        script = script.at(url, [text("")]);
    }
    let max_snapshots = NonZeroUsize::new(2).unwrap();
    let cache = cache_with(
        Options {
            max_snapshots,
            ..options()
        },
        &script,
    );
    for url in &urls {
        let snapshot = ask_as(&cache, url, "ExampleBot").await;
        assert!(cache.holds(&snapshot), "{url}");
    }
    assert_eq!(cache.shared.snapshots.len(), 2);
    assert_eq!(script.asked(), urls);
}
