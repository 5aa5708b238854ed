//! System limits that a configuration depends on: file descriptors, and the length of
//! the listeners' queues of connections that are not yet accepted.
//!
//! A limit that is too low is logged and shown in the metrics; the proxy starts anyway.
//! This module does not raise the limit of descriptors: the command `serve` does.

use crate::config::Settings;
use politesse_base::descriptors;
use politesse_base::metrics::Metrics;
use politesse_proxy::overload::ANSWERED_MAX;

/// File in which Linux states the maximum length of a listener's queue.
const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";

/// Descriptors used by one name lookup: `/etc/hosts`, or one socket for each of the two
/// queries.
const PER_LOOKUP: usize = 2;
/// Descriptors of everything else: the runtime, the audit record with its readers, and
/// the log.
const OTHERS: usize = 64;

/// Returns the number of descriptors that `settings` can need.
///
/// Each connection from a crawler counts twice, because its request needs a second one
/// to an origin. A crawler that sends many requests at once over one HTTP/2 connection
/// can need more; the excess requests are refused.
fn descriptors_wanted(settings: &Settings) -> u64 {
    let listener = &settings.listener;
    // Connections from load balancers that have not sent the PROXY header yet.
    let awaited_headers = match listener.proxy_protocol_from[..] {
        [] => 0,
        [_, ..] => listener.limits.handshakes.get(),
    };
    let wanted = listener
        .limits
        .connections
        .get()
        .saturating_mul(2)
        .saturating_add(awaited_headers)
        .saturating_add(settings.upstream.pool_idle_total.get())
        .saturating_add(settings.robots.max_fetches.get())
        .saturating_add(settings.egress.dns_lookups.get() * PER_LOOKUP)
        .saturating_add(
            listener.listen.len() + ANSWERED_MAX + politesse_admin::CONNECTIONS_MAX + OTHERS,
        );
    u64::try_from(wanted).unwrap_or(u64::MAX)
}

/// Logs a warning for each system limit that is too low for `settings`. To be called at
/// the start and after a reload.
pub fn warn_of_shortages(settings: &Settings) {
    for shortage in shortages(settings) {
        tracing::warn!("{shortage}");
    }
}

/// Describes each system limit that is too low for `settings`, and how to raise it.
#[must_use]
pub fn shortages(settings: &Settings) -> Vec<String> {
    let mut shortages = Vec::new();
    let backlog = settings.listener.backlog.get();
    if let Some(somaxconn) = somaxconn().filter(|somaxconn| *somaxconn < backlog) {
        shortages.push(format!(
            "net.core.somaxconn is {somaxconn}, less than proxy.backlog, {backlog}: if more \
             connections arrive at once, the rest waits a second; raise it with `sysctl -w \
             net.core.somaxconn={backlog}`"
        ));
    }
    let wanted = descriptors_wanted(settings);
    if let Some(limit) = descriptors::hard_limit().filter(|limit| *limit < wanted) {
        shortages.push(format!(
            "the hard limit of descriptors is {limit}, and this configuration wants {wanted}: \
             they suffice for {} connections of crawlers with one origin connection each, and \
             further ones get 503; raise it (`ulimit -Hn`, LimitNOFILE= of systemd, --ulimit nofile= of \
             Docker), or lower proxy.max_connections",
            descriptors::connections_of(limit)
        ));
    }
    shortages
}

/// Sets the gauges of the system's limits and of the descriptors that `settings` need.
pub(super) fn show(settings: &Settings, metrics: &Metrics) {
    let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let backlog = settings.listener.backlog.get();
    let queue = somaxconn().map_or(backlog, |somaxconn| somaxconn.min(backlog));
    metrics.backlog.set(queue.into());
    let wanted = descriptors_wanted(settings);
    metrics.descriptors_wanted.set(gauge(wanted));
    let limit = descriptors::limit().unwrap_or(u64::MAX);
    metrics.descriptors_limit.set(gauge(limit));
}

/// Returns the maximum queue length that the system allows a listener; `None` if the
/// system does not state it.
fn somaxconn() -> Option<u32> {
    std::fs::read_to_string(SOMAXCONN).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigSources};

    fn settings(overrides: &[&str]) -> Settings {
        let overrides: Vec<_> = overrides.iter().map(ToString::to_string).collect();
        let sources = ConfigSources {
            file: None,
            environment: Vec::new(),
            overrides: &overrides,
            working_directory: "/".into(),
            data_directory: None,
        };
        Config::read(&sources).unwrap().settings().clone()
    }

    // Ours; the documentation of proxy.max_connections states the number.
    #[test]
    fn each_limit_adds_its_descriptors_to_the_total() {
        let default = descriptors_wanted(&settings(&[]));
        assert_eq!(default, 2 * 4096 + 1024 + 1024 + 2 * 256 + 1 + 3 * 64);
        for (key, more) in [
            ("proxy.max_connections=4106", 20),
            ("upstream.pool_idle_total=1034", 10),
            (r#"proxy.proxy_protocol_from=["192.0.2.5"]"#, 1024),
            ("robots.max_fetches=1034", 10),
            ("upstream.dns_lookups=266", 20),
        ] {
            assert_eq!(
                descriptors_wanted(&settings(&[key])),
                default + more,
                "{key}"
            );
        }
    }
}
