//! Place of a decision among those of all nodes, as used in links to the next page.
//!
//! Does not know whether there is such a decision.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Place of a decision in the order of the archive: by time, then by node, then by
/// sequence number. Its text is `TIME.NODE.SEQ`, all in decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArchivePlace {
    /// Time of the decision, in microseconds since 1970.
    pub time_us: i64,
    /// Number of the node in the archive.
    pub node: i32,
    /// Sequence number of the decision in the node's record.
    pub seq: i64,
}

/// Error for a text that is not a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no place in the archive")]
pub struct InvalidPlace;

impl fmt::Display for ArchivePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.time_us, self.node, self.seq)
    }
}

impl FromStr for ArchivePlace {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, InvalidPlace> {
        let parse = || {
            let mut parts = text.split('.');
            let place = Self {
                time_us: parts.next()?.parse().ok()?,
                node: parts.next()?.parse().ok()?,
                seq: parts.next()?.parse().ok()?,
            };
            parts.next().is_none().then_some(place)
        };
        parse().ok_or(InvalidPlace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: links to the next page contain a place.
    #[test]
    fn a_displayed_place_parses_to_the_same_place() {
        let place = ArchivePlace {
            time_us: -5,
            node: 3,
            seq: 17,
        };
        assert_eq!(place.to_string().parse(), Ok(place));
        for text in ["", "17", "1.2", "1.2.3.4", "a.b.c", "1.2.x"] {
            assert_eq!(text.parse::<ArchivePlace>(), Err(InvalidPlace), "{text}");
        }
    }
}
