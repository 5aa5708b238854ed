//! One of several clients of a shared proxy: what it gets alone, and beside
//! others that take all they can.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use politesse::clock;

use tokio::task::JoinSet;

use super::client::Crawler;
use super::proxy::Proxy;

/// Address of the client that behaves; the others have higher ones.
pub(crate) const GOOD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Returns the address of a client that takes all it can.
pub(crate) fn bad(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, number)
}

/// What a client got in a time.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// Time from each new connection to the end of the response on it.
    pub(crate) times: Vec<Duration>,
    /// Answers that were not 200, and connections that were closed.
    pub(crate) errors: Vec<String>,
}

impl Service {
    /// Time that 99 in 100 requests did not exceed.
    pub(crate) fn p99(&self) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        let index = (times.len() * 99).div_ceil(100).saturating_sub(1);
        times.get(index).copied().unwrap_or(Duration::MAX)
    }

    /// Holds that the client hardly noticed the others: no error, at least
    /// `share` of the requests that it made alone, and a p99 of at most three
    /// times that of alone, and a second for the noise of the machine.
    pub(crate) fn assert_beside(&self, alone: &Self, share: f64) {
        let (least, p99) = (alone.times.len() as f64 * share, alone.p99() * 3);
        assert!(self.errors.is_empty(), "{:?}", self.errors);
        assert!(
            least <= self.times.len() as f64,
            "{} of {least}",
            self.times.len()
        );
        assert!(
            self.p99() <= p99 + Duration::from_secs(1),
            "{:?} of {p99:?}",
            self.p99()
        );
    }
}

/// Has the client at `source` ask for `url`, one request after the other, each
/// over a connection of its own, for `time`.
pub(crate) async fn crawl(
    proxy: &Proxy,
    source: Ipv4Addr,
    agent: &str,
    url: &str,
    time: Duration,
) -> Service {
    let (begun, mut service) = (clock::instant(), Service::default());
    while clock::instant() - begun < time {
        let asked = clock::instant();
        match ask(proxy, source, agent, url).await {
            Ok(()) => service.times.push(clock::instant() - asked),
            Err(error) => service.errors.push(error),
        }
    }
    service
}

/// Asks once, over a connection of its own; an error is an answer other than
/// 200, or none.
pub(crate) async fn ask(
    proxy: &Proxy,
    source: Ipv4Addr,
    agent: &str,
    url: &str,
) -> Result<(), String> {
    let crawler = Crawler::at(source, proxy).await;
    let mut crawler = crawler.ok_or("no connection")?;
    let host = url.split('/').nth(2).unwrap_or_default();
    let request = format!(
        "GET {url} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}/1.0\r\n\
         Connection: close\r\n\r\n"
    );
    let sent = crawler.try_send(request.as_bytes()).await;
    sent.map_err(|error| error.to_string())?;
    let reply = crawler.try_reply_to("GET").await.ok_or("closed")?;
    match reply.status() {
        200 => Ok(()),
        status => Err(format!("{status} {}", reply.text())),
    }
}

/// Tasks of clients that take all they can, ended with this.
#[derive(Default)]
pub(crate) struct Crowd(JoinSet<()>);

impl Crowd {
    /// Repeats what `act` does for as long as this lives.
    pub(crate) fn repeat<F: Future<Output = ()> + Send>(
        &mut self,
        proxy: &Arc<Proxy>,
        act: impl Fn(Arc<Proxy>) -> F + Send + 'static,
    ) {
        let proxy = Arc::clone(proxy);
        self.0.spawn(async move {
            loop {
                act(Arc::clone(&proxy)).await;
            }
        });
    }
}
