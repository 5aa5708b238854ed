//! `pace show`: asks the running proxy how fast it asks hosts, and prints the
//! answer.
//!
//! Does not know how the proxy paces them.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::{Args, Subcommand};
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::inert::inert;
use super::output::Exit;
use super::process::{reachable, runtime};
use crate::admin::{AdminToken, HOSTS_SHOWN};
use crate::config::Settings;
use crate::pace::host_pace::{HostPace, HostPaces};

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest answer that is read, in bytes: some hundred thousand hosts.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Titles of the columns.
const HEAD: [&str; 6] = [
    "HOST",
    "IN FLIGHT",
    "QUEUED",
    "NEXT START",
    "CAUSE",
    "BACK-OFF UNTIL",
];

/// Commands of `pace`.
#[derive(Debug, Subcommand)]
pub(super) enum PaceCommand {
    /// The hosts that are asked, those that wait or have backed off first.
    #[command(after_help = "\
Example: politesse pace show --host site.example

It asks the proxy that runs by this configuration, at admin.listen, with the token
in admin.token_file.")]
    Show(PaceShowArguments),
}

/// Arguments of `pace show`.
#[derive(Debug, Args)]
pub(super) struct PaceShowArguments {
    /// This host alone, without a port.
    #[arg(long)]
    host: Option<String>,
    /// How many; 0 means all.
    #[arg(long, default_value_t = HOSTS_SHOWN)]
    limit: usize,
    /// The proxy's answer as it is, one JSON object.
    #[arg(long)]
    json: bool,
}

/// Error of asking the proxy.
#[derive(Debug, Error)]
enum PaceQueryError {
    #[error("nothing listens on {0} (admin.listen): does the proxy run by this configuration?")]
    Nobody(SocketAddr, #[source] std::io::Error),
    #[error("no whole answer came from {0} (admin.listen)")]
    Broken(SocketAddr, #[source] hyper::Error),
    #[error("the answer of {0} (admin.listen) is too long, or broke off")]
    Cut(SocketAddr),
    #[error("{0} (admin.listen) did not answer within {after} s", after = ANSWER_TIMEOUT.as_secs())]
    Slow(SocketAddr),
    #[error("the token was refused: is admin.token_file the one that the proxy was started with?")]
    Refused,
    #[error("{0} (admin.listen) says {1}: {2}")]
    Other(SocketAddr, StatusCode, String),
    #[error("{0} (admin.listen) does not tell a pace: is it a politesse?")]
    Foreign(SocketAddr, #[source] serde_json::Error),
}

/// Runs a command of `pace`.
pub(super) fn pace(command: &PaceCommand, settings: &Settings) -> anyhow::Result<Exit> {
    let PaceCommand::Show(show) = command;
    let token = AdminToken::read(&settings.admin.token_file)?;
    let address = settings.admin.listen;
    let answer = runtime()?.block_on(async {
        timeout(ANSWER_TIMEOUT, ask(address, show, &token))
            .await
            .unwrap_or(Err(PaceQueryError::Slow(address)))
    })?;
    let read = serde_json::from_slice::<HostPaces>(&answer);
    let paces = read.map_err(|error| PaceQueryError::Foreign(address, error))?;
    let mut out = std::io::stdout().lock();
    if show.json {
        out.write_all(&answer)?;
        writeln!(out)?;
    } else {
        out.write_all(table(&paces).as_bytes())?;
    }
    Ok(Exit::Done)
}

/// Asks the proxy at `listen` and returns its answer.
async fn ask(
    listen: SocketAddr,
    show: &PaceShowArguments,
    token: &AdminToken,
) -> Result<Bytes, PaceQueryError> {
    let broken = |error| PaceQueryError::Broken(listen, error);
    let address = reachable(&listen);
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| PaceQueryError::Nobody(listen, error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let request = request(&address.to_string(), show, token.as_str());
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|_| PaceQueryError::Cut(listen))?;
        Ok((status, body.to_bytes()))
    };
    // The exchange gets the errors of the connection as well.
    let (answer, _) = tokio::join!(exchange, connection);
    match answer? {
        (StatusCode::OK, body) => Ok(body),
        (StatusCode::UNAUTHORIZED, _) => Err(PaceQueryError::Refused),
        (status, body) => {
            let text = inert(String::from_utf8_lossy(&body).trim_end());
            // Any server may answer at this address, with a page of any length.
            let start: String = text.chars().take(200).collect();
            Err(PaceQueryError::Other(listen, status, start))
        }
    }
}

/// Builds the request to a proxy that is reached at `address`.
fn request(address: &str, show: &PaceShowArguments, token: &str) -> Request<Empty<Bytes>> {
    let mut target = format!("/api/v1/pace?limit={}", show.limit);
    if let Some(host) = &show.host {
        target.push_str("&host=");
        target.extend(host.bytes().map(escaped));
    }
    let basic = format!("Basic {}", STANDARD.encode(format!("admin:{token}")));
    let mut request = Request::new(Empty::new());
    // Both consist of characters that a target and a field may have.
    *request.uri_mut() = target.parse().unwrap_or_default();
    let fields = request.headers_mut();
    for (name, text) in [(header::HOST, address), (header::AUTHORIZATION, &basic)] {
        if let Ok(value) = HeaderValue::from_str(text) {
            fields.insert(name, value);
        }
    }
    request
}

/// Escapes a byte of a query (RFC 3986, sections 2.1 and 2.3).
fn escaped(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}

/// Lays out the hosts in columns.
fn table(paces: &HostPaces) -> String {
    let rows: Vec<_> = paces.hosts.iter().map(cells).collect();
    let mut widths = HEAD.map(|title| title.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = line(&HEAD.map(str::to_owned), widths);
    text.extend(rows.iter().map(|row| line(row, widths)));
    let shown = paces.hosts.len();
    if shown < paces.total {
        let total = paces.total;
        text.push_str(&format!("{shown} of {total} hosts; --limit 0 shows all\n"));
    }
    text
}

fn cells(host: &HostPace) -> [String; 6] {
    let time = |time: Option<Timestamp>| time.map_or("-".to_owned(), |time| format!("{time:.0}"));
    [
        inert(&host.host),
        host.in_flight.to_string(),
        host.queued.to_string(),
        time(host.next_start),
        host.cause.as_deref().map_or("-".to_owned(), inert),
        time(host.backoff_until),
    ]
}

fn line(cells: &[String; 6], widths: [usize; 6]) -> String {
    let columns: Vec<_> = cells
        .iter()
        .zip(widths)
        .map(|(cell, width)| format!("{cell:<width$}"))
        .collect();
    format!("{}\n", columns.join("  ").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paces(total: usize) -> HostPaces {
        let waiting = HostPace {
            host: "a-long-name.site.example".to_owned(),
            in_flight: 1,
            queued: 17,
            next_start: Some("2026-11-21T10:00:02.5Z".parse().unwrap()),
            cause: Some("crawl_delay".into()),
            backoff_until: None,
        };
        let left_alone = HostPace {
            host: "[::1]\u{1b}".to_owned(),
            in_flight: 0,
            queued: 0,
            next_start: None,
            cause: None,
            backoff_until: Some("2026-11-21T11:00:00Z".parse().unwrap()),
        };
        let hosts = vec![waiting, left_alone];
        HostPaces { hosts, total }
    }

    // Ours: escape sequences in a name are shown, not obeyed.
    #[test]
    fn hosts_are_printed_in_columns() {
        let whole = "\
HOST                      IN FLIGHT  QUEUED  NEXT START            CAUSE        BACK-OFF UNTIL
a-long-name.site.example  1          17      2026-11-21T10:00:02Z  crawl_delay  -
[::1]\\u{1b}               0          0       -                     -            2026-11-21T11:00:00Z
";
        assert_eq!(table(&paces(2)), whole);
        let part = table(&paces(9));
        assert_eq!(part, format!("{whole}2 of 9 hosts; --limit 0 shows all\n"));
    }

    // RFC 3986, section 2.1.
    #[test]
    fn a_host_is_asked_for_whatever_it_is_made_of() {
        let show = PaceShowArguments {
            host: Some("[::1] é&limit=1".to_owned()),
            limit: 3,
            json: false,
        };
        let request = request("127.0.0.1:3129", &show, "p:w é");
        assert_eq!(
            request.uri(),
            "/api/v1/pace?limit=3&host=%5B%3A%3A1%5D%20%C3%A9%26limit%3D1"
        );
        assert_eq!(request.headers()["host"], "127.0.0.1:3129");
        let basic = request.headers()["authorization"].to_str().unwrap();
        let pair = STANDARD.decode(basic.strip_prefix("Basic ").unwrap());
        assert_eq!(pair.unwrap(), "admin:p:w é".as_bytes());
    }
}
