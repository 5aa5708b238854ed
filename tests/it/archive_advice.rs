//! Faults of the archive, each reported with the remedy. All ours; docs/archive.md.

use crate::archive_faults::{config, origin, recorded, ship_once};
use crate::kit::addresses::free_address;
use crate::kit::client::get;
use crate::kit::fleet::write_private;
use crate::kit::origin::Origin;
use crate::kit::postgres::Postgres;
use crate::kit::proxy::Place;
use crate::kit::{assert_contains, until};

/// Asserts that a node whose configuration has `lines` reports the fault of its archive,
/// and still serves requests: `audit ship` and the log have all of `told`.
async fn assert_fault_reported(origin: &Origin, lines: &[&str], told: [&str; 2]) {
    let config = config(origin).set("audit.archive_timeout = \"2s\"");
    let place = Place::with(&lines.iter().fold(config, |config, line| config.set(line)));
    write_private(&place, "wrong", "writer:wrong\n");
    write_private(&place, "reader", "reader:secret\n");
    let proxy = place.start().await;
    let reply = get(&proxy, "http://o.test/open").await;
    assert_eq!(reply.status(), 200, "{}", reply.text());
    let is_told = |text: &str| told.iter().all(|part| text.contains(part));
    until(told[0], async || is_told(&proxy.log()).then_some(())).await;
    let place = proxy.stop().await;
    let outcome = place.audit_code(1, "ship --once").await;
    assert!(is_told(&outcome.stderr), "{told:?}: {outcome:?}");
    assert!(!outcome.stderr.contains("secret"), "{outcome:?}");
}

// Ours: every message names the key to change.
#[tokio::test]
async fn an_archive_fault_names_the_key_to_change_and_stops_no_request() {
    let origin = origin().await;
    let mut postgres = Postgres::start().await;
    for sql in [
        "CREATE ROLE writer LOGIN PASSWORD 'secret'; CREATE ROLE reader LOGIN PASSWORD 'secret'",
        "CREATE DATABASE other",
        "CREATE DATABASE latin OWNER politesse ENCODING 'LATIN1' TEMPLATE template0",
    ] {
        postgres.sql(sql).await;
    }
    let place = recorded(2).await;
    ship_once(&place, &postgres).await;
    let grant = "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader";
    postgres.sql(grant).await;
    let archive = |url: String| format!("audit.archive = \"{url}\"");
    let database = |name: &str| archive(postgres.url_of(name));
    let own = archive(postgres.url());
    let absent = format!("postgres://{}/a?sslmode=disable", free_address());
    let [wrong, reader] =
        ["wrong", "reader"].map(|file| format!("audit.archive_auth = \"{file}\""));
    for (lines, told) in [
        (
            &[&*own, &wrong][..],
            ["refuses the name or the password", "audit.archive_auth"],
        ),
        (&[&own, &reader], ["may not write", "audit.archive_auth"]),
        (&[&database("other")], ["may not", "audit.archive_auth"]),
        (
            &[&database("nowhere")],
            ["no such database", "audit.archive"],
        ),
        (
            &[&archive(postgres.tls_url())],
            ["certificate", "audit.archive_ca"],
        ),
        (&[&archive(absent)], ["cannot be reached", "audit.archive"]),
        (
            &[&database("latin")],
            ["has the encoding LATIN1", "--encoding UTF8"],
        ),
    ] {
        assert_fault_reported(&origin, lines, told).await;
    }
    postgres.sql("UPDATE archive SET version = 99").await;
    assert_fault_reported(&origin, &[&own], ["version 99", "audit.archive"]).await;
    postgres.signal("STOP");
    assert_fault_reported(&origin, &[&own], ["no answer", "audit.archive_timeout"]).await;
    postgres.kill();
}

/// Asserts that `audit` with `words` fails, and that its message has `said` and refers to
/// the documentation.
async fn assert_fails(place: &Place, words: &str, said: &str) {
    let text = place.audit_code(1, words).await.stderr;
    assert_contains(&text, said);
    assert_contains(&text, "docs/archive.md, Messages");
}

/// Asserts that shipping to the archive at `url` fails with `said` in the message.
async fn assert_shipping_fails(place: &Place, url: &str, said: &str) {
    assert_fails(place, &format!("ship --once --to {url}"), said).await;
}

// Ours: the database is used by another program, or someone has changed its tables.
#[tokio::test]
async fn a_message_names_tables_that_do_not_fit_an_archive() {
    let postgres = Postgres::start().await;
    let (place, other) = tokio::join!(recorded(2), recorded(2));
    for (name, sql, said) in [
        ("a", "CREATE TABLE node (x int)", "another program's"),
        (
            "b",
            "CREATE TABLE archive (version text); ALTER TABLE archive OWNER TO politesse",
            "the table archive of the archive has no column version of the type int,",
        ),
        (
            "c",
            "CREATE SCHEMA politesse; GRANT USAGE ON SCHEMA politesse TO politesse",
            "may not write to the archive",
        ),
    ] {
        let url = postgres.changed(name, sql).await;
        assert_shipping_fails(&place, &url, said).await;
    }
    ship_once(&place, &postgres).await;
    for (name, sql, said) in [
        (
            "d",
            "ALTER TABLE event DROP COLUMN detail",
            "the table event of the archive has no column detail of the type text,",
        ),
        (
            "e",
            "DROP TABLE policy CASCADE",
            "the table policy of the archive has no column sha256",
        ),
        (
            "f",
            "ALTER TABLE node ALTER last TYPE text",
            "the table node of the archive has no column last of the type bigint,",
        ),
        (
            "g",
            "INSERT INTO archive VALUES (2)",
            "the table archive of the archive has 2 rows in place of one,",
        ),
        // A missing constraint shows only in the error of a statement that needs it.
        (
            "h",
            "ALTER TABLE node DROP CONSTRAINT node_record_key",
            "was changed",
        ),
        (
            "i",
            "ALTER SCHEMA public RENAME TO hidden; CREATE SCHEMA public",
            "may not write to the archive",
        ),
    ] {
        let url = postgres.changed(name, sql).await;
        assert_shipping_fails(&other, &url, said).await;
    }
    let hidden = format!("--archive={} list", postgres.url_of("i"));
    assert_fails(&place, &hidden, "has its tables in the schema hidden").await;
}

// Ours: the message explains the server's error or the missing privilege.
#[tokio::test]
async fn a_server_that_rejects_writes_is_reported_with_a_remedy() {
    let postgres = Postgres::start().await;
    let place = recorded(2).await;
    ship_once(&place, &postgres).await;
    let url = postgres.url();
    for (set, unset, said) in [
        (
            "ALTER ROLE politesse CONNECTION LIMIT 0",
            "ALTER ROLE politesse CONNECTION LIMIT -1",
            "has no connection left",
        ),
        (
            "REVOKE CONNECT ON DATABASE politesse FROM PUBLIC; ALTER DATABASE politesse OWNER TO postgres",
            "ALTER DATABASE politesse OWNER TO politesse",
            "needs SELECT",
        ),
        (
            "ALTER DATABASE politesse SET default_transaction_read_only = on",
            "BEGIN READ WRITE; ALTER DATABASE politesse RESET ALL; COMMIT",
            "the archive only reads",
        ),
    ] {
        postgres.sql(set).await;
        // Give the next attempt something to ship.
        postgres
            .sql("BEGIN READ WRITE; DELETE FROM node; COMMIT")
            .await;
        assert_shipping_fails(&place, &url, said).await;
        postgres.sql(unset).await;
    }
    // During this shutdown the server refuses connections until the session closes.
    let session = postgres.session("SELECT 1");
    session.begun().await;
    postgres.begin_stop();
    assert_shipping_fails(&place, &url, "is starting or stopping").await;
}

#[tokio::test]
async fn a_query_ended_by_the_server_is_reported_with_a_remedy() {
    let postgres = Postgres::start().await;
    let place = recorded(2).await;
    ship_once(&place, &postgres).await;
    let locked = postgres.session("LOCK TABLE decision");
    locked.begun().await;
    let list = format!("--archive={} list", postgres.url());
    let cut = async {
        let waits = "SELECT count(*) FROM pg_stat_activity
                     WHERE usename = 'politesse' AND wait_event_type = 'Lock'";
        postgres.number_is(waits, 1).await;
        postgres.cut().await
    };
    let ended = assert_fails(&place, &list, "has ended the connection");
    tokio::join!(ended, cut);
    let late = format!("{list} --set audit.archive_timeout=\"1s\"");
    assert_fails(&place, &late, "raise audit.archive_timeout").await;
}

// Ours: no eavesdropper may get the password or the record.
#[tokio::test]
async fn nothing_is_shipped_to_a_server_without_tls_or_with_another_name() {
    let origin = origin().await;
    let (plain, named) = (["fsync=off", "ssl=off"], ["fsync=off"]);
    let (plain, named) = tokio::join!(Postgres::with(&plain), Postgres::with(&named));
    let place = recorded(2).await;
    place.configure(&config(&origin).set("audit.archive_ca = \"roots.pem\""));
    let ship = |url: &str| format!("ship --once --to {url}");
    let other_name = named.tls_url().replace("localhost", "127.0.0.1");
    for (url, said) in [
        (plain.tls_url(), "does not support TLS"),
        (other_name, "certificate"),
    ] {
        let refused = place.audit_code(1, &ship(&url)).await;
        assert!(refused.stderr.contains("no connection"), "{refused:?}");
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
    // With the right name the same server is accepted; weaker TLS modes are rejected.
    place.audit(&ship(&named.tls_url())).await;
    for (parameter, said) in [
        ("sslmode=require", "sslmode=verify-full"),
        ("sslrootcert=roots.pem", "audit.archive_ca"),
    ] {
        let url = format!("{}?{parameter}", named.tls_url());
        let by_key = format!("ship --once --set audit.archive=\"{url}\"");
        for words in [ship(&url), by_key] {
            let refused = place.audit_code(2, &words).await;
            assert!(refused.stderr.contains(said), "{refused:?}");
        }
    }
}
