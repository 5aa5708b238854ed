//! Clients that share a proxy: measures what one client gets alone, and what it gets
//! beside others that take all they can.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use politesse_base::clock;
use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::client::Crawler;
use super::origin::Origin;
use super::paced::metric;
use super::proxy::Proxy;
use super::until;

/// Address of the well-behaved client; the others have higher addresses.
pub(crate) const GOOD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Returns the address of a client that takes all it can.
pub(crate) fn bad(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, number)
}

/// Returns a crawler name for `number`, with two letters.
pub(crate) fn bad_agent(number: usize) -> String {
    let letter = |number: usize| char::from(b'a' + (number % 26) as u8);
    format!("Bad{}{}", letter(number / 26), letter(number))
}

/// Lowest limit for a p99 that is compared with the p99 of the client alone. A request
/// over loopback takes less than a millisecond, and scheduling alone can delay it to
/// three times that on a machine with two cores.
const P99_FLOOR: Duration = Duration::from_millis(20);
/// Niceness of the crowd's threads: real clients run on other machines.
const CROWD_NICE: i32 = 10;
/// Longest wait until a crowd has ended.
const END: Duration = Duration::from_secs(5);

/// Raises the limit of open files to its maximum, for tests with many connections.
pub(crate) fn take_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, all).unwrap();
}

/// Responses and errors that a client got in a period.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// Time from opening each connection to the end of the response.
    pub(crate) times: Vec<Duration>,
    /// Responses other than 200, and closed connections.
    pub(crate) errors: Vec<String>,
    /// Length of the period.
    pub(crate) time: Duration,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, p99) = (self.rate(), self.p99());
        write!(f, "{rate:.1} a second, p99 {p99:.1?}")
    }
}

/// Minimum service for a client beside others, relative to what it gets alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Least {
    /// Minimum share of the rate.
    pub(crate) share: f64,
    /// Maximum factor of the p99.
    pub(crate) p99: f64,
}

impl Service {
    /// Returns the 99th percentile of the response times.
    pub(crate) fn p99(&self) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        let index = (times.len() * 99).div_ceil(100).saturating_sub(1);
        times.get(index).copied().unwrap_or(Duration::MAX)
    }

    /// Returns the number of successful requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.times.len() as f64 / self.time.as_secs_f64()
    }

    /// Prints the service alone and beside others.
    #[expect(clippy::print_stdout, reason = "the figures that are measured")]
    pub(crate) fn report(&self, alone: &Self) {
        println!("alone {alone}; beside the others {self}");
    }

    /// Asserts that the client had no errors and at least the service `least`.
    pub(crate) fn assert_least(&self, alone: &Self, least: Least) {
        self.report(alone);
        assert!(self.errors.is_empty(), "{:?}", self.errors);
        let p99 = alone.p99().mul_f64(least.p99).max(P99_FLOOR);
        assert!(self.p99() <= p99, "{:?} of {p99:?}", self.p99());
        let rate = alone.rate() * least.share;
        assert!(rate <= self.rate(), "{} of {rate}", self.rate());
    }

    /// Asserts that the others hardly affected the client: no errors, at least `share` of
    /// the requests that it made alone, and a p99 of at most three times the p99 alone,
    /// plus a second for the noise of the machine.
    pub(crate) fn assert_beside(&self, alone: &Self, share: f64) {
        let (least, count) = (alone.times.len() as f64 * share, self.times.len() as f64);
        let p99 = alone.p99() * 3 + Duration::from_secs(1);
        assert!(self.errors.is_empty(), "{:?}", self.errors);
        assert!(least <= count, "{count} of {least}");
        assert!(self.p99() <= p99, "{:?} of {p99:?}", self.p99());
    }
}

/// Sends requests for `url` from `source` for `time`, one after another, each over a new
/// connection.
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
    service.time = clock::instant() - begun;
    service
}

/// Runs `workers` crawlers of [`GOOD`] in parallel, each requesting `url` repeatedly for
/// `time`.
pub(crate) async fn crawl_at_once(
    proxy: &Arc<Proxy>,
    workers: usize,
    url: &str,
    time: Duration,
) -> Service {
    let crawlers = (0..workers).map(|_| {
        let (proxy, url) = (Arc::clone(proxy), url.to_owned());
        tokio::spawn(async move { crawl(&proxy, GOOD, "GoodBot", &url, time).await })
    });
    let mut all = Service::default();
    for crawler in crawlers.collect::<Vec<_>>() {
        let one = crawler.await.unwrap();
        all.times.extend(one.times);
        all.errors.extend(one.errors);
        all.time = all.time.max(one.time);
    }
    all
}

/// Sends `request` from `source` over a new connection, which it returns. `None` if the
/// proxy refuses or closes the connection.
pub(crate) async fn send_from(source: Ipv4Addr, proxy: &Proxy, request: &str) -> Option<Crawler> {
    let mut crawler = Crawler::at(source, proxy).await?;
    crawler.try_send(request.as_bytes()).await.ok()?;
    Some(crawler)
}

/// Uploads a byte per `pause` from a bad client, until the proxy ends the connection.
pub(crate) async fn slow_upload(proxy: Arc<Proxy>, client: u8, pause: Duration) {
    let head = "POST http://o.test/upload HTTP/1.1\r\nHost: o.test\r\n\
                User-Agent: BadBot/1.0\r\nContent-Length: 1000\r\n\r\n";
    if let Some(mut crawler) = send_from(bad(client), &proxy, head).await {
        while crawler.try_send(b"x").await.is_ok() {
            // Scripted load: a slow sender.
            sleep(pause).await;
        }
    }
}

/// Requests `/endless` from a bad client, and reads nothing but the head for `time`.
pub(crate) async fn slow_reader(proxy: Arc<Proxy>, client: u8, time: Duration) {
    let request = "GET http://o.test/endless HTTP/1.1\r\nHost: o.test\r\n\
                   User-Agent: BadBot/1.0\r\n\r\n";
    if let Some(mut crawler) = send_from(bad(client), &proxy, request).await
        && crawler.head().await.is_some()
    {
        // Scripted load: a client that stops reading.
        sleep(time).await;
    }
}

/// Waits until the metric `name` is at least `value`.
pub(crate) async fn at_least(proxy: &Proxy, name: &str, value: usize) {
    until(name, async || {
        (value as f64 <= metric(proxy, name).await).then_some(())
    })
    .await;
}

/// Sends one request over a new connection. Any outcome but a 200 is an error.
pub(crate) async fn ask(
    proxy: &Proxy,
    source: Ipv4Addr,
    agent: &str,
    url: &str,
) -> Result<(), String> {
    let host = url.split('/').nth(2).unwrap_or_default();
    let request = format!(
        "GET {url} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}/1.0\r\n\
         Connection: close\r\n\r\n"
    );
    let crawler = send_from(source, proxy, &request).await;
    let mut crawler = crawler.ok_or("no connection")?;
    let reply = crawler.try_reply_to("GET").await.ok_or("closed")?;
    match reply.status() {
        200 => Ok(()),
        status => Err(format!("{status} {}", reply.text())),
    }
}

/// Tasks of clients that take all they can, on their own thread. Dropping this ends them.
pub(crate) struct Crowd {
    tasks: JoinSet<()>,
    runtime: Option<Runtime>,
}

impl Default for Crowd {
    fn default() -> Self {
        let mut builder = Builder::new_multi_thread();
        // Sets the niceness of this thread only; the proxy runs as another process.
        let be_nice = || {
            let _ = setpriority_process(None, CROWD_NICE);
        };
        let runtime = builder
            .worker_threads(1)
            .enable_all()
            .on_thread_start(be_nice)
            .build();
        Self {
            tasks: JoinSet::new(),
            runtime: Some(runtime.unwrap()),
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // Wait for the end, because the tasks hold the proxy, which would outlive the
        // test. Use another thread, because a runtime may not be shut down blockingly
        // inside another.
        if let Some(runtime) = self.runtime.take() {
            let ended = thread::spawn(|| runtime.shutdown_timeout(END));
            let _ = ended.join();
        }
    }
}

impl Crowd {
    /// Runs `start` on the crowd's runtime, so that the origin's tasks run there.
    pub(crate) async fn origin(
        &self,
        start: impl Future<Output = Origin> + Send + 'static,
    ) -> Origin {
        let runtime = self.runtime.as_ref().unwrap().handle();
        runtime.spawn(start).await.unwrap()
    }

    /// Repeats `act` until this is dropped.
    pub(crate) fn repeat<F: Future<Output = ()> + Send>(
        &mut self,
        proxy: &Arc<Proxy>,
        act: impl Fn(Arc<Proxy>) -> F + Send + 'static,
    ) {
        let proxy = Arc::clone(proxy);
        let repeated = async move {
            loop {
                act(Arc::clone(&proxy)).await;
            }
        };
        if let Some(runtime) = &self.runtime {
            self.tasks.spawn_on(repeated, runtime.handle());
        }
    }
}
