//! Spool: byte entries that are appended once and read later. The latest are in memory,
//! the others in a temporary file.
//!
//! `judge` cannot judge a request before it has read all files of a crawl: the robots.txt
//! for the request may be at the end of the last file. Until then it must keep all
//! requests and robots.txt answers, and those of a long crawl do not fit in memory. Does
//! not know the contents of the entries.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use anyhow::Context as _;

/// Number of bytes in memory above which they are written to the file. A single entry may
/// be longer, and is then held in memory as a whole until the next one is appended.
const MEMORY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Place of an entry in a [`Spool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpoolPlace {
    /// Number of bytes in all earlier entries.
    start: u64,
    /// Length of the entry.
    bytes: u32,
}

/// Byte entries, each appended once and read any number of times.
#[derive(Default)]
pub(super) struct Spool {
    /// Latest entries, not written to the file yet.
    tail: Vec<u8>,
    /// Number of bytes before `tail`, all of which are in the file.
    tail_start: u64,
    /// Temporary file; `None` until the tail is first written.
    file: Option<File>,
    /// Replaces [`MEMORY_BYTES_MAX`] in tests.
    memory_bytes_max: Option<usize>,
}

impl Spool {
    /// Appends an entry, and returns its place.
    ///
    /// # Errors
    ///
    /// The temporary file cannot be created or written, or the entry has 4 GiB or more.
    pub(super) fn append(&mut self, bytes: &[u8]) -> anyhow::Result<SpoolPlace> {
        // The whole tail is written before the entry is appended, so that no entry is
        // partly in memory and partly in the file.
        if self.memory_bytes_max.unwrap_or(MEMORY_BYTES_MAX) < self.tail.len() + bytes.len() {
            self.write_tail()?;
        }
        let place = SpoolPlace {
            start: self.tail_start + self.tail.len() as u64,
            bytes: u32::try_from(bytes.len()).context("an entry is too long")?,
        };
        self.tail.extend_from_slice(bytes);
        Ok(place)
    }

    /// Moves the entries in memory to the file.
    fn write_tail(&mut self) -> anyhow::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(temporary_file()?),
        };
        file.write_all(&self.tail)
            .context("cannot write the temporary file; is TMPDIR full?")?;
        self.tail_start += self.tail.len() as u64;
        self.tail.clear();
        Ok(())
    }

    /// Returns the entry at `place`.
    ///
    /// # Errors
    ///
    /// The temporary file cannot be read, or `place` is not of this spool.
    pub(super) fn read(&self, place: SpoolPlace) -> io::Result<Cow<'_, [u8]>> {
        let length = place.bytes as usize;
        match (place.start.checked_sub(self.tail_start), &self.file) {
            (Some(start), _) => {
                let start = usize::try_from(start).unwrap_or(usize::MAX);
                let bytes = self.tail.get(start..).and_then(|rest| rest.get(..length));
                bytes.map(Cow::Borrowed).ok_or_else(missing)
            }
            (None, Some(file)) => {
                let mut bytes = vec![0; length];
                // Several threads read at the same time, so the file's shared position
                // must not be used.
                file.read_exact_at(&mut bytes, place.start)?;
                Ok(Cow::Owned(bytes))
            }
            (None, None) => Err(missing()),
        }
    }
}

/// Returns the error for a place outside the spool.
fn missing() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// Opens a temporary file that no other process can open, and that the system removes
/// when this process ends.
fn temporary_file() -> anyhow::Result<File> {
    let mut random = [0; 8];
    aws_lc_rs::rand::fill(&mut random)
        .map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
    let name = format!("politesse-judge-{:016x}", u64::from_be_bytes(random));
    let path = std::env::temp_dir().join(name);
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(true).create_new(true).mode(0o600);
    let file = opened
        .open(&path)
        .with_context(|| format!("cannot make {}; is TMPDIR right?", path.display()))?;
    // The open file remains usable without a name, but no other process can open it, and
    // the system frees it even if this process is killed.
    std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Our own requirement: an entry reads the same from memory and from the file.
    #[test]
    fn entries_are_read_back_from_memory_and_from_the_file() {
        let mut spool = Spool {
            memory_bytes_max: Some(10),
            ..Spool::default()
        };
        let texts = [
            "first",
            "second",
            "third",
            "",
            "an entry longer than memory",
            "last",
        ];
        let places: Vec<_> = texts
            .iter()
            .map(|text| spool.append(text.as_bytes()).unwrap())
            .collect();
        assert!(spool.file.is_some());
        for (text, place) in texts.iter().zip(places) {
            assert_eq!(spool.read(place).unwrap(), text.as_bytes(), "{text}");
        }
        let nowhere = SpoolPlace {
            start: 1000,
            bytes: 1,
        };
        assert!(spool.read(nowhere).is_err());
    }
}
