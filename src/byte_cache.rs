//! Map that is bounded by the bytes of its values, of which the least recently used goes
//! first.
//!
//! Does not know what the values are, and takes no lock.

use std::hash::{Hash, RandomState};

use hashlink::LruCache;

/// Values by key, and the bytes that they count for.
#[derive(Debug)]
pub struct ByteCache<K, V> {
    // Hashed by random keys: clients choose what is looked up.
    by_key: LruCache<K, WeighedValue<V>, RandomState>,
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
            by_key: LruCache::with_hasher(usize::MAX, RandomState::new()),
            bytes: 0,
            bytes_max,
        }
    }

    /// Returns the value under `key`, which counts as used.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        self.by_key.get(key).map(|found| &found.value)
    }

    /// Inserts a value that counts for so many bytes. Returns those that are held no
    /// longer: the one in its place, and the least recently used beyond the bound, which
    /// may be the new one. To free them may take a while.
    pub fn insert(&mut self, key: K, value: V, bytes: usize) -> Vec<V> {
        self.bytes += bytes;
        let replaced = self.by_key.insert(key, WeighedValue { value, bytes });
        let mut removed = Vec::from_iter(replaced.map(|replaced| self.uncounted(replaced)));
        while self.bytes_max < self.bytes
            && let Some((_, oldest)) = self.by_key.remove_lru()
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

    /// Returns all values.
    #[cfg(test)]
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.by_key.iter().map(|(_, found)| &found.value)
    }
}
