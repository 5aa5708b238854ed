//! Audit records of three nodes, shipped to one archive.

use serde_json::Value;

use super::client::get_as;
use super::origin::{Origin, Script};
use super::page::{Length, Page};
use super::postgres::Postgres;
use super::program::Outcome;
use super::proxy::{Config, Place, resolve};

/// Node names.
pub(crate) const NODES: [&str; 3] = ["north", "south", "west"];

const ROBOTS: &[u8] =
    b"User-agent: *\nDisallow: /no\nContent-Usage: train-ai=n\nUser-agent: OneBot\nDisallow: /one\nDISALLOW:/two*x\n";

/// Declares TwoBot with two purposes. robots.txt denies one of them everywhere, and one
/// page denies both.
const CRAWLERS: &str = "crawler = [{ token = \"TwoBot\", user_agent = \"twobot\", \
                        purpose = [\"search\", \"train-ai\"], preferences = \"refuse\" }]";

async fn origin() -> Origin {
    Script::robots_page(Page::typed("text/plain", ROBOTS))
        .page("/long", Page::stream(1000, Length::Announced))
        .page("/noindex", Page::html("x").field("X-Robots-Tag", "noindex"))
        .page("/no/1", Page::status(403))
        .page("/yes/1", Page::status(402))
        .page("/yes/7", Page::html("x").field("cf-mitigated", "challenge"))
        .start()
        .await
}

/// Audit records of three nodes, and the archive that holds copies of them.
pub(crate) struct Fleet {
    pub(crate) postgres: Postgres,
    pub(crate) places: Vec<Place>,
}

impl Fleet {
    /// Makes each node record decisions of every kind, then ships the records.
    pub(crate) async fn shipped() -> Self {
        let origin = origin().await;
        let postgres = Postgres::start().await;
        let mut places = Vec::new();
        for (number, name) in NODES.into_iter().enumerate() {
            let mode = if number == 1 { "report" } else { "enforce" };
            let config: Config = resolve("o.test", origin.address())
                .resolve("p.test", origin.address())
                .set(&format!("fleet.node = \"{name}\""))
                .set(&format!("enforcement.mode = \"{mode}\""))
                .set(&format!("audit.archive = \"{}\"", postgres.url()))
                .set(CRAWLERS)
                .set("audit.seal_entries = 4");
            let proxy = config.start().await;
            for at in 0..12 {
                let host = ["o.test", "p.test"][(at + number) % 2];
                let path = ["no", "yes", "one", "z%00ro", "noindex", "long"][at % 6];
                let agent = ["OneBot/1.0", "TwoBot", ""][(at + number) % 3];
                get_as(&proxy, agent, &format!("http://{host}/{path}/{at}")).await;
                get_as(&proxy, agent, "http://o.test/no/1").await;
            }
            get_as(&proxy, "OneBot", "http://127.0.0.2/denied").await;
            places.push(proxy.stop().await);
        }
        let fleet = Self { postgres, places };
        for place in &fleet.places {
            place.audit("ship --once").await;
        }
        fleet
    }

    /// Runs `audit` with `words` on one node's record. Returns the lines that it prints.
    pub(crate) async fn lines_of_node(&self, node: usize, words: &str) -> Vec<Value> {
        self.places[node].audit(words).await.json_lines()
    }

    /// Runs `audit --archive` with `words` and the configuration of the first node, and
    /// asserts that it exits with `code`.
    pub(crate) async fn archive_code(&self, code: i32, words: &str) -> Outcome {
        let words = format!("--archive {words}");
        self.places[0].audit_code(code, &words).await
    }

    /// Runs `audit --archive` with `words`. Returns the lines that it prints.
    pub(crate) async fn archive_lines(&self, words: &str) -> Vec<Value> {
        self.archive_code(0, words).await.json_lines()
    }
}

/// Sorts rows by their text. A list over several nodes has the same rows as the lists of
/// each node, but in another order.
pub(crate) fn sorted(mut rows: Vec<Value>) -> Vec<Value> {
    rows.sort_by_key(Value::to_string);
    rows
}
