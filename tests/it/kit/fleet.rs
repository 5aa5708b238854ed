//! Nodes of a fleet, and crawlers that keep them busy.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::client::get_admin;
use super::paced::ms;
use super::proxy::{Config, Place, Proxy, resolve};
use super::redis::Redis;
use super::until;

/// Secret shared by all nodes (`fleet.key`).
pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Returns a node's configuration.
pub(crate) fn node(number: usize, store: &str, origin: SocketAddr) -> Config {
    resolve("o.test", origin)
        .set(&format!("fleet.store = [{store}]"))
        .set(&format!("fleet.node = \"node-{number}\""))
        .set("fleet.lease = \"1s\"")
        .set("pace.origin = {}")
        .set("pace.profile = \"standard\"")
}

/// Returns the configuration of a node that shares fetched robots.txt files with the
/// fleet.
pub(crate) fn sharing(number: usize, store: &str, origin: SocketAddr) -> Config {
    node(number, store, origin).set("fleet.key = \"fleet.key\"")
}

/// Returns the addresses of `stores` as elements of `fleet.store`.
pub(crate) fn quoted(stores: &[&Redis]) -> String {
    let urls: Vec<_> = stores
        .iter()
        .map(|store| format!("{:?}", store.url()))
        .collect();
    urls.join(", ")
}

/// Starts a proxy with the fleet's key in a file beside its configuration.
pub(crate) async fn start_with_key(config: &Config, secret: &str) -> Proxy {
    let place = Place::with(config);
    write_private(&place, "fleet.key", secret);
    place.start().await
}

/// Starts a node for each configuration, with the fleet's key, and waits until all are
/// ready.
pub(crate) async fn ready_nodes(configs: impl IntoIterator<Item = Config>) -> Vec<Proxy> {
    let mut nodes = Vec::new();
    for config in configs {
        nodes.push(start_with_key(&config, SECRET).await);
    }
    all_are(&nodes, "ready").await;
    nodes
}

/// Writes a file that only its owner may read.
pub(crate) fn write_private(place: &Place, name: &str, text: &str) {
    place.write(name, text, 0o600);
}

/// Returns the status and text of `/readyz`.
pub(crate) async fn readyz(proxy: &Proxy) -> (u16, String) {
    let reply = get_admin(proxy.admin(), "/readyz", &[]).await;
    (reply.status(), reply.text())
}

/// Waits until each node's `/readyz` text starts with `wanted`.
pub(crate) async fn all_are(nodes: &[Proxy], wanted: &str) {
    for node in nodes {
        until(wanted, async || {
            readyz(node).await.1.starts_with(wanted).then_some(())
        })
        .await;
    }
}

/// Crawlers that request pages from a proxy in a loop until they are dropped.
pub(crate) struct Load(Vec<AbortHandle>);

impl Load {
    pub(crate) fn on(proxy: &Proxy) -> Self {
        let address = proxy.address();
        let crawler = || tokio::spawn(crawl(address)).abort_handle();
        Self((0..2).map(|_| crawler()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

async fn crawl(proxy: SocketAddr) {
    loop {
        // Scripted load: a proxy that was killed is not asked again in a busy loop.
        if page(proxy).await.is_err() {
            sleep(ms(20)).await;
        }
    }
}

/// Requests one page, as [`Load`] does.
pub(crate) async fn page(proxy: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(proxy).await?;
    let request = "GET http://o.test/page HTTP/1.1\r\nHost: o.test\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    match answer.starts_with(b"HTTP/1.1 200") {
        true => Ok(()),
        false => Err(std::io::ErrorKind::Other.into()),
    }
}
