//! Bound of a number of things that wait: names to look up, files to fetch.
//!
//! Does not know whether they may be given up, and is not shared between threads:
//! whoever counts has a lock of its own.

use std::collections::HashMap;

use super::client::ClientId;
use super::shares::leaves_room;

/// Bound of which no client uses more than it leaves free, and of which the last
/// part is for clients that use none, so that a client that comes finds room.
#[derive(Debug)]
pub struct SharedBound {
    most: usize,
    used: usize,
    /// Numbers of the clients that use some of it.
    clients: HashMap<ClientId, u32>,
}

impl SharedBound {
    /// Makes a bound of `most`; 0 counts as 1.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            used: 0,
            clients: HashMap::new(),
        }
    }

    /// Counts one more for `client`; returns whether there was room for it.
    #[must_use]
    pub fn add(&mut self, client: &ClientId) -> bool {
        let own = self.clients.get(client).copied().unwrap_or_default();
        if !leaves_room(self.most, self.most.saturating_sub(self.used), own) {
            return false;
        }
        self.clients.insert(client.clone(), own + 1);
        self.used += 1;
        true
    }

    /// Takes back one [`SharedBound::add`] that found room.
    pub fn remove(&mut self, client: &ClientId) {
        let Some(own) = self.clients.get_mut(client) else {
            return;
        };
        *own -= 1;
        if *own == 0 {
            self.clients.remove(client);
        }
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn client(number: u32) -> ClientId {
        IpAddr::V4(number.into()).into()
    }

    // Ours.
    #[test]
    fn a_client_leaves_as_much_room_as_it_uses() {
        let mut bound = SharedBound::new(8);
        let mut fill = |number| (0..8).filter(|_| bound.add(&client(number))).count();
        assert_eq!([1, 2, 3, 4].map(&mut fill), [4, 2, 1, 1]);
        assert_eq!(fill(5), 0);
        for number in [1, 1, 1, 1, 2, 2, 3, 4, 5] {
            bound.remove(&client(number));
        }
        assert_eq!((bound.used, bound.clients.len()), (0, 0));
        assert!(SharedBound::new(0).add(&client(1)));
    }
}
