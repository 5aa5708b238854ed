//! `fleet status`: asks the running proxy for the state of its fleet.
//!
//! Does not know how nodes learn of each other.

use clap::{Args, Subcommand};

use super::admin_api::show;
use super::output::{Exit, columns};
use crate::config::Settings;
use politesse_base::inert::inert;
use politesse_fleet::status::{FleetAnswer, FleetNode, FleetStatus};

/// Titles of the columns.
const HEAD: [&str; 7] = [
    "NODE",
    "STATE",
    "HEARD OF",
    "VERSION",
    "SINCE",
    "HOSTS",
    "CONFIGURATION",
];

/// Digits of a digest in a table, enough to tell digests apart.
const SHOWN_DIGITS: usize = 12;

/// Text after the address of a store that starts a new generation again and again.
const UNOPENED: &str = ", begins the fleet again and again";
/// Text after the mode of a node whose name another process also has.
const NAMESAKE: &str = ", and another process has the same name: change fleet.node";

/// Commands of `fleet`.
#[derive(Debug, Subcommand)]
pub(super) enum FleetCommand {
    /// The nodes of the fleet, their store, and whether they have one configuration.
    #[command(after_help = "\
Example: politesse fleet status

It asks the proxy that runs with this configuration, at admin.listen, with the token
in admin.token_file.")]
    Status(FleetStatusArguments),
}

/// Arguments of `fleet status`.
#[derive(Debug, Args)]
pub(super) struct FleetStatusArguments {
    /// Prints the proxy's answer unchanged, as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs a command of `fleet`.
pub(super) fn fleet(command: &FleetCommand, settings: &Settings) -> anyhow::Result<Exit> {
    let FleetCommand::Status(arguments) = command;
    let target = "/api/v1/fleet".to_owned();
    show(settings, target, arguments.json.into(), text)
}

/// Lays out the state of the fleet.
fn text(answer: &FleetAnswer) -> String {
    let Some(fleet) = &answer.fleet else {
        return "this proxy is in no fleet (fleet.store)\n".to_owned();
    };
    let store = match &fleet.store {
        Some(store) => format!(
            "{}, {:.1} ms, generation {}{}",
            inert(&store.address),
            store.latency_ms,
            store.generation,
            if store.is_unopened { UNOPENED } else { "" },
        ),
        None => "none answers".to_owned(),
    };
    let robots = match fleet.shares_robots {
        true => "fetched once for all nodes",
        false => "fetched by each node (fleet.key is \"none\")",
    };
    let mut text = format!(
        "fleet {}, node {}: {}{}\nstore: {store}\nrobots.txt: {robots}\nconfiguration: {}\n\n",
        inert(&fleet.fleet),
        inert(&fleet.node),
        fleet.mode.as_str(),
        if fleet.has_namesake { NAMESAKE } else { "" },
        agreement(fleet),
    );
    let rows: Vec<_> = fleet.nodes.iter().map(cells).collect();
    text.push_str(&columns(HEAD, &rows));
    text
}

/// Describes whether all nodes have the configuration of the node that was asked.
fn agreement(fleet: &FleetStatus) -> String {
    let found = fleet.difference();
    if found.nodes.is_empty() {
        return "the same at all nodes that were heard of".to_owned();
    }
    let parts: Vec<_> = found.parts.iter().map(|part| inert(part)).collect();
    let nodes: Vec<_> = found.nodes.iter().map(|node| inert(node)).collect();
    format!("another at {} ({})", nodes.join(", "), parts.join(", "))
}

/// Returns the cells of the row of a node.
fn cells(node: &FleetNode) -> [String; 7] {
    let none = || "-".to_owned();
    let configuration = node.configuration.as_deref().map(|digest| {
        let start = digest.get(..SHOWN_DIGITS).unwrap_or(digest);
        let differs = match node.differs.join(", ") {
            parts if parts.is_empty() => String::new(),
            parts => format!(" (differs: {})", inert(&parts)),
        };
        format!("{}{differs}", inert(start))
    });
    [
        inert(&node.node),
        node.state.as_str().to_owned(),
        format!("{} s ago", node.heartbeat_ms / 1000),
        node.version.as_deref().map_or_else(none, inert),
        node.started
            .map_or_else(none, |started| format!("{started:.0}")),
        node.hosts.map_or_else(none, |hosts| hosts.to_string()),
        configuration.unwrap_or_else(none),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: names come from the store, and escape sequences in them are printed as
    // text.
    #[test]
    fn a_fleet_is_printed_with_its_differences() {
        let answer = r#"{"fleet": {
            "fleet": "politesse", "node": "a", "has_namesake": true, "mode": "joined",
            "shares_robots": true,
            "store": {"address": "redis://store.example:6379", "latency_ms": 0.4321, "generation": 2},
            "configuration": {"pace": "1"},
            "nodes": [
                {"node": "a", "state": "live", "heartbeat_ms": 400, "version": "0.1.0",
                 "started": "2026-11-21T10:00:02.5Z", "hosts": 12,
                 "configuration": "0123456789abcdef", "differs": []},
                {"node": "b\u001b", "state": "draining", "heartbeat_ms": 1900, "version": "0.1.0",
                 "started": "2026-11-21T10:00:02Z", "hosts": 0,
                 "configuration": "fedcba9876543210", "differs": ["pace"]},
                {"node": "c", "state": "missing", "heartbeat_ms": 61000, "version": null,
                 "started": null, "hosts": null, "configuration": null, "differs": []}]}}"#;
        let answer: FleetAnswer = serde_json::from_str(answer).unwrap();
        let expected = "\
fleet politesse, node a: joined, and another process has the same name: change fleet.node
store: redis://store.example:6379, 0.4 ms, generation 2
robots.txt: fetched once for all nodes
configuration: another at b\\u{1b} (pace)

NODE     STATE     HEARD OF  VERSION  SINCE                 HOSTS  CONFIGURATION
a        live      0 s ago   0.1.0    2026-11-21T10:00:02Z  12     0123456789ab
b\\u{1b}  draining  1 s ago   0.1.0    2026-11-21T10:00:02Z  0      fedcba987654 (differs: pace)
c        missing   61 s ago  -        -                     -      -
";
        assert_eq!(text(&answer), expected);
        let none = "this proxy is in no fleet (fleet.store)\n";
        assert_eq!(text(&FleetAnswer { fleet: None }), none);
    }
}
