//! Directory of the clients that hold shares, or did so recently.
//!
//! Does not know how shares are allocated.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;

use super::client::{Client, ClientId, ClientLimits};
use super::snapshot::ClientSnapshot;

/// Number of clients above which idle clients are dropped, together with their counters.
/// The number of other clients is bounded by the resources that they hold.
const CLIENTS_SWEPT: usize = 4096;

/// Limits for clients (`proxy.per_client`, `proxy.clients`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Limits of each client.
    pub each: ClientLimits,
    /// Limits of networks, for all clients of each together. The first network that
    /// contains a client applies.
    pub networks: Vec<NetworkLimits>,
}

/// Limits of one network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkLimits {
    /// Network.
    pub network: IpNet,
    /// Limits for all clients of the network together.
    pub limits: ClientLimits,
}

/// Directory with one [`Client`] for each identity.
#[derive(Debug, Default)]
pub struct ClientDirectory(Mutex<DirectoryState>);

#[derive(Debug, Default)]
struct DirectoryState {
    options: Options,
    clients: HashMap<ClientId, Arc<Client>>,
    /// Clients that stand for the networks with limits, in the order of `options.networks`.
    networks: Vec<Arc<Client>>,
    /// Number given last to a client.
    last_number: u64,
    /// Number of clients that triggers the next sweep.
    next_sweep: usize,
}

impl ClientDirectory {
    /// Puts limits in force. If they have changed, shares that clients already hold no
    /// longer count against the limits.
    pub fn set_options(&self, options: Options) {
        let mut state = self.lock();
        if state.options == options {
            return;
        }
        state.clients.clear();
        let networks = options.networks.iter();
        state.networks = networks
            .map(|NetworkLimits { network, limits }| {
                let number = state.number();
                let id = ClientId::Network(*network);
                Arc::new(Client::new(id, number, limits.clone()))
            })
            .collect();
        state.options = options;
    }

    /// Returns the client at `address` that has presented no credential.
    pub fn at(&self, address: IpAddr) -> Arc<Client> {
        self.lock().client(ClientId::from(address), Some(address))
    }

    /// Returns the client that has presented the credential of the crawler `name`.
    pub fn crawler(&self, name: &Arc<str>) -> Arc<Client> {
        self.lock()
            .client(ClientId::Crawler(Arc::clone(name)), None)
    }

    /// Takes snapshots of all clients, and of all networks that have limits.
    pub fn snapshot(&self) -> Vec<ClientSnapshot> {
        let state = self.lock();
        let all = state.networks.iter().chain(state.clients.values());
        all.map(|client| ClientSnapshot::of(client)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, DirectoryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DirectoryState {
    /// Returns a number that no other client has.
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn client(&mut self, id: ClientId, address: Option<IpAddr>) -> Arc<Client> {
        if let Some(known) = self.clients.get(&id) {
            return Arc::clone(known);
        }
        self.sweep_if_due();
        let mut client = Client::new(id.clone(), self.number(), self.options.each.clone());
        client.network = address.and_then(|address| self.network(address));
        let client = Arc::new(client);
        self.clients.insert(id, Arc::clone(&client));
        client
    }

    /// Returns the first network with limits that contains `address`.
    fn network(&self, address: IpAddr) -> Option<Arc<Client>> {
        let limits = self.options.networks.iter();
        let mut both = limits.zip(&self.networks);
        let (_, network) = both.find(|(limits, _)| limits.network.contains(&address))?;
        Some(Arc::clone(network))
    }

    fn sweep_if_due(&mut self) {
        if self.clients.len() < self.next_sweep.max(CLIENTS_SWEPT) {
            return;
        }
        // A client that holds anything has a second reference.
        self.clients
            .retain(|_, client| 1 < Arc::strong_count(client));
        // Doubled, because otherwise every new client would trigger a sweep that
        // frees nothing.
        self.next_sweep = self.clients.len().saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::client::Resource;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    // Ours.
    #[test]
    fn there_is_one_client_for_each_identity() {
        let directory = ClientDirectory::default();
        let first = directory.at(address(1));
        assert!(Arc::ptr_eq(&first, &directory.at(address(1))));
        assert!(!Arc::ptr_eq(&first, &directory.at(address(2))));
        let name: Arc<str> = "1".into();
        assert!(Arc::ptr_eq(
            &directory.crawler(&name),
            &directory.crawler(&name)
        ));
    }

    #[test]
    fn idle_clients_are_eventually_dropped() {
        let directory = ClientDirectory::default();
        let held = directory.at(address(0));
        for number in 1..100_000 {
            directory.at(address(number));
        }
        assert!(directory.lock().clients.len() <= 2 * CLIENTS_SWEPT);
        assert!(Arc::ptr_eq(&held, &directory.at(address(0))));
    }

    #[test]
    fn the_limits_of_a_network_apply_to_its_clients_together() {
        let directory = ClientDirectory::default();
        let mut limits = ClientLimits::default();
        limits.set(Resource::Lookups, 1);
        let network = NetworkLimits {
            network: "10.0.0.0/8".parse().unwrap(),
            limits,
        };
        directory.set_options(Options {
            each: ClientLimits::default(),
            networks: vec![network],
        });
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|text| directory.at(text.parse().unwrap()));
        one.add_held(Resource::Lookups);
        let limited_by = other.limited_by(Resource::Lookups).unwrap().to_string();
        assert_eq!(limited_by, "10.0.0.0/8");
        assert_eq!(other.limited_by(Resource::Leaves), None);
        let outside = directory.at("192.0.2.1".parse().unwrap());
        assert_eq!(outside.limited_by(Resource::Lookups), None);
        let shown = directory.snapshot();
        assert_eq!(shown.len(), 4);
        let in_use = shown.iter().map(|client| client.shares.len());
        assert_eq!(in_use.sum::<usize>(), 2);
    }
}
