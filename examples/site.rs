//! A small local site to crawl: `shop.test`, over HTTP on port 8080 and over HTTPS on
//! port 8443. It prints every request that reaches it, so you can see what the proxy
//! lets through. `examples/tour/politesse.toml` configures a proxy for it.
//! `politesse demo` runs both the site and the proxy.
//!
//! `cargo run --example site`

#[path = "../src/cli/demo/site.rs"]
#[expect(dead_code, reason = "the demo asks for more than this program")]
mod site;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use site::{Site, SiteAddresses};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let site = Site::bind(SiteAddresses {
        plain: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
        secure: SocketAddr::from((Ipv4Addr::LOCALHOST, 8443)),
    })
    .await?;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tour");
    fs::create_dir_all(folder)?;
    fs::write(format!("{folder}/site-ca.pem"), site.ca_pem())?;
    eprintln!("shop.test is on http://127.0.0.1:8080 and https://127.0.0.1:8443");
    site.serve().await
}
