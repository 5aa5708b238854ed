//! Sums by key, appended as they come and joined when all are there.
//!
//! To look a key up in a map of thousands takes longer than to append a sum and to sort
//! once at the end; and most entries have the key of the one before. Does not know what
//! is summed up.

/// Sums that are apart at most, beside two for each key: as many as a part has numbers.
const APART_MAX: usize = 8192;

/// A sum of something.
pub(super) trait Sum: Copy {
    /// Adds another one.
    fn add(&mut self, other: &Self);
}

/// Sum of what has one key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyedSum<K, S> {
    pub(super) key: K,
    pub(super) sum: S,
}

/// Sums by key.
#[derive(Debug)]
pub(super) struct KeyedSums<K, S> {
    sums: Vec<KeyedSum<K, S>>,
    /// Keys when sums were last joined.
    keys: usize,
}

impl<K, S> Default for KeyedSums<K, S> {
    fn default() -> Self {
        Self {
            sums: Vec::new(),
            keys: 0,
        }
    }
}

impl<K: Ord + Copy, S: Sum> KeyedSums<K, S> {
    /// Adds `sum` to that of `key`.
    pub(super) fn add(&mut self, key: K, sum: S) {
        match self.sums.last_mut() {
            Some(last) if last.key == key => last.sum.add(&sum),
            _ => self.sums.push(KeyedSum { key, sum }),
        }
        // A record that somebody has changed may have any number of entries in a part.
        if APART_MAX + 2 * self.keys < self.sums.len() {
            self.join();
        }
    }

    /// Reports whether nothing was added.
    pub(super) fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Returns one sum for each key, in the order of the keys.
    pub(super) fn joined(&mut self) -> &[KeyedSum<K, S>] {
        self.join();
        &self.sums
    }

    fn join(&mut self) {
        self.sums.sort_unstable_by_key(|entry| entry.key);
        self.sums.dedup_by(|next, joined| {
            let is_same = next.key == joined.key;
            if is_same {
                joined.sum.add(&next.sum);
            }
            is_same
        });
        self.keys = self.sums.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Sum for u64 {
        fn add(&mut self, other: &Self) {
            *self += other;
        }
    }

    // Ours: what somebody makes of a record must not fill the memory of whoever verifies
    // it.
    #[test]
    fn sums_of_few_keys_take_little_room_however_many_entries_come() {
        let mut sums = KeyedSums::default();
        assert!(sums.is_empty());
        for key in [3, 1, 2].into_iter().cycle().take(9 * APART_MAX) {
            sums.add(key, 1_u64);
            assert!(sums.sums.len() <= APART_MAX + 6);
        }
        let joined = sums.joined().iter().map(|entry| (entry.key, entry.sum));
        let each = 3 * APART_MAX as u64;
        assert!(joined.eq([(1, each), (2, each), (3, each)]));
        assert!(!sums.is_empty());
    }
}
