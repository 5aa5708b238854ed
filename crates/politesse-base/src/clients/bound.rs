//! Bound on the number of waiting items, such as names to look up and files to fetch,
//! shared fairly between clients.
//!
//! Does not know what the items are. Not thread-safe: the caller must hold a lock.

use std::collections::HashMap;

use super::client::ClientId;
use super::shares::leaves_room;

/// Bound that always leaves room for newcomers: no client uses more than it leaves free,
/// and the last places are reserved for clients that use none.
#[derive(Debug)]
pub struct SharedBound {
    most: usize,
    used: usize,
    /// Number of places that each client uses; clients without any are absent.
    clients: HashMap<ClientId, u32>,
}

impl SharedBound {
    /// Creates a bound of `most` items; 0 counts as 1.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            used: 0,
            clients: HashMap::new(),
        }
    }

    /// Counts one more item for `client` if there is room. Returns whether there was.
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

    /// Reverts one call of [`SharedBound::add`] that found room.
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
    fn a_client_leaves_at_least_as_much_room_as_it_uses() {
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
