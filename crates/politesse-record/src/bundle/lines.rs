//! Gzipped lines of a bundle: a writer and a reader that enforce the same limits.
//!
//! Does not know what decisions and values mean.

use std::io::{BufRead, BufReader, Read, Write};

use aws_lc_rs::digest::{Context, SHA256};
use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::BundleError;
use super::form::{BundleLine, BundlePart};
use crate::columns::read_digest;
use politesse_decision::digest::Digest;

/// Maximum length of a line. The largest robots.txt that the proxy stores has 16
/// MiB, and Base64 adds a third.
const LINE_BYTES_MAX: u64 = 32 << 20;

/// Maximum number of lines. Each takes up to 80 bytes of memory.
const LINES_MAX: u64 = 8_000_000;

/// Maximum size of a bundle before compression.
const BYTES_MAX: u64 = 4 << 30;

/// Maximum size of the lines whose content stays in memory during a verification.
const SHARED_BYTES_MAX: u64 = 512 << 20;

/// Size of the part of a bundle that was written or read so far.
#[derive(Debug, Default)]
struct BundleSize {
    lines: u64,
    bytes: u64,
    /// Bytes of values and robots.txt files.
    shared_bytes: u64,
}

impl BundleSize {
    /// Adds a line of `bytes` bytes.
    fn add(&mut self, bytes: usize) -> Result<(), BundleError> {
        self.lines += 1;
        self.bytes += bytes as u64;
        if LINE_BYTES_MAX < bytes as u64 {
            Err(BundleError::TooLarge("32 MiB in a line"))
        } else if LINES_MAX < self.lines {
            Err(BundleError::TooLarge("8,000,000 lines"))
        } else if BYTES_MAX < self.bytes {
            Err(BundleError::TooLarge("4 GiB before compression"))
        } else {
            Ok(())
        }
    }

    /// Adds the bytes of `line` to `shared_bytes` if its content stays in memory.
    fn add_shared(&mut self, line: &BundleLine, bytes: usize) -> Result<(), BundleError> {
        if matches!(line, BundleLine::Value(_) | BundleLine::Robots(_)) {
            self.shared_bytes += bytes as u64;
        }
        match self.shared_bytes {
            ..=SHARED_BYTES_MAX => Ok(()),
            _ => Err(BundleError::TooLarge(
                "512 MiB of values and robots.txt files",
            )),
        }
    }
}

/// Returns the SHA-256 of the bytes hashed so far.
fn digest_so_far(hash: &Context) -> Option<Digest> {
    read_digest(hash.clone().finish().as_ref())
}

/// Writer of the lines of a bundle.
pub(super) struct LineWriter<W: Write> {
    out: GzEncoder<W>,
    hash: Context,
    size: BundleSize,
    line: Vec<u8>,
}

impl<W: Write> LineWriter<W> {
    /// Begins a bundle.
    pub(super) fn new(out: W) -> Self {
        Self {
            // A day of decisions has hundreds of megabytes. The fastest level packs
            // them to a fifth, the best to a seventh in six times the time.
            out: GzEncoder::new(out, Compression::fast()),
            hash: Context::new(&SHA256),
            size: BundleSize::default(),
            line: Vec::new(),
        }
    }

    /// Appends `line`, within the limits of a bundle.
    pub(super) fn write(&mut self, line: &BundleLine) -> Result<(), BundleError> {
        self.line.clear();
        line.append(&mut self.line).map_err(std::io::Error::from)?;
        self.size.add(self.line.len())?;
        self.size.add_shared(line, self.line.len())?;
        self.hash.update(&self.line);
        Ok(self.out.write_all(&self.line)?)
    }

    /// Writes the last line, the SHA-256 of the lines before it.
    pub(super) fn end(mut self) -> Result<(), BundleError> {
        let sha256 = digest_so_far(&self.hash).ok_or(BundleError::Unproved)?;
        self.write(&BundleLine::Sha256(sha256))?;
        Ok(self.out.finish()?.flush()?)
    }
}

/// Reader of the lines of a bundle. The file is untrusted.
pub(super) struct LineReader<R> {
    content: BufReader<MultiGzDecoder<BufReader<R>>>,
    hash: Context,
    size: BundleSize,
    /// Part of the newest line read; `None` before the first.
    part: Option<BundlePart>,
    line: Vec<u8>,
}

impl<R: Read> LineReader<R> {
    /// Begins to read a bundle.
    pub(super) fn new(file: R) -> Self {
        Self {
            // All gzip members are read, because other programs also read them as
            // one file.
            content: BufReader::new(MultiGzDecoder::new(BufReader::new(file))),
            hash: Context::new(&SHA256),
            size: BundleSize::default(),
            part: None,
            line: Vec::new(),
        }
    }

    /// Returns the number of the line that was read last, from 1.
    pub(super) fn number(&self) -> u64 {
        self.size.lines
    }

    /// Makes an error about the line that was read last.
    pub(super) fn fault(&self, cause: &'static str) -> BundleError {
        BundleError::Line {
            number: self.number(),
            cause,
        }
    }

    /// Returns the SHA-256 of all lines so far, except the line that states it.
    pub(super) fn sha256(&self) -> Option<Digest> {
        digest_so_far(&self.hash)
    }

    /// Reads the next line; `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<BundleLine>, BundleError> {
        self.line.clear();
        // A few bytes of a gzipped file can expand to gigabytes.
        let mut limited = Read::take(&mut self.content, LINE_BYTES_MAX + 1);
        if limited.read_until(b'\n', &mut self.line)? == 0 {
            return match self.part {
                Some(BundlePart::End) => Ok(None),
                _ => Err(self.fault("the lines end too early")),
            };
        }
        self.size.add(self.line.len())?;
        let whole = self.line.strip_suffix(b"\n");
        let line = whole
            .and_then(BundleLine::parse)
            .ok_or_else(|| self.fault("it is malformed"))?;
        self.size.add_shared(&line, self.line.len())?;
        if !line.part().may_follow(self.part) {
            return Err(self.fault("it is out of place"));
        }
        self.part = Some(line.part());
        if line.part() != BundlePart::End {
            self.hash.update(&self.line);
        }
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: lines that compress well are limited too.
    #[test]
    fn lines_and_bytes_are_limited() {
        let size = |lines, bytes| BundleSize {
            lines,
            bytes,
            shared_bytes: 0,
        };
        assert!(size(0, 0).add(LINE_BYTES_MAX as usize).is_ok());
        for (mut size, bytes) in [
            (size(0, 0), LINE_BYTES_MAX as usize + 1),
            (size(LINES_MAX, 0), 1),
            (size(0, BYTES_MAX), 1),
        ] {
            let refused = size.add(bytes);
            assert!(matches!(refused, Err(BundleError::TooLarge(_))), "{size:?}");
        }
        let value = BundleLine::parse(br#"{"value":{"number":1,"kind":"term","columns":[]}}"#);
        let mut shared = BundleSize {
            shared_bytes: SHARED_BYTES_MAX,
            ..BundleSize::default()
        };
        let refused = shared.add_shared(&value.unwrap(), 1);
        assert!(matches!(refused, Err(BundleError::TooLarge(_))));
    }
}
