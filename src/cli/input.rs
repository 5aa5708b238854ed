//! What commands read: files and standard input, line by line where they are
//! lists.
//!
//! What the lines mean is not known here.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use super::Usage;

/// A file, or standard input for `-`.
///
/// # Errors
///
/// [`Usage::File`] if it cannot be opened.
pub(super) fn open(file: &str) -> Result<Box<dyn BufRead + Send>, Usage> {
    if file == "-" {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let opened = File::open(file).map_err(|source| Usage::File {
        path: file.into(),
        source,
    })?;
    Ok(Box::new(BufReader::new(opened)))
}

/// Appends the next line of `input` with its end; the last one gets an end as
/// well. Of a line with more than `bytes_max` so much is kept that this can be
/// told. Tells whether there was a line.
pub(super) fn append_line(
    input: &mut impl BufRead,
    text: &mut Vec<u8>,
    bytes_max: u64,
) -> io::Result<bool> {
    // Two more are for the end of the line.
    let mut line = Read::take(&mut *input, bytes_max.saturating_add(2));
    if line.read_until(b'\n', text)? == 0 {
        return Ok(false);
    }
    if text.last() != Some(&b'\n') {
        input.skip_until(b'\n')?;
        text.push(b'\n');
    }
    Ok(true)
}
