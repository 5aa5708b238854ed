//! Configuration that all nodes of a fleet should share, digested in parts.
//!
//! Crawlers and sites reach one node now and another one later, so every setting that
//! they could notice is covered here. Left out are a node's own names, addresses and
//! files, and the limits that depend on its machine. Does not know how nodes compare
//! the digests.

use super::reload::is_in;
use crate::config::Settings;
use politesse_decision::digest::Digest;
use politesse_fleet::status::ConfigurationDigests;
use politesse_proxy::connect::Interceptor;
use politesse_proxy::server::ActiveConfig;

/// Parts that consist of keys only: the name of each, with its keys or sections.
const PARTS: [(&str, &[&str]); 5] = [
    ("crawler", &["crawler", "proxy.auth"]),
    ("robots", &["robots."]),
    ("pace", &["pace."]),
    ("directives", &["directives."]),
    ("fleet", &["fleet.lease", "fleet.forget", "fleet.on_loss"]),
];

/// Keys of these sections that depend on the size of the machine.
const OF_MACHINE: [&str; 5] = [
    "robots.max_snapshots",
    "robots.max_snapshot_bytes",
    "robots.max_fetches",
    "robots.max_waiting",
    "pace.max_hosts",
];

/// Keys of these sections that belong to the policy, which has a digest of its own.
const OF_POLICY: [&str; 4] = [
    "robots.dialect",
    "robots.override",
    "robots.readings",
    "robots.status.",
];

/// Returns the digests of the configuration in force, including the fingerprint of the
/// fleet's key if there is one.
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
    // Only the root is compared: nodes may have different certificates below it.
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
