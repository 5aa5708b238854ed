//! WARC files: their names, lengths, and compression, which the first bytes show.
//!
//! The name does not decide: `.warc` files may be compressed, and `.warc.gz` files may
//! not be. Does not know records.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use crate::cli::output::Usage;
use politesse_base::inert::inert;

/// Number of first bytes that are read to detect the compression.
const BEGIN_BYTES: u64 = 5;

/// Compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    /// No compression.
    None,
    /// gzip members.
    Gzip,
}

/// WARC file.
#[derive(Debug)]
pub(super) struct ArchiveFile {
    /// Path, or `-` for standard input.
    pub(super) path: PathBuf,
    /// Compression, as the first bytes show.
    pub(super) compression: Compression,
    /// Length in bytes; `None` for standard input, which can be read only once.
    pub(super) bytes: Option<u64>,
    /// Bytes of standard input that were read to detect the compression.
    begin: Vec<u8>,
}

impl ArchiveFile {
    /// Opens a file, or standard input for `-`, and detects its compression.
    ///
    /// # Errors
    ///
    /// [`Usage`] if it cannot be opened, or is not a WARC file.
    pub(super) fn open(path: &Path) -> Result<Self, Usage> {
        let unreadable = |source| Usage::File {
            path: path.to_owned(),
            source,
        };
        let (mut input, bytes) = open(path).map_err(unreadable)?;
        let mut begin = Vec::new();
        let read = Read::take(&mut input, BEGIN_BYTES).read_to_end(&mut begin);
        read.map_err(unreadable)?;
        // A crawl that ends before its first page leaves an empty file.
        let compression = match begin.as_slice() {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            b"WARC/" | [] => Compression::None,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                return Err(wrong(path, "is compressed with zstd: unpack it first"));
            }
            _ => return Err(wrong(path, "is not a WARC file")),
        };
        Ok(Self {
            path: path.to_owned(),
            compression,
            begin: if bytes.is_none() { begin } else { Vec::new() },
            bytes,
        })
    }

    /// Opens the file again, at byte `place`. Standard input is read from its start, so it
    /// must be opened once only.
    ///
    /// # Errors
    ///
    /// Any error of opening the file.
    pub(super) fn open_at(&self, place: u64) -> io::Result<Box<dyn Read + Send + '_>> {
        let begin = Cursor::new(self.begin.as_slice());
        if is_standard_input(&self.path) {
            return Ok(Box::new(begin.chain(io::stdin())));
        }
        let mut file = File::open(&self.path)?;
        if self.bytes.is_some() {
            file.seek(SeekFrom::Start(place))?;
        }
        Ok(Box::new(file))
    }

    /// Returns the path as text.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens a path, and returns the length if it is a file.
fn open(path: &Path) -> io::Result<(Box<dyn Read>, Option<u64>)> {
    if is_standard_input(path) {
        return Ok((Box::new(io::stdin()), None));
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        return Ok((Box::new(file), Some(metadata.len())));
    }
    // A pipe delivers its bytes only once, and would have to be opened a second time.
    Err(io::Error::other(
        "it is not a regular file; pass a pipe as standard input, `-`",
    ))
}

fn wrong(path: &Path, text: &str) -> Usage {
    Usage::Arguments(inert(&format!("{} {text}", path.display())))
}
