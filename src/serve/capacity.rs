//! What the system has to allow for a configuration: descriptors, and the
//! length of the listeners' queues.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpSocket};

use crate::admin;
use crate::config::Settings;
use crate::descriptors;
use crate::metrics::Metrics;

/// Where Linux says how long the queue of a listener may be.
const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";

/// Descriptors of one lookup of a name: `/etc/hosts`, or a socket for each of
/// the two questions that getaddrinfo asks.
const PER_LOOKUP: usize = 2;
/// Descriptors of the runtime, the record with its readers, and the log.
const OTHERS: usize = 64;

/// How many descriptors `settings` can need.
///
/// Each connection of a crawler counts for two, since its request needs one to
/// an origin. A crawler that sends many requests at the same time over one
/// HTTP/2 connection can need more; then its requests are refused.
pub fn descriptors_wanted(settings: &Settings) -> u64 {
    let listener = &settings.listener;
    let wanted = listener
        .max_connections
        .get()
        .saturating_mul(2)
        .saturating_add(settings.upstream.pool_idle_total.get())
        .saturating_add(settings.robots.max_fetches.get())
        .saturating_add(settings.egress.dns_lookups.get() * PER_LOOKUP)
        .saturating_add(listener.listen.len() + admin::CONNECTIONS_MAX + OTHERS);
    u64::try_from(wanted).unwrap_or(u64::MAX)
}

/// Logs what the system allows less of than `settings` want: the length of the
/// listeners' queues, and descriptors.
pub fn warn_of_shortages(settings: &Settings) {
    let backlog = settings.listener.backlog.get();
    if let Some(somaxconn) = somaxconn().filter(|somaxconn| *somaxconn < backlog) {
        tracing::warn!(
            "net.core.somaxconn is {somaxconn}, less than proxy.backlog, {backlog}: of more \
             connections that come at once the rest waits a second; raise it with `sysctl -w \
             net.core.somaxconn={backlog}`"
        );
    }
    let wanted = descriptors_wanted(settings);
    if let Some(limit) = descriptors::hard_limit().filter(|limit| *limit < wanted) {
        tracing::warn!(
            "the hard limit of descriptors is {limit}, and this configuration wants {wanted}: \
             when they are used up, connections are closed; raise it (`ulimit -Hn`, LimitNOFILE= \
             of systemd, --ulimit nofile= of Docker), or lower proxy.max_connections"
        );
    }
}

/// Shows in the metrics what is allowed, and what `settings` want.
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

/// The longest queue of a listener; nothing where the system does not say.
fn somaxconn() -> Option<u32> {
    std::fs::read_to_string(SOMAXCONN).ok()?.trim().parse().ok()
}

/// Listens on `addresses`. Of the connections that nobody has accepted yet
/// `backlog` wait, or `net.core.somaxconn` if that is less. The system drops
/// what comes beyond that, and the client tries again after a second.
pub(super) fn bind(
    addresses: &[SocketAddr],
    backlog: NonZeroU32,
) -> anyhow::Result<Vec<TcpListener>> {
    let listen = |address: &SocketAddr| {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        // A restart finds connections of the process before in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(*address)?;
        socket.listen(backlog.get())
    };
    let listeners = addresses.iter().map(|address| {
        listen(address).with_context(|| {
            format!("cannot listen on {address}, which proxy.listen or admin.listen names")
        })
    });
    listeners.collect()
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

    // Ours; the documentation of proxy.max_connections says the number.
    #[test]
    fn the_descriptors_that_a_configuration_wants_follow_from_its_bounds() {
        let default = descriptors_wanted(&settings(&[]));
        assert_eq!(default, 2 * 4096 + 1024 + 1024 + 2 * 64 + 1 + 64 + 64);
        for (key, more) in [
            ("proxy.max_connections=4106", 20),
            ("upstream.pool_idle_total=1034", 10),
            ("robots.max_fetches=1034", 10),
            ("upstream.dns_lookups=74", 20),
        ] {
            assert_eq!(
                descriptors_wanted(&settings(&[key])),
                default + more,
                "{key}"
            );
        }
    }
}
