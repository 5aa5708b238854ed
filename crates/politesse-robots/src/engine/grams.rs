//! Gram index for rules with wildcards: selects the rules that may match a path.
//!
//! A gram is three consecutive bytes. Each rule is filed under the gram of its literals
//! that the fewest other rules share. A lookup scans the grams of a path once, and tries
//! only the rules filed under one of them. Does not know how a rule is matched.

use super::rank::{RuleBytes, RuleRank};
use super::wild::WildcardRule;
use super::wildcard::Fuel;

/// Gram index of the rules of one node.
pub(super) struct Grams {
    /// Bit set of the hashes that have filed rules. Rejects most grams of a path.
    filter: Box<[u64]>,
    /// Number of low bits of a hash that the filter does not use.
    filter_shift: u32,
    /// Start of the filed rules of each hash, then the end of the last.
    starts: Box<[u32]>,
    filed: Box<[FiledRule]>,
    /// Rules without a gram, which are always tried.
    always: Box<[u32]>,
}

/// Rules with wildcards of one node, and the bytes that they refer to.
#[derive(Clone, Copy)]
pub(super) struct WildRules<'a> {
    pub(super) wilds: &'a [WildcardRule],
    pub(super) bytes: RuleBytes<'a>,
}

#[derive(Clone, Copy)]
struct FiledRule {
    gram: u32,
    wild: u32,
}

/// Number of filter bits for each rule.
const FILTER_BITS: usize = 16;

/// Number of tried grams that are remembered. The rules of further grams are tried again if
/// the path repeats them.
const REMEMBERED: usize = 16;

impl Grams {
    /// Creates the index of `wilds`, which are sorted by rank, the greatest first.
    pub(super) fn of(wilds: &[WildcardRule], bytes: RuleBytes<'_>) -> Self {
        let shares = GramShares::of(wilds, bytes);
        let mut always = Vec::new();
        let mut grams = Vec::with_capacity(wilds.len());
        for (at, wild) in (0_u32..).zip(wilds) {
            let rarest = (!wild.is_glob())
                .then(|| shares.rarest(wild.tail(bytes)))
                .flatten();
            match rarest {
                Some(gram) => grams.push(FiledRule { gram, wild: at }),
                None => always.push(at),
            }
        }
        // A power of two, so that the upper bits of a hash give the slot.
        let slots = grams.len().next_power_of_two().max(2);
        let starts = starts(&grams, slots);
        let words = (slots * FILTER_BITS).div_ceil(64);
        let mut filed = Self {
            filter: vec![0; words].into(),
            filter_shift: 32 - (words * 64).ilog2(),
            filed: placed(&grams, starts.clone()),
            starts: starts.into(),
            always: always.into(),
        };
        for entry in &grams {
            let (word, bit) = filed.filter_bit(entry.gram);
            if let Some(word) = filed.filter.get_mut(word) {
                *word |= bit;
            }
        }
        filed
    }

    /// Returns the greatest rank of the rules that match `rest`, or `found` if that is
    /// greater. Does not try rules that cannot exceed `found`.
    pub(super) fn best(
        &self,
        rules: WildRules<'_>,
        rest: &[u8],
        found: RuleRank,
        fuel: &mut Fuel,
    ) -> RuleRank {
        let mut best = found;
        let mut consider = |wild: u32, fuel: &mut Fuel| {
            let wild = rules
                .wilds
                .get(wild as usize)
                .filter(|wild| best < wild.rank);
            if let Some(wild) = wild
                && wild.matches(rules.bytes, rest, fuel)
            {
                best = wild.rank;
            }
        };
        // Rules without a gram.
        for wild in &self.always {
            if fuel.is_spent() {
                return best;
            }
            consider(*wild, fuel);
        }
        let mut tried = [u32::MAX; REMEMBERED];
        let mut count = 0;
        // Scanning the grams takes one step for each byte, even without a hit.
        fuel.spend(rest.len());
        for gram in grams(rest) {
            let (word, bit) = self.filter_bit(gram);
            if self.filter.get(word).is_none_or(|word| word & bit == 0) {
                continue;
            }
            if tried.get(..count).unwrap_or(&tried).contains(&gram) {
                continue;
            }
            if let Some(place) = tried.get_mut(count) {
                *place = gram;
                count += 1;
            }
            for filed in self.filed_under(gram) {
                fuel.spend(1);
                if fuel.is_spent() {
                    return best;
                }
                if filed.gram == gram {
                    consider(filed.wild, fuel);
                }
            }
        }
        best
    }

    fn filed_under(&self, gram: u32) -> &[FiledRule] {
        let slot = hash(gram) >> (32 - self.slot_bits());
        let bounds = self.starts.get(slot as usize..).unwrap_or_default();
        match bounds {
            [from, to, ..] => self.filed.get(*from as usize..*to as usize),
            _ => None,
        }
        .unwrap_or_default()
    }

    fn slot_bits(&self) -> u32 {
        (self.starts.len() - 1).ilog2()
    }

    #[inline]
    fn filter_bit(&self, gram: u32) -> (usize, u64) {
        let bit = hash(gram) >> self.filter_shift;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    /// Returns the memory of the boxed parts, in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.filter)
            + size_of_val(&*self.starts)
            + size_of_val(&*self.filed)
            + size_of_val(&*self.always)
    }
}

/// Returns the grams of `text`, each as a number.
#[inline]
fn grams(text: &[u8]) -> impl Iterator<Item = u32> {
    let (before, after) = text.split_at(text.len().min(2));
    let join = |gram: u32, byte: &u8| (gram << 8 | u32::from(*byte)) & 0xFF_FFFF;
    let mut gram = before.iter().fold(0, join);
    after.iter().map(move |byte| {
        gram = join(gram, byte);
        gram
    })
}

#[inline]
fn hash(gram: u32) -> u32 {
    // Fibonacci hashing: the multiplier is 2^32 divided by the golden ratio.
    gram.wrapping_mul(0x9E37_79B1)
}

/// Approximate number of occurrences of each gram in the rules.
struct GramShares(Box<[u16; Self::SLOTS]>);

impl GramShares {
    const SLOTS: usize = 4096;

    fn of(wilds: &[WildcardRule], bytes: RuleBytes<'_>) -> Self {
        let mut counts = Box::new([0_u16; Self::SLOTS]);
        for wild in wilds {
            for gram in literal_grams(wild.tail(bytes)) {
                let count = &mut counts[Self::slot(gram)];
                *count = count.saturating_add(1);
            }
        }
        Self(counts)
    }

    fn slot(gram: u32) -> usize {
        // Uses the upper bits of the product, because they are the well-mixed ones.
        (hash(gram) >> 20) as usize
    }

    /// Returns the gram with the fewest occurrences; the last one if several are equal.
    fn rarest(&self, tail: &[u8]) -> Option<u32> {
        literal_grams(tail)
            .map(|gram| (self.0[Self::slot(gram)], gram))
            .reduce(|least, next| if least.0 < next.0 { least } else { next })
            .map(|(_, gram)| gram)
    }
}

/// Returns the grams of the literals in a tail: those without a `*`.
fn literal_grams(tail: &[u8]) -> impl Iterator<Item = u32> {
    const STAR: u32 = b'*' as u32;
    grams(tail).filter(|gram| ![gram >> 16, gram >> 8 & 0xFF, gram & 0xFF].contains(&STAR))
}

/// Computes the start of the rules of each slot in sorted order, then the end of the last.
fn starts(grams: &[FiledRule], slots: usize) -> Vec<u32> {
    let shift = 32 - slots.ilog2();
    let mut starts = vec![0; slots + 1];
    for filed in grams {
        if let Some(count) = starts.get_mut((hash(filed.gram) >> shift) as usize + 1) {
            *count += 1;
        }
    }
    let mut sum = 0;
    for start in &mut starts {
        sum += *start;
        *start = sum;
    }
    starts
}

/// Sorts the rules by slot. The sort is stable.
fn placed(grams: &[FiledRule], starts: Vec<u32>) -> Box<[FiledRule]> {
    let shift = 32 - (starts.len() - 1).ilog2();
    let mut next = starts;
    let mut placed = grams.to_vec();
    for filed in grams {
        if let Some(place) = next.get_mut((hash(filed.gram) >> shift) as usize) {
            if let Some(target) = placed.get_mut(*place as usize) {
                *target = *filed;
            }
            *place += 1;
        }
    }
    placed.into()
}
