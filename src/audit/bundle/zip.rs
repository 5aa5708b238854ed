//! Zip archives in one form: as they are written here, to the byte.
//!
//! An archive may come from anybody, and zip leaves much open that two programs
//! read in two ways: names that occur twice, gaps between files, lengths that
//! contradict each other. So a reader makes each header again from what the
//! directory says and takes no other. Any program for zip files reads such an
//! archive (APPNOTE.TXT 6.3.10, without ZIP64).
//!
//! Does not know what the files are.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use thiserror::Error;

/// Signatures of the records of an archive.
const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;

/// Version of the format that has all that is used here.
const VERSION: u16 = 20;
/// Made on Unix, by that version: files have permissions.
const MADE_BY: u16 = 3 << 8 | VERSION;
/// A plain file that its owner reads and writes.
const ATTRIBUTES: u32 = 0o100_600 << 16;
const DEFLATE: u16 = 8;
/// The first day that the format knows: when a file was made says nothing here.
const DAY: u16 = 1 << 5 | 1;

/// Lengths of the records without names.
const LOCAL_BYTES: u64 = 30;
const CENTRAL_BYTES: usize = 46;
const END_BYTES: usize = 22;

/// Files of an archive, as far as its format counts.
const FILES_MAX: usize = u16::MAX as usize;

/// Longest name of a file.
const NAME_BYTES_MAX: usize = 100;

/// Bytes of the longest directory.
const DIRECTORY_BYTES_MAX: u64 = (FILES_MAX * (CENTRAL_BYTES + NAME_BYTES_MAX)) as u64;

/// Error of an archive.
#[derive(Debug, Error)]
pub enum ZipError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The file is none of this form.
    #[error(
        "it is no archive as politesse writes them: {0}; if another program has packed it anew, \
         ask for the original file"
    )]
    Form(&'static str),
    /// There are more files than the format counts, or they are longer.
    #[error(
        "it would be larger than 4 GiB, or have more than {FILES_MAX} files: choose fewer decisions"
    )]
    Large,
    /// The archive has no such file.
    #[error("{0} is not in it")]
    Missing(String),
    /// The file is longer than such a file may be.
    #[error("{0} is longer than is read")]
    Long(String),
}

/// File in an archive, as the directory describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ZipEntry {
    name: String,
    crc: u32,
    /// Bytes as compressed, and before.
    packed: u32,
    bytes: u32,
    /// Place of the local header.
    offset: u32,
}

impl ZipEntry {
    /// Makes what the local header and the directory have in common.
    fn common(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // No flags, and no time of the day.
        for half in [VERSION, 0, DEFLATE, 0, DAY] {
            bytes.extend(half.to_le_bytes());
        }
        for word in [self.crc, self.packed, self.bytes] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend((self.name.len() as u16).to_le_bytes());
        // No extra fields.
        bytes.extend(0u16.to_le_bytes());
        bytes
    }

    fn local(&self) -> Vec<u8> {
        [
            &LOCAL.to_le_bytes()[..],
            &self.common(),
            self.name.as_bytes(),
        ]
        .concat()
    }

    fn central(&self) -> Vec<u8> {
        let mut bytes = CENTRAL.to_le_bytes().to_vec();
        bytes.extend(MADE_BY.to_le_bytes());
        bytes.extend(self.common());
        // No comment, the first disk, no internal attributes.
        bytes.extend([0; 6]);
        bytes.extend(ATTRIBUTES.to_le_bytes());
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(self.name.as_bytes());
        bytes
    }

    /// Place behind the local header.
    fn start(&self) -> u64 {
        u64::from(self.offset) + LOCAL_BYTES + self.name.len() as u64
    }

    fn end(&self) -> u64 {
        self.start() + u64::from(self.packed)
    }
}

/// Makes the record at the end of an archive.
fn end_record(files: u16, directory_bytes: u32, directory: u32) -> Vec<u8> {
    let mut bytes = END.to_le_bytes().to_vec();
    bytes.extend([0; 4]);
    bytes.extend(files.to_le_bytes());
    bytes.extend(files.to_le_bytes());
    bytes.extend(directory_bytes.to_le_bytes());
    bytes.extend(directory.to_le_bytes());
    bytes.extend([0; 2]);
    bytes
}

/// Archive that is written.
#[derive(Debug)]
pub(in crate::audit) struct ZipWriter<W> {
    out: W,
    entries: Vec<ZipEntry>,
}

/// File of an archive that is written.
pub(super) struct ZipFile<'a, W: Write + Seek> {
    packer: DeflateEncoder<&'a mut W>,
    crc: Crc,
    entry: ZipEntry,
    entries: &'a mut Vec<ZipEntry>,
}

impl<W: Write + Seek> ZipWriter<W> {
    /// Begins an archive without files, at the beginning of `out`.
    pub(in crate::audit) fn new(out: W) -> Self {
        Self {
            out,
            entries: Vec::new(),
        }
    }

    /// Begins the file `name`. Files have different names, of ASCII.
    ///
    /// # Errors
    ///
    /// [`ZipError::Large`], and those of the output, as of the other methods.
    pub(super) fn begin(&mut self, name: &str) -> Result<ZipFile<'_, W>, ZipError> {
        let offset = self.out.stream_position()?;
        let entry = ZipEntry {
            name: name.to_owned(),
            offset: u32::try_from(offset).map_err(|_| ZipError::Large)?,
            ..ZipEntry::default()
        };
        // The lengths are known when all is written.
        self.out.write_all(&entry.local())?;
        Ok(ZipFile {
            // A day of decisions has hundreds of megabytes: the fastest level packs
            // them to a fifth, and the best to a seventh in six times the time.
            packer: DeflateEncoder::new(&mut self.out, Compression::fast()),
            crc: Crc::new(),
            entry,
            entries: &mut self.entries,
        })
    }

    /// Writes the file `name` as a whole.
    pub(in crate::audit) fn add(&mut self, name: &str, bytes: &[u8]) -> Result<(), ZipError> {
        let mut file = self.begin(name)?;
        file.write_all(bytes)?;
        file.end()
    }

    /// Ends the archive.
    pub(in crate::audit) fn end(mut self) -> Result<(), ZipError> {
        let files = u16::try_from(self.entries.len()).map_err(|_| ZipError::Large)?;
        let start = self.out.stream_position()?;
        let directory: Vec<u8> = self.entries.iter().flat_map(ZipEntry::central).collect();
        self.out.write_all(&directory)?;
        let word = |number: u64| u32::try_from(number).map_err(|_| ZipError::Large);
        let end = end_record(files, word(directory.len() as u64)?, word(start)?);
        self.out.write_all(&end)?;
        Ok(self.out.flush()?)
    }
}

impl<W: Write + Seek> ZipFile<'_, W> {
    /// Ends the file.
    ///
    /// # Errors
    ///
    /// [`ZipError::Large`], and those of the output.
    pub(super) fn end(self) -> Result<(), ZipError> {
        let word = |number: u64| u32::try_from(number).map_err(|_| ZipError::Large);
        let bytes = self.packer.total_in();
        let out = self.packer.finish()?;
        let end = out.stream_position()?;
        let entry = ZipEntry {
            crc: self.crc.sum(),
            packed: word(end - self.entry.start())?,
            bytes: word(bytes)?,
            ..self.entry
        };
        out.seek(SeekFrom::Start(entry.offset.into()))?;
        out.write_all(&entry.local())?;
        out.seek(SeekFrom::Start(end))?;
        self.entries.push(entry);
        Ok(())
    }
}

impl<W: Write + Seek> Write for ZipFile<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.packer.write(bytes)?;
        let (taken, _) = bytes.split_at(written);
        self.crc.update(taken);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.packer.flush()
    }
}

/// Archive that is read.
#[derive(Debug)]
pub(in crate::audit) struct ZipReader {
    file: File,
    entries: Vec<ZipEntry>,
    /// Places in the entries by name: there may be tens of thousands of files, and
    /// each is looked for.
    places: HashMap<String, usize>,
}

impl ZipReader {
    /// Reads the directory of an archive, and compares every header with it.
    ///
    /// # Errors
    ///
    /// [`ZipError::Form`], [`ZipError::File`].
    pub(in crate::audit) fn open(file: File) -> Result<Self, ZipError> {
        let length = file.metadata()?.len();
        let end_at = length
            .checked_sub(END_BYTES as u64)
            .ok_or(ZipError::Form("it is too short"))?;
        let end = read_at(&file, end_at, END_BYTES)?;
        let files = u16::from_le_bytes(part(&end, 10)?);
        let directory_bytes = u32::from_le_bytes(part(&end, 12)?);
        let start = u32::from_le_bytes(part(&end, 16)?);
        // An archive may have a comment behind its end, which could be another end.
        let is_own = end == end_record(files, directory_bytes, start)
            && u64::from(start) + u64::from(directory_bytes) == end_at
            && u64::from(directory_bytes) <= DIRECTORY_BYTES_MAX;
        if !is_own {
            return Err(ZipError::Form("its end is another"));
        }
        let directory = read_at(&file, start.into(), directory_bytes as usize)?;
        let entries = read_directory(&directory)?;
        if entries.len() != usize::from(files) {
            return Err(ZipError::Form("its files are not as many as it says"));
        }
        check_places(&file, &entries, start.into())?;
        let named = entries.iter().enumerate();
        let places: HashMap<_, _> = named.map(|(at, entry)| (entry.name.clone(), at)).collect();
        // Some programs would read the first, others the last.
        if places.len() != entries.len() {
            return Err(ZipError::Form("two files have one name"));
        }
        Ok(Self {
            file,
            entries,
            places,
        })
    }

    /// Returns the names of the files, in their order.
    pub(in crate::audit) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Begins to read the file `name`, of at most `bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// [`ZipError::Missing`], [`ZipError::Long`].
    pub(super) fn content(&self, name: &str, bytes_max: u64) -> Result<ZipContent<'_>, ZipError> {
        let place = self.places.get(name);
        let found = place.and_then(|place| self.entries.get(*place));
        let entry = found.ok_or_else(|| ZipError::Missing(name.to_owned()))?;
        // Before a byte is unpacked: some bytes of an archive can stand for gigabytes.
        if bytes_max < entry.bytes.into() {
            return Err(ZipError::Long(name.to_owned()));
        }
        let packed = PackedRange {
            file: &self.file,
            at: entry.start(),
            end: entry.end(),
        };
        Ok(ZipContent {
            unpacker: DeflateDecoder::new(BufReader::new(packed)),
            crc: Crc::new(),
            entry,
        })
    }

    /// Reads the whole file `name`, of at most `bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// Those of [`ZipReader::content`], and [`ZipError::File`].
    pub(in crate::audit) fn read(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>, ZipError> {
        let mut bytes = Vec::new();
        self.content(name, bytes_max)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Reads the entries of a directory.
fn read_directory(mut rest: &[u8]) -> Result<Vec<ZipEntry>, ZipError> {
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let word = |at| Ok::<_, ZipError>(u32::from_le_bytes(part(rest, at)?));
        let name_bytes = usize::from(u16::from_le_bytes(part(rest, 28)?));
        let name = rest
            .get(CENTRAL_BYTES..CENTRAL_BYTES + name_bytes)
            .ok_or(ZipError::Form("its directory is cut"))?;
        let is_usual = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-/".contains(byte);
        // Somebody may unpack it: no name leads out of the folder.
        let leads_out = name.starts_with(b"/") || name.windows(2).any(|two| two == b"..");
        if NAME_BYTES_MAX < name.len() || !name.iter().all(is_usual) || leads_out {
            return Err(ZipError::Form("a file has a name of another form"));
        }
        let entry = ZipEntry {
            name: String::from_utf8_lossy(name).into_owned(),
            crc: word(16)?,
            packed: word(20)?,
            bytes: word(24)?,
            offset: word(42)?,
        };
        let central = entry.central();
        rest = rest
            .strip_prefix(&central[..])
            .ok_or(ZipError::Form("its directory has an entry of another form"))?;
        entries.push(entry);
    }
    Ok(entries)
}

/// Checks that the files lie one behind the other up to `end`, each behind the
/// header that belongs to it.
fn check_places(file: &File, entries: &[ZipEntry], end: u64) -> Result<(), ZipError> {
    // No gap and no overlap: what lies between files is read by nobody, and files that
    // share bytes unpack to more than a disk holds.
    let mut at = 0;
    for entry in entries {
        let local = entry.local();
        if u64::from(entry.offset) != at || end < entry.end() {
            return Err(ZipError::Form("its files do not lie one behind the other"));
        }
        if read_at(file, at, local.len())? != local {
            return Err(ZipError::Form(
                "a file has another header than its directory says",
            ));
        }
        at = entry.end();
    }
    if at != end {
        return Err(ZipError::Form(
            "there is something between its files and its directory",
        ));
    }
    Ok(())
}

fn read_at(file: &File, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut read = vec![0; bytes];
    file.read_exact_at(&mut read, at)?;
    Ok(read)
}

/// Returns the bytes at `at`, as many as are wanted.
fn part<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], ZipError> {
    let found = bytes.get(at..at + N).and_then(|part| part.try_into().ok());
    found.ok_or(ZipError::Form("its directory is cut"))
}

/// Range of a file, read from its beginning to its end.
struct PackedRange<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for PackedRange<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let (buffer, _) = buffer.split_at_mut(left.min(buffer.len()));
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Content of a file of an archive, which ends with an error if it is not what the
/// directory says.
pub(super) struct ZipContent<'a> {
    unpacker: DeflateDecoder<BufReader<PackedRange<'a>>>,
    crc: Crc,
    entry: &'a ZipEntry,
}

impl Read for ZipContent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Nothing read into no room is not the end of the file.
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = self.unpacker.read(buffer)?;
        let (new, _) = buffer.split_at(read);
        self.crc.update(new);
        let (unpacked, expected) = (self.unpacker.total_out(), u64::from(self.entry.bytes));
        let is_end = read == 0;
        let is_whole = unpacked == expected
            && self.unpacker.total_in() == u64::from(self.entry.packed)
            && self.crc.sum() == self.entry.crc;
        // A file that unpacks to more than it says is not read any further.
        if expected < unpacked || is_end && !is_whole {
            let text = format!("{} is damaged", self.entry.name);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn archive() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut zip = ZipWriter::new(Cursor::new(&mut bytes));
        zip.add("a.txt", b"the first file").unwrap();
        zip.add("b/c.txt", &[b'x'; 2_000]).unwrap();
        zip.add("empty", b"").unwrap();
        zip.end().unwrap();
        bytes
    }

    fn open(bytes: &[u8]) -> Result<ZipReader, ZipError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        ZipReader::open(file)
    }

    /// Reads all of an archive.
    fn read_all(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, ZipError> {
        let zip = open(bytes)?;
        let read = |name: &str| Ok((name.to_owned(), zip.read(name, 1 << 20)?));
        zip.names().map(read).collect()
    }

    // APPNOTE.TXT, sections 4.3 and 4.4.
    #[test]
    fn what_was_written_is_read() {
        let expected = [
            ("a.txt".to_owned(), b"the first file".to_vec()),
            ("b/c.txt".to_owned(), vec![b'x'; 2_000]),
            ("empty".to_owned(), Vec::new()),
        ];
        assert_eq!(read_all(&archive()).unwrap(), expected);
        let zip = open(&archive()).unwrap();
        assert!(matches!(zip.read("d", 9), Err(ZipError::Missing(_))));
        assert!(matches!(zip.read("a.txt", 9), Err(ZipError::Long(_))));
    }

    // Ours: no byte of an archive is without meaning.
    #[test]
    fn an_archive_with_one_other_byte_is_not_read() {
        let whole = archive();
        let contents = read_all(&whole).unwrap();
        for at in 0..whole.len() {
            for bit in [at % 8, (at + 5) % 8] {
                let mut other = whole.clone();
                other[at] ^= 1 << bit;
                // Another file may be what the bits say; another content may not.
                if let Ok(read) = read_all(&other) {
                    let without_names = |all: &[(String, Vec<u8>)]| {
                        all.iter().map(|file| file.1.clone()).collect::<Vec<_>>()
                    };
                    assert_eq!(without_names(&read), without_names(&contents), "{at}");
                }
            }
        }
        for cut in 0..whole.len() {
            assert!(read_all(&whole[..cut]).is_err(), "{cut}");
        }
    }

    // Ours: what two programs could read in two ways.
    #[test]
    fn archives_of_another_form_are_refused() {
        let whole = archive();
        let with = |bytes: &[u8], more: &[u8]| [bytes, more].concat();
        assert!(read_all(&with(&whole, b" ")).is_err());
        assert!(read_all(&with(b" ", &whole)).is_err());
        let mut bytes = Vec::new();
        let mut zip = ZipWriter::new(Cursor::new(&mut bytes));
        zip.add("a", b"1").unwrap();
        zip.add("a", b"2").unwrap();
        zip.end().unwrap();
        assert!(matches!(
            open(&bytes),
            Err(ZipError::Form("two files have one name"))
        ));
        for name in ["../a", "/a", "a b", "\u{e9}"] {
            let mut bytes = Vec::new();
            let mut zip = ZipWriter::new(Cursor::new(&mut bytes));
            zip.add(name, b"1").unwrap();
            zip.end().unwrap();
            assert!(open(&bytes).is_err(), "{name}");
        }
    }
}
