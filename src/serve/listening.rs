//! Sockets that a proxy listens on, bound before anything is written to disk.
//!
//! Does not know what is served on them.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};

use crate::config::Settings;

/// Sockets of a proxy, in the order of the addresses in its settings.
pub(super) struct Sockets {
    /// For crawlers (`proxy.listen`).
    pub(super) crawlers: Vec<TcpListener>,
    /// For operators and monitoring (`admin.listen`).
    pub(super) operators: Vec<TcpListener>,
}

/// Addresses that the proxy cannot listen on; at least one.
#[derive(Debug, Error)]
#[error("{}", self.text())]
pub struct ListenError(Vec<FailedAddress>);

/// An address that the proxy cannot listen on.
#[derive(Debug)]
pub struct FailedAddress {
    /// Configuration key of the address.
    pub key: &'static str,
    /// The address.
    pub address: SocketAddr,
    /// Error from the system.
    pub source: io::Error,
}

impl ListenError {
    /// Returns the addresses, if another program already listens on every one of them.
    #[must_use]
    pub fn in_use(&self) -> Option<&[FailedAddress]> {
        let in_use = |failed: &FailedAddress| failed.source.kind() == io::ErrorKind::AddrInUse;
        self.0.iter().all(in_use).then_some(&self.0)
    }

    fn text(&self) -> String {
        let texts = self.0.iter().map(|failed| {
            let (key, address) = (failed.key, failed.address);
            format!("cannot listen on {address} ({key}): {}", failed.source)
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// Listens on all addresses of `settings`.
///
/// # Errors
///
/// [`ListenError`] with every address that fails: a user who has to choose other ports
/// needs all of them at once.
pub(super) fn bind(settings: &Settings) -> Result<Sockets, ListenError> {
    let backlog = settings.listener.backlog;
    let addresses = settings.listener.listen.iter().map(|listen| listen.address);
    let for_crawlers = addresses.map(|address| listen_on("proxy.listen", address, backlog));
    let for_operators = listen_on("admin.listen", settings.admin.listen, backlog);
    let mut failed = Vec::new();
    let sockets = Sockets {
        crawlers: bound(for_crawlers, &mut failed),
        operators: bound([for_operators], &mut failed),
    };
    match failed.is_empty() {
        true => Ok(sockets),
        false => Err(ListenError(failed)),
    }
}

fn bound(
    results: impl IntoIterator<Item = Result<TcpListener, FailedAddress>>,
    failed: &mut Vec<FailedAddress>,
) -> Vec<TcpListener> {
    let results = results.into_iter();
    let sockets = results.filter_map(|result| result.map_err(|error| failed.push(error)).ok());
    sockets.collect()
}

/// Listens on one address.
///
/// Up to `backlog` connections wait to be accepted, or `net.core.somaxconn` if that is
/// less. The system drops the first packet of any further connection, and its client
/// retries after a second.
fn listen_on(
    key: &'static str,
    address: SocketAddr,
    backlog: NonZeroU32,
) -> Result<TcpListener, FailedAddress> {
    let listen = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        // A restart finds connections of the previous process in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(backlog.get())
    };
    listen().map_err(|source| FailedAddress {
        key,
        address,
        source,
    })
}
