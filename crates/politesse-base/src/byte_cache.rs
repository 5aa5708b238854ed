//! Map that is bounded by the bytes of its values, of which the least recently used goes
//! first.
//!
//! Does not know what the values are, and takes no lock.

use std::hash::{BuildHasher as _, Hash, RandomState};

use hashlink::LinkedHashMap;
use hashlink::linked_hash_map::RawEntryMut;

/// Values by key, and the bytes that they count for.
#[derive(Debug)]
pub struct ByteCache<K, V> {
    // Hashed by random keys: clients choose what is looked up. The least recently used is
    // at the front.
    by_key: LinkedHashMap<K, WeighedValue<V>, RandomState>,
    bytes: usize,
    bytes_max: usize,
}

/// Value with the bytes that it counted for when it was inserted. It may grow later.
#[derive(Debug)]
struct WeighedValue<V> {
    value: V,
    bytes: usize,
}

impl<K: Eq + Hash, V> ByteCache<K, V> {
    /// Creates a cache of `bytes_max` at most.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            by_key: LinkedHashMap::with_hasher(RandomState::new()),
            bytes: 0,
            bytes_max,
        }
    }

    /// Returns the value under `key`, which counts as used.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        self.by_key.to_back(key).map(|found| &found.value)
    }

    /// Inserts a value that counts for so many bytes, with its key, in place of those that
    /// are there. Returns the values that are held no longer: the one in its place, and the
    /// least recently used beyond the bound, which may be the new one. To free them may take
    /// a while.
    pub fn insert(&mut self, key: K, value: V, bytes: usize) -> Vec<V> {
        self.bytes += bytes;
        let value = WeighedValue { value, bytes };
        // The key is hashed once; `insert` of the map hashes a new key twice.
        let hash = self.by_key.hasher().hash_one(&key);
        let entry = self.by_key.raw_entry_mut();
        let replaced = match entry.from_key_hashed_nocheck(hash, &key) {
            RawEntryMut::Occupied(mut known) => {
                known.to_back();
                // Equal keys may take different memory, and what counts is the new one's.
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

    /// Returns the bytes that all values count for.
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
