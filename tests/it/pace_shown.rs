//! The output of `pace show` for a proxy with a queue and a back-off.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::kit::client::{Crawler, get};
use crate::kit::origin::Script;
use crate::kit::paced::{asking_for_less, queue, standard};
use crate::kit::proxy::Proxy;

/// Returns the output of `pace show` with these arguments.
async fn show(proxy: &Proxy, arguments: &[&str]) -> String {
    let outcome = proxy
        .run_admin(&[&["pace", "show"], arguments].concat())
        .await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    outcome.stdout
}

/// Starts an origin at `[::1]` with a `Crawl-delay` of a minute, and returns its port.
async fn start_ipv6_origin() -> u16 {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4_096]).await;
            let robots = "User-agent: *\nCrawl-delay: 60\n";
            let head = format!("Content-Length: {}\r\nConnection: close", robots.len());
            let answer = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{robots}");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    port
}

/// Returns the cells of each line after the heading.
fn cells(table: &str) -> Vec<Vec<&str>> {
    let lines = table.lines().skip(1);
    lines
        .map(|line| line.split_whitespace().collect())
        .collect()
}

#[tokio::test]
async fn pace_show_lists_queues_and_back_offs() {
    let less = asking_for_less(503, Some("300"));
    let busy = Script::robots("").page("/1", less).start().await;
    let port = start_ipv6_origin().await;
    let config = standard(&busy).set("egress.allow = [\"::1\"]");
    let proxy = config.start().await;
    let first = get(&proxy, &format!("http://[::1]:{port}/1")).await;
    assert_eq!(first.status(), 200, "{}", first.text());
    assert_eq!(get(&proxy, "http://o.test/1").await.status(), 503);
    let mut waiting = Crawler::plain(&proxy).await;
    let line = format!("GET http://[::1]:{port}/2 HTTP/1.1\r\nHost: [::1]:{port}\r\n");
    waiting
        .send((line + "User-Agent: ExampleBot/1.0\r\n\r\n").as_bytes())
        .await;
    queue(&proxy, 1).await;
    let all = show(&proxy, &[]).await;
    let rows = cells(&all);
    assert_eq!(rows.len(), 2, "{all}");
    let row = |host: &str| rows.iter().find(|row| row[0] == host).unwrap();
    let slow = row("[::1]");
    assert_eq!(
        (&slow[1..3], slow[4], slow[5]),
        (&["0", "1"][..], "crawl_delay", "-")
    );
    let left = row("o.test");
    assert_eq!((&left[1..3], left[4]), (&["0", "0"][..], "backoff"));
    assert_eq!(left[3], left[5]);
    for spelling in ["::1", "[::1]", "0:0:0:0:0:0:0:1"] {
        let one = show(&proxy, &["--host", spelling]).await;
        assert_eq!(cells(&one).len(), 1, "{spelling}: {one}");
        assert!(one.contains("[::1]"), "{spelling}: {one}");
    }
    let one = show(&proxy, &["--host", "O.test.", "--json"]).await;
    let one: Value = serde_json::from_str(&one).unwrap();
    assert_eq!(
        (&one["hosts"][0]["host"], &one["total"]),
        (&"o.test".into(), &1.into())
    );
    let nobody = show(&proxy, &["--host", "nobody.test"]).await;
    assert_eq!(cells(&nobody), Vec::<Vec<&str>>::new());
    let first = show(&proxy, &["--limit", "1"]).await;
    assert!(
        first.ends_with("1 of 2 hosts; --limit 0 shows all\n"),
        "{first}"
    );
}
