//! Cost of live views and wrong tokens to the requests that the proxy forwards: CPU
//! time of the process for a request and time that a request takes, with and without
//! them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use politesse_base::clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::proxy::Proxy;

/// Rounds of each measurement, every one without and then with the disturbance.
const ROUNDS: usize = 6;
/// Requests of a round.
const REQUESTS: usize = 16_000;
/// Connections that carry the requests.
const CONNECTIONS: usize = 8;
/// Live views open at a time.
const WATCHERS: usize = 10;
/// Wrong tokens a second, of each kind.
const WRONG_RATE: u32 = 100;
const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nabc\n";
const ROBOTS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 33\r\n\r\n\
                        User-agent: *\nDisallow: /private\n\n";

/// Costs of a request.
#[derive(Clone, Copy, Default)]
struct Cost {
    cpu_us: f64,
    p99_us: f64,
}

/// Disturbance that runs during the requests.
#[derive(Clone, Copy)]
enum Beside {
    LiveViews,
    WrongTokens,
}

/// Measures every disturbance and prints the results.
///
/// # Errors
///
/// If the proxy does not start, or a request fails.
pub(crate) async fn measure() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let origin = serve().await?;
    println!("| beside | CPU a request, alone | with | ratio | p99, alone | with |");
    println!("|---|---|---|---|---|---|");
    for (name, beside, pause) in [
        ("ten live views, as fast as can be", Beside::LiveViews, None),
        (
            "ten live views, 1,000 requests a second",
            Beside::LiveViews,
            Some(Duration::from_millis(8)),
        ),
        ("200 wrong tokens a second", Beside::WrongTokens, None),
    ] {
        let (alone, with) = compare(folder.path(), origin, beside, pause).await?;
        println!(
            "| {name} | {:.1} µs | {:.1} µs | {:+.1} % | {:.0} µs | {:.0} µs |",
            alone.cpu_us,
            with.cpu_us,
            100.0 * (with.cpu_us / alone.cpu_us - 1.0),
            alone.p99_us,
            with.p99_us
        );
    }
    Ok(())
}

/// Alternates rounds without and with a disturbance, and returns the medians of both.
async fn compare(
    folder: &Path,
    origin: SocketAddr,
    beside: Beside,
    pause: Option<Duration>,
) -> anyhow::Result<(Cost, Cost)> {
    let settings = [
        format!("upstream.resolve={{\"o.test\"=\"{origin}\"}}"),
        "pace.profile=\"owned\"".to_owned(),
        "pace.origin={in_flight=1000}".to_owned(),
    ];
    let proxy = Arc::new(Proxy::start(folder, &settings)?);
    let number = Arc::new(AtomicUsize::new(0));
    // Connects to the origin, and loads pages of the program that are not in memory
    // yet.
    round(&proxy, pause, &number).await?;
    let (mut alone, mut with) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(round(&proxy, pause, &number).await?);
        let disturbance = Disturbance::begin(beside, &proxy);
        sleep(Duration::from_millis(500)).await;
        with.push(round(&proxy, pause, &number).await?);
        disturbance.end();
        sleep(Duration::from_millis(500)).await;
    }
    Ok((median(&alone), median(&with)))
}

fn median(costs: &[Cost]) -> Cost {
    let middle = |value: fn(&Cost) -> f64| {
        let mut values: Vec<f64> = costs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2].midpoint(values[(values.len() - 1) / 2])
    };
    Cost {
        cpu_us: middle(|cost| cost.cpu_us),
        p99_us: middle(|cost| cost.p99_us),
    }
}

/// Sends the requests of a round, with a pause after each, and measures them.
async fn round(
    proxy: &Proxy,
    pause: Option<Duration>,
    number: &Arc<AtomicUsize>,
) -> anyhow::Result<Cost> {
    let requests = match pause {
        None => REQUESTS,
        Some(_) => REQUESTS / 4,
    };
    let before = proxy.cpu()?;
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (address, number) = (proxy.address, Arc::clone(number));
        clients.spawn(crawl(address, requests / CONNECTIONS, pause, number));
    }
    let mut times = Vec::new();
    while let Some(outcome) = clients.join_next().await {
        times.extend(outcome??);
    }
    let cpu = proxy.cpu()? - before;
    times.sort_unstable();
    Ok(Cost {
        cpu_us: cpu * 1e6 / requests as f64,
        p99_us: times[times.len() * 99 / 100].as_secs_f64() * 1e6,
    })
}

async fn crawl(
    proxy: SocketAddr,
    requests: usize,
    pause: Option<Duration>,
    number: Arc<AtomicUsize>,
) -> anyhow::Result<Vec<Duration>> {
    let mut stream = tokio::net::TcpStream::connect(proxy).await?;
    stream.set_nodelay(true)?;
    let mut times = Vec::with_capacity(requests);
    let mut buffer = [0; 4096];
    for _ in 0..requests {
        let number = number.fetch_add(1, Ordering::Relaxed);
        let request = format!(
            "GET http://o.test/page/{number} HTTP/1.1\r\nHost: o.test\r\n\
             User-Agent: FooBot/1.0\r\n\r\n"
        );
        let start = clock::instant();
        stream.write_all(request.as_bytes()).await?;
        let mut length = 0;
        while !buffer[..length].ends_with(b"abc\n") {
            let read = stream.read(&mut buffer[length..]).await?;
            ensure!(0 < read, "{}", String::from_utf8_lossy(&buffer[..length]));
            length += read;
        }
        times.push(clock::instant().duration_since(start));
        if let Some(pause) = pause {
            sleep(pause).await;
        }
    }
    Ok(times)
}

/// Serves small pages until the process ends.
async fn serve() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                let mut length = 0;
                while let Ok(read) = stream.read(&mut buffer[length..]).await {
                    length += read;
                    if read == 0 {
                        break;
                    }
                    if !buffer[..length].ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    let response = match buffer.starts_with(b"GET /robots.txt ") {
                        true => ROBOTS,
                        false => RESPONSE,
                    };
                    if stream.write_all(response).await.is_err() {
                        break;
                    }
                    length = 0;
                }
            });
        }
    });
    Ok(address)
}

/// Threads that disturb the proxy until they are stopped.
struct Disturbance {
    is_over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<anyhow::Result<()>>>,
}

impl Disturbance {
    fn begin(beside: Beside, proxy: &Arc<Proxy>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let spawn = |work: fn(&Proxy, &AtomicBool) -> anyhow::Result<()>| {
            let (proxy, is_over) = (Arc::clone(proxy), Arc::clone(&is_over));
            thread::spawn(move || work(&proxy, &is_over))
        };
        let threads = match beside {
            Beside::LiveViews => (0..WATCHERS).map(|_| spawn(watch)).collect(),
            Beside::WrongTokens => vec![spawn(send_wrong_bearer), spawn(send_wrong_form)],
        };
        Self { is_over, threads }
    }

    /// Stops the threads. Panics if one of them failed.
    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let outcome = thread.join().expect("it does not panic");
            outcome.expect("it runs until it is stopped");
        }
    }
}

/// Watches a live view of the decisions, as a browser does.
fn watch(proxy: &Proxy, is_over: &AtomicBool) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(proxy.admin)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let request = format!(
        "GET /decisions/stream HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        proxy.admin, proxy.token
    );
    stream.write_all(request.as_bytes())?;
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    while !is_over.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => bytes += read,
            // Nothing arrived within the time limit: check whether the measurement is
            // over.
            Err(_) => {}
        }
    }
    ensure!(10_000 < bytes, "a live view showed {bytes} bytes");
    Ok(())
}

fn send_wrong_bearer(proxy: &Proxy, is_over: &AtomicBool) -> anyhow::Result<()> {
    let request = format!(
        "GET /api/v1/pace HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        proxy.admin,
        "0".repeat(64)
    );
    let wrong = WrongRequest {
        text: request,
        status: "401",
    };
    wrong.send_at_rate(proxy, is_over)
}

fn send_wrong_form(proxy: &Proxy, is_over: &AtomicBool) -> anyhow::Result<()> {
    let form = format!("token={}&to=%2F", "0".repeat(64));
    let request = format!(
        "POST /login HTTP/1.1\r\nHost: {0}\r\nOrigin: http://{0}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {1}\r\n\r\n{form}",
        proxy.admin,
        form.len()
    );
    let wrong = WrongRequest {
        text: request,
        status: "403",
    };
    wrong.send_at_rate(proxy, is_over)
}

/// Request with a wrong token, and the status of the expected answer.
struct WrongRequest {
    text: String,
    status: &'static str,
}

impl WrongRequest {
    fn send_at_rate(&self, proxy: &Proxy, is_over: &AtomicBool) -> anyhow::Result<()> {
        let start = clock::instant();
        for number in 0.. {
            let due = Duration::from_secs(1) * number / WRONG_RATE;
            thread::sleep(due.saturating_sub(clock::instant().duration_since(start)));
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let mut stream = TcpStream::connect(proxy.admin)?;
            stream.write_all(self.text.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            let status = answer.split(' ').nth(1).context("a status")?;
            ensure!(status == self.status, "{answer}");
        }
        Ok(())
    }
}
