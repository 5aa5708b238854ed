//! `pace show` and `pace release`: ask the running proxy for the pace of its hosts, and
//! to end a back-off.
//!
//! Does not know how the proxy paces hosts.

use clap::{Args, Subcommand};
use http::Method;
use jiff::Timestamp;

use super::admin_api::{ApiRequest, ask, escape, show, with_bound_port};
use super::output::{Exit, OutputForm, columns, print};
use crate::config::Settings;
use politesse_admin::ROWS_SHOWN;
use politesse_base::inert::inert;
use politesse_pace::host_pace::{HostPace, HostPaces};

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
    /// The hosts that are asked; those that wait or are in back-off come first.
    #[command(after_help = "\
Example: politesse pace show --host site.example

It asks the proxy that runs with this configuration, at admin.listen, with the token
in admin.token_file.")]
    Show(PaceShowArguments),
    /// Ends the back-off of a host, for one that a site asked for by mistake.
    #[command(after_help = "\
Example: politesse pace release site.example --reason 'one bad URL, asked its owner'

The record keeps the reason and who ended it (politesse audit events). It asks the
proxy that runs with this configuration, at admin.listen, with the token in
admin.token_file.")]
    Release(PaceReleaseArguments),
}

/// Arguments of `pace release`.
#[derive(Debug, Args)]
pub(super) struct PaceReleaseArguments {
    /// The host, without a port.
    host: String,
    /// Reason for ending the back-off, for the record.
    #[arg(long)]
    reason: String,
}

/// Arguments of `pace show`.
#[derive(Debug, Args)]
pub(super) struct PaceShowArguments {
    /// Shows only this host, without a port.
    #[arg(long)]
    host: Option<String>,
    /// Maximum number of hosts; 0 means all.
    #[arg(long, default_value_t = ROWS_SHOWN)]
    limit: usize,
    /// Prints the proxy's answer unchanged, as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs a command of `pace`.
pub(super) fn pace(command: &PaceCommand, settings: &Settings) -> anyhow::Result<Exit> {
    match command {
        PaceCommand::Show(arguments) => {
            let form = OutputForm::from(arguments.json);
            show(settings, target(arguments), form, table)
        }
        PaceCommand::Release(release) => self::release(release, settings),
    }
}

fn release(release: &PaceReleaseArguments, settings: &Settings) -> anyhow::Result<Exit> {
    let (host, reason) = (escape(&release.host), escape(&release.reason));
    let request = ApiRequest {
        method: Method::DELETE,
        target: format!("/api/v1/pace/{host}?reason={reason}"),
    };
    ask(&with_bound_port(settings)?, &request)?;
    print(&format!("{} may be asked again\n", inert(&release.host)))
}

/// Returns the target of the request for `pace show`.
fn target(show: &PaceShowArguments) -> String {
    let host = show.host.as_deref().map(escape);
    let parameter = host.map_or_else(String::new, |host| format!("&host={host}"));
    format!("/api/v1/pace?limit={}{parameter}", show.limit)
}

/// Lays out the hosts in columns.
fn table(paces: &HostPaces) -> String {
    let rows: Vec<_> = paces.hosts.iter().map(cells).collect();
    let mut text = columns(HEAD, &rows);
    let shown = paces.hosts.len();
    if shown < paces.total {
        let total = paces.total;
        text.push_str(&format!("{shown} of {total} hosts; --limit 0 shows all\n"));
    }
    text
}

/// Returns the cells of the row of a host.
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

    // Ours: escape sequences in a name are printed as text, not sent to the terminal.
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
    fn any_host_is_escaped_in_the_target() {
        let show = PaceShowArguments {
            host: Some("[::1]&limit=1".to_owned()),
            limit: 3,
            json: false,
        };
        let expected = "/api/v1/pace?limit=3&host=%5B%3A%3A1%5D%26limit%3D1";
        assert_eq!(target(&show), expected);
    }
}
