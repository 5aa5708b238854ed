//! Faults of the archive, each told with what the user can do about it. All ours;
//! docs/archive.md.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use crate::archive_faults::{config, origin, recorded, ship_once};
use crate::kit::client::get;
use crate::kit::origin::Origin;
use crate::kit::postgres::Postgres;
use crate::kit::proxy::{Config, Place};
use crate::kit::redis::free_addresses;
use crate::kit::{run_within, until};

const MINUTES: Duration = Duration::from_secs(180);

/// Fault of the archive, or of what the node is told about it.
struct Fault {
    /// Lines of the configuration.
    lines: Vec<String>,
    /// Text that the user reads.
    said: &'static str,
    /// Key that the user may change.
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

    /// Holds that the command says what is wrong, and that the proxy serves all the
    /// same, and logs it.
    async fn assert_told(&self, origin: &Origin) {
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
        let outcome = place.run(&["audit", "ship", "--once"]).await;
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(is_told(&outcome.stderr), "{outcome:?}");
        assert!(!outcome.stderr.contains("secret"), "{outcome:?}");
    }
}

// Ours: who reads it can do something about it.
#[test]
fn a_fault_of_the_archive_is_told_with_the_key_to_change_and_stops_no_request() {
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
            fault.assert_told(&origin).await;
        }
        let latin = "CREATE DATABASE latin OWNER politesse ENCODING 'LATIN1' TEMPLATE template0";
        postgres.sql(latin).await;
        let latin = archive(postgres.url_of("latin"));
        let encoding = Fault::new(&[&latin], "has the encoding LATIN1", "--encoding UTF8");
        encoding.assert_told(&origin).await;
        postgres.sql("UPDATE archive SET version = 99").await;
        let version = Fault::new(&[&own], "version 99", "audit.archive");
        version.assert_told(&origin).await;
        postgres.signal("STOP");
        let silence = Fault::new(&[&own], "no answer", "audit.archive_timeout");
        silence.assert_told(&origin).await;
        postgres.kill();
    });
}
