//! Personal data left out of the record (`audit.query_strings`,
//! `audit.client_addresses`): none of its files has them, and the rest still verifies.

use std::fs;

use serde_json::Value;

use crate::kit::assert_contains;
use crate::kit::client::{get, get_as};
use crate::kit::origin::Script;
use crate::kit::proxy::{Place, resolve};
use crate::kit::raw_origin::find;

/// Secret in the query strings and the user information of the requests.
const SECRET: &str = "s3cr3t";

/// Reports whether any file in the record's folder contains `text`.
fn is_in_record(place: &Place, text: &str) -> bool {
    let entries = fs::read_dir(place.path("data")).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    paths.any(|path| path.is_file() && find(&fs::read(path).unwrap(), text.as_bytes()).is_some())
}

/// Requests URLs with query strings through a proxy with these two settings. Returns its
/// folder and its rows.
async fn crawled(query_strings: &str, client_addresses: &str) -> (Place, Vec<Value>) {
    let plain = Script::robots("User-agent: *\nDisallow: /private\nDisallow: /search$\n");
    let plain = plain.start().await;
    let by_query = Script::robots("User-agent: *\nDisallow: /*?session=\n");
    let by_query = by_query.start().await;
    let proxy = resolve("p.test", plain.address())
        .resolve("q.test", by_query.address())
        .set("audit.store = \"sqlite:data/audit.db\"")
        .set(&format!("audit.query_strings = \"{query_strings}\""))
        .set(&format!("audit.client_addresses = \"{client_addresses}\""))
        .start()
        .await;
    for (url, status) in [
        (format!("http://p.test/private?token={SECRET}"), 403),
        (format!("http://p.test/open?token={SECRET}"), 200),
        (format!("http://p.test/open?token={SECRET}2"), 200),
        (format!("http://p.test/x/../private?token={SECRET}"), 403),
        (format!("http://p.test/search?token={SECRET}"), 200),
        ("http://p.test/search?".to_owned(), 403),
        (format!("http://q.test/a?session={SECRET}"), 403),
        (format!("http://user:{SECRET}@p.test/"), 400),
    ] {
        let reply = get_as(&proxy, "ExampleBot/1.0", &url).await;
        assert_eq!(reply.status(), status, "{url}");
    }
    // The origin gets the whole query string, even if the record does not.
    let target = format!("/open?token={SECRET}");
    assert!(plain.targets().contains(&target));
    proxy.place().completed(7).await;
    let is_full = query_strings == "full";
    assert_eq!(is_in_record(proxy.place(), SECRET), is_full);
    let place = proxy.stop().await;
    assert_eq!(is_in_record(&place, SECRET), is_full, "after a stop");
    let rows = place.rows().await;
    (place, rows)
}

fn values<'a>(rows: &'a [Value], field: &str) -> Vec<&'a str> {
    rows.iter()
        .map(|row| row[field].as_str().unwrap())
        .collect()
}

async fn verified(place: &Place) -> String {
    place.run_ok(&["audit", "verify"]).await.stdout
}

// Ours: user information never reaches the record.
#[tokio::test]
async fn by_default_everything_but_user_information_is_recorded() {
    let (place, rows) = crawled("full", "full").await;
    let urls = values(&rows, "url");
    let url = format!("http://p.test/private?token={SECRET}");
    assert!(urls.contains(&&*url), "{urls:?}");
    assert!(urls.iter().all(|url| !url.contains("user")), "{urls:?}");
    assert!(values(&rows, "client").contains(&"127.0.0.1"));
    assert!(!verified(&place).await.contains("query strings"));
}

// Ours: `verify` decides only the other entries again.
#[tokio::test]
async fn an_omitted_query_string_is_in_no_file_and_the_record_still_verifies() {
    let (place, rows) = crawled("omitted", "shortened").await;
    let urls = values(&rows, "url");
    for url in [
        "http://p.test/private?#",
        "http://p.test/open?#",
        "http://q.test/a?#",
    ] {
        assert!(urls.contains(&url), "{urls:?}");
    }
    let clients = values(&rows, "client");
    assert!(clients.iter().all(|client| *client == "127.0.0.0/24"));
    let said = verified(&place).await;
    assert_contains(&said, "1 by query strings that are not on record");
    // A changed verdict that does not depend on a query string is still found.
    let database = rusqlite::Connection::open(place.path("data/audit.db")).unwrap();
    let changed = database.execute(
        "UPDATE decision SET ruling = (SELECT d.ruling FROM decision AS d WHERE d.path = '/open?#')
             WHERE path = '/private?#'",
        [],
    );
    assert_eq!(changed.unwrap(), 1);
    let outcome = place.run_code(1, &["audit", "verify"]).await;
    assert_contains(&outcome.stdout, "its evidence disallow rule");
}

// Ours: equal values have equal keyed digests, and nothing else can be read from them.
#[tokio::test]
async fn keyed_values_reveal_only_equality() {
    let (place, rows) = crawled("keyed", "keyed").await;
    let mut urls = values(&rows, "url");
    urls.retain(|url| url.starts_with("http://p.test/open?#keyed:"));
    assert_eq!(urls.len(), 2);
    assert_ne!(urls[0], urls[1]);
    let clients = values(&rows, "client");
    assert!(clients.iter().all(|client| client.starts_with("keyed:")));
    place.assert_verified().await;
    // The next start uses the same key.
    let proxy = place.start().await;
    get(&proxy, &format!("http://p.test/open?token={SECRET}")).await;
    let place = proxy.stop().await;
    let rows = place.rows().await;
    let again = values(&rows, "url");
    assert_eq!(again.iter().filter(|url| urls.contains(url)).count(), 3);
}
