//! Configuration that all nodes of a fleet should have alike, in parts.
//!
//! A site or a crawler sees now one node and now another, so what either of them would
//! notice belongs here. Names, addresses and files of a node, and what a machine can
//! hold, do not. Does not know how nodes compare it.

use super::reload::is_in;
use crate::config::Settings;
use politesse_decision::digest::Digest;
use politesse_fleet::status::ConfigurationDigests;
use politesse_proxy::connect::Interceptor;
use politesse_proxy::server::ActiveConfig;

/// Keys, or sections, of each part but those that are not only keys.
const PARTS: [(&str, &[&str]); 5] = [
    ("crawler", &["crawler", "proxy.auth"]),
    ("robots", &["robots."]),
    ("pace", &["pace."]),
    ("directives", &["directives."]),
    ("fleet", &["fleet.lease", "fleet.forget", "fleet.on_loss"]),
];

/// Keys of these sections that depend on what a machine can hold.
const OF_MACHINE: [&str; 5] = [
    "robots.max_snapshots",
    "robots.max_snapshot_bytes",
    "robots.max_fetches",
    "robots.max_waiting",
    "pace.max_hosts",
];

/// Keys of these sections that are in the policy, whose digest is a part of its own.
const OF_POLICY: [&str; 4] = [
    "robots.dialect",
    "robots.override",
    "robots.readings",
    "robots.status.",
];

/// Returns the digests of the configuration in force, with the fingerprint of the key
/// of the fleet, if there is one.
pub(super) fn agreed(
    settings: &Settings,
    config: &ActiveConfig,
    key: Option<&Digest>,
) -> ConfigurationDigests {
    let of_keys = PARTS.iter().map(|(part, keys)| {
        let is_other = |key: &str| is_in(key, &OF_MACHINE) || is_in(key, &OF_POLICY);
        let is_meant = |key: &str| is_in(key, keys) && !is_other(key);
        (*part, settings.values.digest_of(is_meant).to_string())
    });
    // Of the root: nodes may have certificates of their own below it.
    let ca = config.interceptor.as_deref().map(Interceptor::ca);
    let root = ca.map(|ca| ca.root().fingerprint());
    let shown = |digest: Option<&Digest>| digest.map_or("none".to_owned(), Digest::to_string);
    let others = [
        ("policy", shown(Some(&settings.policy.digest()))),
        ("key", shown(key)),
        ("ca", shown(root.as_ref())),
    ];
    let parts = of_keys.chain(others);
    ConfigurationDigests(
        parts
            .map(|(part, digest)| (part.to_owned(), digest))
            .collect(),
    )
}
