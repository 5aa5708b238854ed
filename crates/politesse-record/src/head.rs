//! Heads: the signed statements about the Merkle tree.
//!
//! A head is the text of a checkpoint (C2SP, tlog-checkpoint): the name of the
//! record, its number of entries, and the root of the tree over them. Two more
//! lines give the time of the head and the digest of the previous one.
//!
//! Pure functions. Does not know where heads are stored.

use std::fmt::Write as _;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use thiserror::Error;

use super::merkle::TreeHead;
use politesse_decision::digest::Digest;

/// Prefix of the first line, before the id of the record.
const ORIGIN: &str = "politesse/";

/// Prefixes of the lines after the root.
const TIME: &str = "time ";
const PREVIOUS: &str = "previous ";

/// Returns the name that signs the heads of the record with the id `record`.
pub fn key_name(record: &str) -> String {
    format!("{ORIGIN}{record}")
}

/// Head of a record: a statement about all its entries at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHead {
    /// Name of the record, which signs its heads ([`key_name`]).
    pub origin: String,
    /// Number of entries, and root of the tree over them.
    pub tree: TreeHead,
    /// Time at which the head was made.
    pub time: Timestamp,
    /// SHA-256 of the previous head's note, including signatures; `None` in the
    /// first head.
    pub previous: Option<Digest>,
}

/// Error: the text is not a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("it is not a head of a record")]
pub struct InvalidHead;

impl RecordHead {
    /// Returns the text that is signed.
    pub fn text(&self) -> String {
        let root = STANDARD.encode(self.tree.root.as_bytes());
        let (origin, size, time) = (&self.origin, self.tree.size, self.time);
        let mut text = format!("{origin}\n{size}\n{root}\n{TIME}{time}\n");
        if let Some(previous) = self.previous {
            // Writing to a string does not fail.
            writeln!(text, "{PREVIOUS}{previous}").unwrap_or_default();
        }
        text
    }
}

impl FromStr for RecordHead {
    type Err = InvalidHead;

    fn from_str(text: &str) -> Result<Self, InvalidHead> {
        let parse = || {
            let mut lines = text.strip_suffix('\n')?.split('\n');
            let origin = lines.next().filter(|line| line.starts_with(ORIGIN))?;
            let size: u64 = lines.next()?.parse().ok()?;
            let root: [u8; 32] = STANDARD.decode(lines.next()?).ok()?.try_into().ok()?;
            let time = lines.next()?.strip_prefix(TIME)?.parse().ok()?;
            let previous = match lines.next() {
                Some(line) => Some(line.strip_prefix(PREVIOUS)?.parse().ok()?),
                None => None,
            };
            Some(Self {
                origin: origin.to_owned(),
                tree: TreeHead {
                    size,
                    root: root.into(),
                },
                time,
                previous,
            })
        };
        // A head has one form: formatting it again must give the same text.
        let is_same = |head: &Self| head.text() == text;
        parse().filter(is_same).ok_or(InvalidHead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: C2SP, tlog-checkpoint, with two additional lines.
    #[test]
    fn a_head_is_written_as_a_checkpoint() {
        let first = RecordHead {
            origin: key_name("00ff"),
            tree: TreeHead {
                size: 12,
                root: Digest::of(b""),
            },
            time: "2026-11-23T02:00:00.5Z".parse().unwrap(),
            previous: None,
        };
        let text = "politesse/00ff\n12\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\
                    time 2026-11-23T02:00:00.5Z\n";
        assert_eq!(first.text(), text);
        assert_eq!(text.parse(), Ok(first.clone()));
        let second = RecordHead {
            previous: Some(Digest::of(b"a")),
            ..first
        };
        assert!(second.text().ends_with(
            "previous ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\n"
        ));
        assert_eq!(second.text().parse(), Ok(second));
    }

    #[test]
    fn a_malformed_head_is_refused() {
        let text = "politesse/00ff\n12\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\
                    time 2026-11-23T02:00:00Z\n";
        assert!(text.parse::<RecordHead>().is_ok());
        for wrong in [
            String::new(),
            text.trim_end().to_owned(),
            text.replace("politesse/", "other/"),
            text.replace("\n12\n", "\n+12\n"),
            text.replace("\n12\n", "\n012\n"),
            text.replace("uFU=", "uFU"),
            text.replace("47DE", "47D"),
            text.replace("time ", "at "),
            format!("{text}previous 00\n"),
            format!("{text}more\n"),
        ] {
            assert_eq!(wrong.parse::<RecordHead>(), Err(InvalidHead), "{wrong:?}");
        }
    }
}
