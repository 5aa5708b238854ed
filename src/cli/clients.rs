//! `clients`: asks the running proxy what each of its clients holds, waits for and was
//! refused.
//!
//! Does not know how shares are allocated.

use clap::Args;

use super::admin_api::show;
use super::output::{Exit, columns};
use crate::config::Settings;
use politesse_admin::ROWS_SHOWN;
use politesse_base::clients::snapshot::{ClientSnapshot, ClientSnapshots};
use politesse_base::inert::inert;

/// Titles of the columns.
const HEAD: [&str; 6] = ["CLIENT", "OF", "HELD", "WAITING", "REFUSED", "DISPLACED"];

/// Arguments of `clients`.
#[derive(Debug, Args)]
pub(super) struct ClientsArguments {
    /// Maximum number of clients; 0 means all.
    #[arg(long, default_value_t = ROWS_SHOWN)]
    limit: usize,
    /// Prints the proxy's answer unchanged, as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs `clients`.
pub(super) fn clients(arguments: &ClientsArguments, settings: &Settings) -> anyhow::Result<Exit> {
    let target = format!("/api/v1/clients?limit={}", arguments.limit);
    show(settings, target, arguments.json.into(), table)
}

/// Lays out the clients in columns, with one line per resource.
fn table(snapshots: &ClientSnapshots) -> String {
    let rows: Vec<_> = snapshots.clients.iter().flat_map(rows).collect();
    let mut text = columns(HEAD, &rows);
    let (shown, total) = (snapshots.clients.len(), snapshots.total);
    if shown < total {
        text.push_str(&format!(
            "{shown} of {total} clients; --limit 0 shows all\n"
        ));
    }
    text
}

/// Returns the rows of a client: one for each resource, or one with dashes.
fn rows(client: &ClientSnapshot) -> Vec<[String; 6]> {
    if client.shares.is_empty() {
        let none = || "-".to_owned();
        return vec![[
            inert(&client.client),
            none(),
            none(),
            none(),
            none(),
            none(),
        ]];
    }
    let shares = client.shares.iter().map(|(resource, share)| {
        [
            inert(&client.client),
            inert(resource),
            share.held.to_string(),
            share.waiting.to_string(),
            share.refused.to_string(),
            share.displaced.to_string(),
        ]
    });
    shares.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use politesse_base::clients::snapshot::ResourceSnapshot;

    fn client(name: &str, held: &[u32]) -> ClientSnapshot {
        let share = |held: &u32| ResourceSnapshot {
            held: *held,
            refused: 7,
            ..ResourceSnapshot::default()
        };
        let names = ["connections", "requests"].map(Into::into);
        ClientSnapshot {
            client: name.to_owned(),
            kind: "address".into(),
            shares: BTreeMap::from_iter(names.into_iter().zip(held.iter().map(share))),
        }
    }

    // Ours: escape sequences in a name are printed as text, not sent to the terminal.
    #[test]
    fn clients_are_printed_with_one_line_per_resource() {
        let clients = vec![client("192.0.2.1", &[12, 3]), client("a\u{1b}", &[])];
        let snapshots = ClientSnapshots { clients, total: 3 };
        let expected = "\
CLIENT     OF           HELD  WAITING  REFUSED  DISPLACED
192.0.2.1  connections  12    0        7        0
192.0.2.1  requests     3     0        7        0
a\\u{1b}    -            -     -        -        -
2 of 3 clients; --limit 0 shows all
";
        assert_eq!(table(&snapshots), expected);
    }
}
