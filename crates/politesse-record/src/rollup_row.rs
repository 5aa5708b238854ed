//! Row of `rollup`: the sums of a part, encoded as bytes, and their reader.
//!
//! Does not know when a part is summed up, or from which entries.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, OptionalExtension, Row};

use politesse_decision::outcome::EndingClass;

const SUMS: &str = "SELECT sums FROM rollup WHERE part = ?";

/// Flags in the tag of an entry: which values follow. The upper half of the tag is
/// the distance of its origin from the previous one.
const HAS_REQUESTS: u8 = 1;
const HAS_WAIT: u8 = 2;
const HAS_BYTES: u8 = 4;
const HAS_ENDINGS: u8 = 8;
const NEAR_MAX: u64 = 15;

/// Hour, ruling and origin of decisions in one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RollupKey {
    /// Part of the decision; for a late ending not that of the row.
    pub(super) part: i64,
    /// Hours since 1970.
    pub(super) hour: i64,
    pub(super) ruling: i64,
    pub(super) origin: i64,
}

/// Sums over entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EntrySums {
    /// Decisions; 0 for late endings, whose decisions were counted before.
    pub requests: u64,
    /// Milliseconds that requests waited.
    pub wait_ms: u64,
    /// Bytes of bodies passed on.
    pub bytes: u64,
    /// Endings with an error other than the kinds below.
    pub errors: u64,
    /// Endings of responses that were withheld from the client.
    pub withheld: u64,
    /// Endings of requests that the site refused.
    pub refused_by_site: u64,
    /// Endings of requests that the site put off.
    pub put_off_by_site: u64,
}

impl EntrySums {
    /// Returns the sums of one ending.
    pub(super) fn of_ending(class: EndingClass, bytes: u64) -> Self {
        let count_of = |counted| u64::from(class == counted);
        Self {
            bytes,
            errors: count_of(EndingClass::Failed),
            withheld: count_of(EndingClass::Withheld),
            refused_by_site: count_of(EndingClass::RefusedBySite),
            put_off_by_site: count_of(EndingClass::PutOffBySite),
            ..Self::default()
        }
    }

    /// Adds the sums of other entries.
    pub(super) fn add(&mut self, other: &Self) {
        // An altered row may hold any number.
        self.requests = self.requests.saturating_add(other.requests);
        self.wait_ms = self.wait_ms.saturating_add(other.wait_ms);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.errors = self.errors.saturating_add(other.errors);
        self.withheld = self.withheld.saturating_add(other.withheld);
        self.refused_by_site = self.refused_by_site.saturating_add(other.refused_by_site);
        self.put_off_by_site = self.put_off_by_site.saturating_add(other.put_off_by_site);
    }

    /// Returns the value that the tag's flag for endings announces: the errors in
    /// the upper bits, and in the lowest bit whether the other counts of endings
    /// follow. The tag has no bit left for those, and few entries have them.
    fn ending_counts(&self) -> u64 {
        let has_others = self.other_endings().iter().any(|count| 0 < *count);
        self.errors << 1 | u64::from(has_others)
    }

    /// Returns the other counts of endings, in the order in which they follow.
    fn other_endings(&self) -> [u64; 3] {
        [self.withheld, self.refused_by_site, self.put_off_by_site]
    }
}

/// Sums of one origin in a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OriginEntry {
    pub(super) origin: i64,
    pub(super) sums: EntrySums,
}

/// Sums that were read, in sections of one part, hour and ruling.
#[derive(Debug, Default)]
pub(super) struct RollupEntries {
    /// Key of each section, with origin 0, and the index where its entries end.
    sections: Vec<(RollupKey, usize)>,
    entries: Vec<OriginEntry>,
}

impl RollupEntries {
    /// Returns the sections with their entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RollupKey, &[OriginEntry])> {
        let mut begin = 0;
        self.sections.iter().map(move |(key, end)| {
            let entries = self.entries.get(begin..*end).unwrap_or_default();
            begin = *end;
            (*key, entries)
        })
    }

    /// Appends a section of one entry.
    pub(super) fn push(&mut self, key: RollupKey, entry: OriginEntry) {
        self.entries.push(entry);
        self.sections.push((key, self.entries.len()));
    }

    /// Removes all sections.
    pub(super) fn clear(&mut self) {
        self.sections.clear();
        self.entries.clear();
    }
}

/// Times of the earliest and the latest decision of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeSpan {
    pub(super) first_us: i64,
    pub(super) last_us: i64,
}

/// Encodes sums in the order of their keys, late endings first, in sections of one
/// part, hour and ruling. The entries of a section are in ascending order of their
/// origins.
///
/// All numbers are in LEB128. The usual entry, one request that did not wait, takes
/// one byte plus its size. This matters because a record of many hosts has an entry
/// for nearly every request.
pub(super) fn encode(sums: &BTreeMap<RollupKey, EntrySums>, own_part: i64) -> Vec<u8> {
    // The keys ascend by part, so late endings come before the sums of the row's
    // own part.
    let mut bytes = Vec::with_capacity(4 * sums.len());
    let entries: Vec<_> = sums.iter().collect();
    let section_of = |key: &RollupKey| RollupKey { origin: 0, ..*key };
    for section in entries.chunk_by(|one, next| section_of(one.0) == section_of(next.0)) {
        let Some((first, _)) = section.first() else {
            continue;
        };
        let back = own_part.wrapping_sub(first.part);
        let length = section.len() as u64;
        for number in [back, first.hour, first.ruling].map(i64::cast_unsigned) {
            push_number(&mut bytes, number);
        }
        push_number(&mut bytes, length);
        // With many origins the distances between neighbours are small, and most
        // fit into the tag.
        let mut previous = 0;
        for (key, sum) in section {
            let distance = key.origin.wrapping_sub(previous).cast_unsigned();
            push_entry(&mut bytes, distance, sum);
            previous = key.origin;
        }
    }
    bytes
}

fn push_entry(bytes: &mut Vec<u8>, distance: u64, sums: &EntrySums) {
    let values = [
        (HAS_REQUESTS, sums.requests, 1),
        (HAS_WAIT, sums.wait_ms, 0),
        (HAS_BYTES, sums.bytes, 0),
        (HAS_ENDINGS, sums.ending_counts(), 0),
    ];
    let unusual = values.iter().filter(|(_, value, usual)| value != usual);
    let near = distance.min(NEAR_MAX);
    let tag = unusual
        .clone()
        .fold(near << 4, |tag, (flag, ..)| tag | u64::from(*flag));
    // The upper four bits hold the distance, the lower four the flags.
    bytes.push(tag.to_le_bytes()[0]);
    if near == NEAR_MAX {
        push_number(bytes, distance - NEAR_MAX);
    }
    for (_, value, _) in unusual {
        push_number(bytes, *value);
    }
    if sums.ending_counts() & 1 == 1 {
        for count in sums.other_endings() {
            push_number(bytes, count);
        }
    }
}

fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = number.to_le_bytes()[0] & 0x7f;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

/// Reader of the sums of a part.
pub(super) struct RollupReader<'a> {
    pub(super) bytes: &'a [u8],
    /// Part of the row.
    pub(super) part: i64,
    /// Row ids of the wanted origins, in ascending order; `None` for all.
    pub(super) origins: Option<&'a [i64]>,
}

impl RollupReader<'_> {
    /// Appends the entries to `read`: all of them, or only the late endings.
    /// Returns `None` if the bytes are no valid roll-up, because someone altered
    /// them.
    pub(super) fn read(mut self, is_late_only: bool, read: &mut RollupEntries) -> Option<()> {
        while !self.bytes.is_empty() {
            let back = self.number()?.cast_signed();
            // Late endings come first, so the rest can be skipped.
            if is_late_only && back == 0 {
                return Some(());
            }
            let key = RollupKey {
                part: self.part.wrapping_sub(back),
                hour: self.number()?.cast_signed(),
                ruling: self.number()?.cast_signed(),
                origin: 0,
            };
            // Added before its entries, so that the key is known even if they
            // cannot be read.
            read.sections.push((key, read.entries.len()));
            let mut origin: i64 = 0;
            for _ in 0..self.number()? {
                let [tag, rest @ ..] = self.bytes else {
                    return None;
                };
                self.bytes = rest;
                let near = u64::from(tag >> 4);
                let distance = match near {
                    NEAR_MAX => NEAR_MAX.wrapping_add(self.number()?),
                    near => near,
                };
                origin = origin.wrapping_add(distance.cast_signed());
                let sums = self.sums(*tag)?;
                if is_wanted(self.origins, origin) {
                    read.entries.push(OriginEntry { origin, sums });
                }
            }
            if let Some((_, end)) = read.sections.last_mut() {
                *end = read.entries.len();
            }
        }
        Some(())
    }

    /// Reads the values that follow `tag`.
    fn sums(&mut self, tag: u8) -> Option<EntrySums> {
        let mut sums = EntrySums {
            requests: self.value(tag, HAS_REQUESTS, 1)?,
            wait_ms: self.value(tag, HAS_WAIT, 0)?,
            bytes: self.value(tag, HAS_BYTES, 0)?,
            ..EntrySums::default()
        };
        let endings = self.value(tag, HAS_ENDINGS, 0)?;
        sums.errors = endings >> 1;
        if endings & 1 == 1 {
            sums.withheld = self.number()?;
            sums.refused_by_site = self.number()?;
            sums.put_off_by_site = self.number()?;
        }
        Some(sums)
    }

    fn value(&mut self, tag: u8, flag: u8, usual: u64) -> Option<u64> {
        if tag & flag == 0 {
            return Some(usual);
        }
        self.number()
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for (byte, shift) in self.bytes.iter().zip((0..u64::BITS).step_by(7)) {
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let length = usize::try_from(shift / 7).ok()? + 1;
                self.bytes = self.bytes.get(length..)?;
                return Some(number);
            }
        }
        None
    }
}

/// Reads the time span of a part's decisions from two columns.
pub(super) fn read_span(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<TimeSpan>> {
    let first: Option<i64> = row.get(column)?;
    let last: Option<i64> = row.get(column + 1)?;
    let span = first.zip(last);
    Ok(span.map(|(first_us, last_us)| TimeSpan { first_us, last_us }))
}

/// Returns the earlier parts whose decisions have endings in `part`, according to
/// its roll-up.
pub(super) fn late_parts(connection: &Connection, part: i64) -> rusqlite::Result<BTreeSet<i64>> {
    let read = |row: &Row<'_>| {
        let mut entries = RollupEntries::default();
        let bytes = row.get_ref(0)?.as_blob().unwrap_or_default();
        // If the row was altered, the readable beginning is used.
        let read = RollupReader {
            bytes,
            part,
            origins: None,
        }
        .read(true, &mut entries);
        Ok((entries, read).0)
    };
    let mut statement = connection.prepare_cached(SUMS)?;
    let found = statement.query_row([part], read).optional()?;
    let entries = found.unwrap_or_default();
    let parts = entries.sections.iter().map(|(key, _)| key.part);
    Ok(parts.collect())
}

/// Reports whether decisions of `part` may have one of `rulings`, according to its
/// roll-up; true if the roll-up is missing or unreadable.
pub(super) fn has_ruling(
    connection: &Connection,
    part: i64,
    rulings: &BTreeSet<i64>,
) -> rusqlite::Result<bool> {
    let read = |row: &Row<'_>| {
        let bytes = row.get_ref(0)?.as_blob().unwrap_or_default();
        let mut entries = RollupEntries::default();
        let is_read = RollupReader {
            bytes,
            part,
            origins: None,
        }
        .read(false, &mut entries);
        let mut sections = entries.sections.iter();
        let is_there = sections.any(|(key, _)| key.part == part && rulings.contains(&key.ruling));
        Ok(is_there || is_read.is_none())
    };
    let mut statement = connection.prepare_cached(SUMS)?;
    let found = statement.query_row([part], read).optional()?;
    // A part without a roll-up may have any ruling.
    Ok(found.unwrap_or(true))
}

/// Reports whether `origin` is among the wanted origins.
pub(super) fn is_wanted(origins: Option<&[i64]>, origin: i64) -> bool {
    origins.is_none_or(|origins| origins.binary_search(&origin).is_ok())
}
