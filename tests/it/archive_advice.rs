//! Faults of the archive, each reported with the remedy. All ours; docs/archive.md.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use crate::archive_faults::{config, origin, recorded, ship_once};
use crate::kit::addresses::free_addresses;
use crate::kit::client::get;
use crate::kit::origin::Origin;
use crate::kit::postgres::Postgres;
use crate::kit::proxy::{Config, Place};
use crate::kit::{run_within, until};

const MINUTES: Duration = Duration::from_secs(180);

/// A fault of the archive, or of its configuration on the node.
struct Fault {
    /// Configuration lines.
    lines: Vec<String>,
    /// Text in the message.
    said: &'static str,
    /// Key or option that the message tells the user to change.
    key: &'static str,
}

impl Fault {
    fn new(lines: &[&str], said: &'static str, key: &'static str) -> Self {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        Self { lines, said, key }
    }

    fn config(&self, origin: &Origin) -> Config {
        let config = config(origin).set("audit.archive_timeout = \"2s\"");
        self.lines
            .iter()
            .fold(config, |config, line| config.set(line))
    }

    /// Asserts that `audit ship` names the fault, and that the proxy logs it but still
    /// serves requests.
    async fn assert_reported(&self, origin: &Origin) {
        let place = Place::with(&self.config(origin));
        for (name, text) in [("wrong", "writer:wrong\n"), ("reader", "reader:secret\n")] {
            fs::write(place.path(name), text).unwrap();
            fs::set_permissions(place.path(name), Permissions::from_mode(0o600)).unwrap();
        }
        let proxy = place.start().await;
        let reply = get(&proxy, "http://o.test/open").await;
        assert_eq!(reply.status(), 200, "{}", reply.text());
        let is_told = |text: &str| text.contains(self.said) && text.contains(self.key);
        until(self.said, async || is_told(&proxy.log()).then_some(())).await;
        let place = proxy.stop().await;
        let outcome = place.run_code(1, &["audit", "ship", "--once"]).await;
        assert!(is_told(&outcome.stderr), "{outcome:?}");
        assert!(!outcome.stderr.contains("secret"), "{outcome:?}");
    }
}

// Ours: every message names the key to change.
#[test]
fn an_archive_fault_names_the_key_to_change_and_stops_no_request() {
    run_within(MINUTES, async {
        let origin = origin().await;
        let mut postgres = Postgres::start().await;
        postgres
            .sql("CREATE ROLE writer LOGIN PASSWORD 'secret'; CREATE ROLE reader LOGIN PASSWORD 'secret'")
            .await;
        postgres.sql("CREATE DATABASE other").await;
        let archive = |url: String| format!("audit.archive = \"{url}\"");
        let own = archive(postgres.url());
        let place = recorded(&origin, 2).await;
        ship_once(&place, &postgres).await;
        postgres
            .sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
            .await;
        let [nobody] = free_addresses();
        let faults = [
            Fault::new(
                &[&own, "audit.archive_auth = \"wrong\""],
                "refuses the name or the password",
                "audit.archive_auth",
            ),
            Fault::new(
                &[&own, "audit.archive_auth = \"reader\""],
                "may not write",
                "audit.archive_auth",
            ),
            Fault::new(
                &[&archive(postgres.url_of("other"))],
                "may not",
                "audit.archive_auth",
            ),
            Fault::new(
                &[&archive(postgres.url_of("nowhere"))],
                "no such database",
                "audit.archive",
            ),
            Fault::new(
                &[&archive(postgres.tls_url())],
                "certificate",
                "audit.archive_ca",
            ),
            Fault::new(
                &[&archive(format!("postgres://{nobody}/a?sslmode=disable"))],
                "cannot be reached",
                "audit.archive",
            ),
        ];
        for fault in faults {
            fault.assert_reported(&origin).await;
        }
        let latin = "CREATE DATABASE latin OWNER politesse ENCODING 'LATIN1' TEMPLATE template0";
        postgres.sql(latin).await;
        let latin = archive(postgres.url_of("latin"));
        let encoding = Fault::new(&[&latin], "has the encoding LATIN1", "--encoding UTF8");
        encoding.assert_reported(&origin).await;
        postgres.sql("UPDATE archive SET version = 99").await;
        let version = Fault::new(&[&own], "version 99", "audit.archive");
        version.assert_reported(&origin).await;
        postgres.signal("STOP");
        let silence = Fault::new(&[&own], "no answer", "audit.archive_timeout");
        silence.assert_reported(&origin).await;
        postgres.kill();
    });
}

/// An `audit` command that fails.
struct FailingCommand<'a> {
    /// Arguments of the command.
    arguments: &'a [&'a str],
    /// Text in the message.
    said: &'a str,
}

impl FailingCommand<'_> {
    async fn assert_reported(&self, place: &Place) {
        let outcome = place.run_code(1, self.arguments).await;
        let text = &outcome.stderr;
        assert!(text.contains(self.said), "{:?}: {text}", self.said);
        assert!(text.contains("docs/archive.md, Messages"), "{text}");
    }
}

/// Asserts that shipping to the archive at `url` fails with `said` in the message.
async fn assert_shipping_fails(place: &Place, url: &str, said: &str) {
    let arguments = ["audit", "ship", "--once", "--to", url];
    let arguments = &arguments[..];
    FailingCommand { arguments, said }
        .assert_reported(place)
        .await;
}

// Ours: the database is used by another program, or someone has changed its tables.
#[test]
fn a_message_names_tables_that_do_not_fit_an_archive() {
    run_within(MINUTES, async {
        let origin = origin().await;
        let postgres = Postgres::start().await;
        let (place, other) = tokio::join!(recorded(&origin, 2), recorded(&origin, 2));
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
        let hidden = format!("--archive={}", postgres.url_of("i"));
        let arguments = &["audit", &hidden, "list"][..];
        let said = "has its tables in the schema hidden";
        FailingCommand { arguments, said }
            .assert_reported(&place)
            .await;
    });
}

// Ours: the message explains the server's error or the missing privilege.
#[test]
fn a_server_that_rejects_writes_is_reported_with_a_remedy() {
    run_within(MINUTES, async {
        let origin = origin().await;
        let postgres = Postgres::start().await;
        let place = recorded(&origin, 2).await;
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
    });
}

// Ours.
#[test]
fn a_query_ended_by_the_server_is_reported_with_a_remedy() {
    run_within(MINUTES, async {
        let origin = origin().await;
        let postgres = Postgres::start().await;
        let place = recorded(&origin, 2).await;
        ship_once(&place, &postgres).await;
        let locked = postgres.session("LOCK TABLE decision");
        locked.begun().await;
        let archive = format!("--archive={}", postgres.url());
        let list = ["audit", &archive, "list"];
        let said = "has ended the connection";
        let (arguments, cut) = (&list[..], async {
            until("a query that waits", async || {
                let waits = "SELECT count(*) FROM pg_stat_activity
                             WHERE usename = 'politesse' AND wait_event_type = 'Lock'";
                (postgres.number(waits).await == 1).then_some(())
            })
            .await;
            postgres.cut().await
        });
        let command = FailingCommand { arguments, said };
        tokio::join!(command.assert_reported(&place), cut);
        let short = ["--set", "audit.archive_timeout=\"1s\""];
        let arguments = &[&short[..], &list[..]].concat();
        let said = "raise audit.archive_timeout";
        FailingCommand { arguments, said }
            .assert_reported(&place)
            .await;
    });
}

// Ours: no eavesdropper may get the password or the record.
#[test]
fn nothing_is_shipped_to_a_server_without_tls_or_with_another_name() {
    run_within(MINUTES, async {
        let origin = origin().await;
        let (plain, named) = (["fsync=off", "ssl=off"], ["fsync=off"]);
        let (plain, named) = tokio::join!(Postgres::with(&plain), Postgres::with(&named));
        let place = recorded(&origin, 2).await;
        let roots = ["--set", "audit.archive_ca=\"roots.pem\""];
        let ship = async |url: String| {
            let ship = ["audit", "ship", "--once", "--to", &url];
            place.run(&[&roots[..], &ship[..]].concat()).await
        };
        let other_name = named.tls_url().replace("localhost", "127.0.0.1");
        for (url, said) in [
            (plain.tls_url(), "does not support TLS"),
            (other_name, "certificate"),
        ] {
            let refused = ship(url).await.assert_code(1);
            assert!(refused.stderr.contains("no connection"), "{refused:?}");
            assert!(refused.stderr.contains(said), "{refused:?}");
        }
        // With the right name the same server is accepted; weaker TLS modes are rejected.
        ship(named.tls_url()).await.assert_code(0);
        for (parameter, said) in [
            ("sslmode=require", "sslmode=verify-full"),
            ("sslrootcert=roots.pem", "audit.archive_ca"),
        ] {
            let url = format!("{}?{parameter}", named.tls_url());
            let refused = ship(url.clone()).await.assert_code(2);
            assert!(refused.stderr.contains(said), "{refused:?}");
            let key = format!("audit.archive=\"{url}\"");
            let refused = place
                .run_code(2, &["--set", &key, "audit", "ship", "--once"])
                .await;
            assert!(refused.stderr.contains(said), "{refused:?}");
        }
    });
}
