//! Time that the egress check adds to a request. Guards `Egress::admits`, which is
//! called once for each request and once more for each new connection.
//!
//! `cargo bench --bench egress`. The bench opens no connections, and resolves only
//! `localhost`, once.

#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::hint::black_box;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use politesse_base::clients::client::Client;
use politesse_base::clock;
use politesse_base::metrics::Metrics;
use politesse_base::tasks::Tasks;
use politesse_net::egress::{Allow, Deny, Egress, EgressPorts, Options, Resolve};
use politesse_robots::origin::{Origin, Scheme};

const ROUNDS: usize = 21;
const CALLS: u32 = 10_000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!("| an origin | a request |");
    println!("|---|---|");
    let plain = egress(0, "127.0.0.1:3128");
    row("public literal", &plain, "93.184.216.34").await;
    row("public literal, IPv6", &plain, "[2606:4700::1111]").await;
    row("denied literal", &plain, "10.0.0.1").await;
    row("denied name", &plain, "metadata.google.internal").await;
    row("kept name", &plain, "localhost").await;
    let many = egress(100_000, "127.0.0.1:3128");
    row("first of 100,000 in `resolve`", &many, "0.test").await;
    row("last of 100,000 in `resolve`", &many, "99999.test").await;
    row("kept name beside 100,000 in `resolve`", &many, "localhost").await;
    let wildcard = egress(0, "0.0.0.0:3128");
    row(
        "wildcard listener, another port",
        &wildcard,
        "93.184.216.34",
    )
    .await;
    row(
        "wildcard listener, its own port",
        &wildcard,
        "93.184.216.34:3128",
    )
    .await;
}

async fn row(name: &str, egress: &Egress, authority: &str) {
    let origin = Origin::new(Scheme::Http, authority).expect("an origin");
    let client = Client::proxy();
    // The first call resolves the name.
    let _ = egress.admits(&origin, Some(&client)).await;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begun = clock::instant();
        for _ in 0..CALLS {
            let _ = black_box(egress.admits(black_box(&origin), Some(&client)).await);
        }
        times.push(clock::instant().duration_since(begun) / CALLS);
    }
    times.sort_unstable();
    println!("| {name} | {} ns |", times[ROUNDS / 2].as_nanos());
}

/// Returns the default egress, except for `entries` in `upstream.resolve` and one
/// allowed name.
fn egress(entries: u32, listener: &str) -> Egress {
    let address: SocketAddr = "127.0.0.1:8080".parse().expect("an address");
    let resolve = (0..entries).map(|number| Resolve {
        name: format!("{number}.test"),
        port: None,
        address: address.ip(),
        to_port: Some(address.port()),
    });
    let options = Options {
        deny: vec![Deny::Default],
        allow: vec![Allow::Name("localhost".to_owned())],
        ports: vec![EgressPorts::Default],
        resolve: resolve.collect(),
        parent: None,
        dns_ttl: Duration::from_secs(3600),
        dns_timeout: Duration::from_secs(5),
        dns_lookups: NonZeroUsize::MIN,
        dns_zone_lookups: NonZeroUsize::MIN,
        dns_cache: NonZeroUsize::MAX,
        own_name: None,
    };
    let metrics = Arc::new(Metrics::default());
    let lookups = Egress::lookups(&options, Arc::clone(&metrics));
    let egress = Egress::new(options, lookups, metrics, Tasks::default());
    let own = listener.parse().expect("an address");
    egress.listeners(vec![own]).expect("no parent");
    egress
}
