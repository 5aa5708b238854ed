//! Cache with a bound on the total size of its values. Evicts the least recently used
//! values first.
//!
//! Does not know what the values are, and takes no lock.

use std::hash::{BuildHasher as _, Hash, RandomState};

use hashlink::LinkedHashMap;
use hashlink::linked_hash_map::RawEntryMut;

/// Cache of values by key, bounded by the sizes that are given on insertion.
#[derive(Debug)]
pub struct ByteCache<K, V> {
    // Hashed with random keys, because clients choose the keys to look up. The least
    // recently used value is at the front.
    by_key: LinkedHashMap<K, WeighedValue<V>, RandomState>,
    bytes: usize,
    bytes_max: usize,
}

/// Value with its size at insertion. The real size may grow later.
#[derive(Debug)]
struct WeighedValue<V> {
    value: V,
    bytes: usize,
}

impl<K: Eq + Hash, V> ByteCache<K, V> {
    /// Creates a cache for at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            by_key: LinkedHashMap::with_hasher(RandomState::new()),
            bytes: 0,
            bytes_max,
        }
    }

    /// Returns the value under `key` and marks it as used.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        self.by_key.to_back(key).map(|found| &found.value)
    }

    /// Inserts a value that counts as `bytes`. An existing entry is replaced, including its
    /// key.
    ///
    /// Returns the removed values: the replaced one, and the least recently used ones
    /// beyond the bound, which may include the new value. The caller drops them, because
    /// freeing them may take a while.
    pub fn insert(&mut self, key: K, value: V, bytes: usize) -> Vec<V> {
        self.bytes += bytes;
        let value = WeighedValue { value, bytes };
        // Hashes the key once; the map's own `insert` hashes a new key twice.
        let hash = self.by_key.hasher().hash_one(&key);
        let entry = self.by_key.raw_entry_mut();
        let replaced = match entry.from_key_hashed_nocheck(hash, &key) {
            RawEntryMut::Occupied(mut known) => {
                known.to_back();
                // Equal keys may occupy different amounts of memory, and `bytes` counts
                // the new key.
                known.replace_key(key);
                Some(known.replace_value(value))
            }
            RawEntryMut::Vacant(place) => {
                place.insert_hashed_nocheck(hash, key, value);
                None
            }
        };
        let mut removed = Vec::from_iter(replaced.map(|replaced| self.uncounted(replaced)));
        while self.bytes_max < self.bytes
            && let Some((_, oldest)) = self.by_key.pop_front()
        {
            removed.push(self.uncounted(oldest));
        }
        removed
    }

    /// Removes the value under `key`.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let removed = self.by_key.remove(key)?;
        Some(self.uncounted(removed))
    }

    fn uncounted(&mut self, removed: WeighedValue<V>) -> V {
        self.bytes -= removed.bytes;
        removed.value
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Reports whether there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Returns the total size of all values, as given on insertion.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns all keys with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let entries = self.by_key.iter();
        entries.map(|(key, found)| (key, &found.value))
    }
}
