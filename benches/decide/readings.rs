//! Cost of judging every reading of a URL (`robots.readings`), compared with judging
//! only the URL as sent.

use std::hint::black_box;
use std::sync::Arc;

use jiff::Timestamp;
use politesse_decision::decide::{Policy, Readings, Unauthorized, ruling};
use politesse_decision::snapshot::Snapshot;
use politesse_robots::reading::of_servers;

use crate::files::{self, Case};
use crate::whole::{inquiry, snapshot};

pub(crate) fn readings() {
    println!(
        "\nreadings of a URL, judged by a small file: as sent, by servers, the readings alone"
    );
    let cases = files::cases();
    let snapshot = snapshot(&cases[0]);
    rows(&snapshot);
    println!("the same, beside a rule that escapes a reserved byte");
    rows(&beside_an_escape(&cases[0]));
}

/// Returns the file of `case` with one more rule, whose path servers read differently
/// from the way it is written.
fn beside_an_escape(case: &Case) -> Arc<Snapshot> {
    let rule = b"\nUser-agent: *\nDisallow: /Special%3ARandom\n";
    snapshot(&Case {
        name: case.name.clone(),
        body: [&case.body[..], rule].concat(),
        urls: case.urls.clone(),
    })
}

fn rows(snapshot: &Arc<Snapshot>) {
    for (name, path) in paths() {
        let inquiry = inquiry(&format!("https://www.example.com{path}"));
        let decided = |readings| {
            let policy = Policy::new(Unauthorized::Allow).with(|terms| terms.readings = readings);
            let at = Timestamp::UNIX_EPOCH;
            crate::time(crate::ROUNDS, || {
                black_box(ruling(black_box(&inquiry), snapshot, &policy, at));
            })
        };
        let (sent, server) = (decided(Readings::Sent), decided(Readings::Server));
        let alone = crate::time(crate::ROUNDS, || {
            black_box(of_servers(black_box(&path)));
        });
        let count = of_servers(&path).len();
        let [sent, server, alone] = [sent, server, alone].map(crate::in_units);
        println!("  {name}: {sent}, {server}, {alone} ({count} readings)");
    }
}

fn paths() -> [(&'static str, String); 8] {
    [
        (
            "plain",
            "/articles/2026/11/how-to-crawl-politely.html".into(),
        ),
        (
            "plain, with a query",
            "/search?q=robots+txt&page=2&sort=date".into(),
        ),
        (
            "plain, escaped",
            "/caf%C3%A9/un%20menu/%E4%B8%AD%E6%96%87.html".into(),
        ),
        ("an escaped reserved byte", "/wiki/Special%3ARandom".into()),
        ("a parameter", "/shop/lamp;jsessionid=1A2B3C4D5E6F".into()),
        ("dots and slashes", "/a//../articles/2026/".into()),
        ("every trick", "//h/a\\..%5c..;x/%2e%2e%2fb;y//c?".into()),
        ("hostile, 16 KiB", format!("/{}", "/..;%5c".repeat(2340))),
    ]
}
