//! Decompression of WARC files: gzip members (RFC 1952), one per record.
//!
//! With one member per record, a damaged record does not make the next ones unreadable. A
//! file with all records in a single member is read as well.

use std::io::{self, BufRead, Read};

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::input::{
    InputWindow, LINE_BEGINS, RecordPlace, RecordSource, find_record, read_buffered,
};

/// Longest header of a member. Names and comments in it are short, and the field that
/// WARC writers add has 12 bytes.
const HEADER_BYTES_MAX: usize = 4096;
/// Number of bytes after the data of a member: checksum and length (RFC 1952, section
/// 2.3.1).
const TRAILER_BYTES: usize = 8;
/// First bytes of a member: the signature, and the only compression method.
const MEMBER_BEGINS: [u8; 3] = [0x1f, 0x8b, 8];

/// File of gzip members.
pub struct GzipMembers<R> {
    decoded: InputWindow<MemberInflater<R>>,
    /// Whether the latest record ([`RecordSource::begin_record`]) is the first of its
    /// member.
    record_began_member: bool,
}

impl<R: Read> GzipMembers<R> {
    /// Reads a file from the member that begins at `place`, the current position of
    /// `input`.
    pub fn new(input: R, place: u64) -> Self {
        Self {
            decoded: InputWindow::new(MemberInflater::new(InputWindow::new(input, place)), 0),
            record_began_member: false,
        }
    }
}

impl<R: Read> Read for GzipMembers<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        read_buffered(self, out)
    }
}

impl<R: Read> BufRead for GzipMembers<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        // A member may be empty.
        while self.decoded.bytes(1)?.is_empty() {
            if !self.decoded.input_mut().begin_member()? {
                break;
            }
        }
        self.decoded.bytes(1)
    }

    fn consume(&mut self, bytes: usize) {
        self.decoded.consume(bytes);
    }
}

impl<R: Read> RecordSource for GzipMembers<R> {
    fn begin_record(&mut self) -> RecordPlace {
        let begins_at = self.decoded.place();
        let inflater = self.decoded.input_mut();
        self.record_began_member = begins_at == inflater.decoded_before;
        RecordPlace {
            byte: inflater.member_place,
            is_first: self.record_began_member,
        }
    }

    fn recover(&mut self) -> io::Result<bool> {
        // The rest of the member may belong to the body of the damaged record, which may
        // itself contain an archive. So the rest is searched only if the member is known
        // to hold several records.
        let is_whole = !matches!(self.decoded.input_mut().state, MemberState::Broken);
        if is_whole && !self.record_began_member && find_or_damage(&mut self.decoded)? {
            return Ok(true);
        }
        self.decoded.clear();
        let inflater = self.decoded.input_mut();
        inflater.leave_member()?;
        inflater.begin_member_of_record()
    }
}

/// Searches for a record in the rest of a member, up to its end or the next damage.
fn find_or_damage<R: Read>(decoded: &mut InputWindow<MemberInflater<R>>) -> io::Result<bool> {
    match find_record(decoded) {
        Err(error) if !is_damage(&error) => Err(error),
        found => Ok(found.unwrap_or(false)),
    }
}

/// Returns whether an error means damaged data, rather than an unreadable file.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
    )
}

/// Finds the first gzip member that seems to begin with a record, and that begins within
/// the first `searched` bytes. The member may be part of a record's body that contains
/// another archive.
///
/// After those, `bytes` must have at least [`MEMBER_BYTES_SEEN`] more bytes, unless the
/// file ends earlier.
pub fn find_record_member(bytes: &[u8], searched: usize) -> Option<usize> {
    let signs = memchr::memmem::find_iter(bytes, &MEMBER_BEGINS);
    let mut within = signs.take_while(|sign| *sign < searched);
    within.find(|sign| begins_record_member(&bytes[*sign..]))
}

/// Number of bytes of a member that [`find_record_member`] needs to see that it begins
/// with a record.
pub const MEMBER_BYTES_SEEN: usize = HEADER_BYTES_MAX;

/// Returns whether `bytes` begin with a gzip member that begins with a record. There must
/// be at least [`MEMBER_BYTES_SEEN`] bytes, unless the file ends earlier.
fn begins_record_member(bytes: &[u8]) -> bool {
    let Some(data) = header_bytes(bytes).and_then(|header| bytes.get(header..)) else {
        return false;
    };
    let mut begin = [0; LINE_BEGINS.len()];
    let mut inflater = Decompress::new(false);
    let outcome = inflater.decompress(data, &mut begin, FlushDecompress::None);
    outcome.is_ok() && inflater.total_out() == begin.len() as u64 && begin == LINE_BEGINS
}

/// Returns the length of the member header at the beginning of `bytes` (RFC 1952, section
/// 2.3); `None` if there is no valid one.
fn header_bytes(bytes: &[u8]) -> Option<usize> {
    const CHECKSUM: u8 = 2;
    const EXTRA: u8 = 4;
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;
    const RESERVED: u8 = 0xe0;
    let bytes = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
    let flags = *bytes.get(3)?;
    if !bytes.starts_with(&MEMBER_BEGINS) || flags & RESERVED != 0 {
        return None;
    }
    let mut length = 10;
    if flags & EXTRA != 0 {
        let extra = [*bytes.get(length)?, *bytes.get(length + 1)?];
        length += 2 + usize::from(u16::from_le_bytes(extra));
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            length += 1 + memchr::memchr(0, bytes.get(length..)?)?;
        }
    }
    if flags & CHECKSUM != 0 {
        length += 2;
    }
    (length <= bytes.len()).then_some(length)
}

/// State of the current member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberState {
    /// No member has begun, or the latest one has ended.
    Between,
    /// The member has more data.
    Inside,
    /// The data is not gzip, or the checksum is wrong.
    Broken,
}

/// Decoder for a sequence of members. At the end of each member it reads 0 bytes, as at
/// the end of a file.
struct MemberInflater<R> {
    input: InputWindow<R>,
    inflate: Decompress,
    checksum: Crc,
    state: MemberState,
    /// Position of the member in the file.
    member_place: u64,
    /// Number of decoded bytes in all earlier members.
    decoded_before: u64,
    /// Number of decoded bytes in this member so far.
    decoded: u64,
}

impl<R: Read> MemberInflater<R> {
    fn new(input: InputWindow<R>) -> Self {
        Self {
            member_place: input.place(),
            input,
            inflate: Decompress::new(false),
            checksum: Crc::new(),
            state: MemberState::Between,
            decoded_before: 0,
            decoded: 0,
        }
    }

    /// Begins the next member; returns `false` at the end of the file.
    fn begin_member(&mut self) -> io::Result<bool> {
        match self.state {
            MemberState::Between => {}
            MemberState::Inside => return Ok(true),
            MemberState::Broken => return Err(damage("the gzip data is damaged")),
        }
        self.skip_padding()?;
        let bytes = self.input.bytes(HEADER_BYTES_MAX)?;
        if bytes.is_empty() {
            return Ok(false);
        }
        let header = header_bytes(bytes);
        // Set before the header is checked, so that a damaged header is reported at this
        // position.
        self.member_place = self.input.place();
        self.decoded_before += self.decoded;
        self.decoded = 0;
        let Some(header) = header else {
            self.state = MemberState::Broken;
            return Err(damage("no gzip member begins here"));
        };
        self.input.consume(header);
        self.inflate.reset(false);
        self.checksum.reset();
        self.state = MemberState::Inside;
        Ok(true)
    }

    /// Skips zeros between members: tapes and some writers pad blocks with them.
    fn skip_padding(&mut self) -> io::Result<()> {
        loop {
            let bytes = self.input.bytes(1)?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            if zeros == 0 {
                return Ok(());
            }
            self.input.consume(zeros);
        }
    }

    /// Skips the rest of the member, up to its end or to damage in it.
    fn leave_member(&mut self) -> io::Result<()> {
        let mut rest = vec![0; 32 * 1024];
        loop {
            match self.read(&mut rest) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if is_damage(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Skips to the next member that begins with a record, and begins it; returns `false`
    /// if no such member follows.
    fn begin_member_of_record(&mut self) -> io::Result<bool> {
        self.state = MemberState::Between;
        loop {
            let bytes = self.input.bytes(HEADER_BYTES_MAX)?;
            if bytes.is_empty() {
                return Ok(false);
            }
            let dropped = match memchr::memchr(MEMBER_BEGINS[0], bytes) {
                None => bytes.len(),
                Some(0) if begins_record_member(bytes) => return self.begin_member(),
                // The end of the window may split the signature.
                Some(at) => at.max(1),
            };
            self.input.consume(dropped);
        }
    }

    /// Checks the trailer of the member (RFC 1952, section 2.3.1).
    fn end_member(&mut self) -> io::Result<()> {
        let trailer = self
            .input
            .bytes(TRAILER_BYTES)?
            .first_chunk::<TRAILER_BYTES>();
        let Some(&[a, b, c, d, e, f, g, h]) = trailer else {
            self.state = MemberState::Broken;
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let checksum = u32::from_le_bytes([a, b, c, d]);
        let length = u32::from_le_bytes([e, f, g, h]);
        self.input.consume(TRAILER_BYTES);
        // The trailer contains the length modulo 2^32.
        if checksum != self.checksum.sum() || u64::from(length) != self.decoded & 0xffff_ffff {
            self.state = MemberState::Broken;
            return Err(damage("the checksum of the gzip member is wrong"));
        }
        self.state = MemberState::Between;
        Ok(())
    }
}

impl<R: Read> Read for MemberInflater<R> {
    /// Decodes more of the member; 0 bytes mean its end.
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.state == MemberState::Inside {
            let bytes = self.input.bytes(1)?;
            let is_end = bytes.is_empty();
            let before = (self.inflate.total_in(), self.inflate.total_out());
            let flush = FlushDecompress::None;
            let outcome = self.inflate.decompress(bytes, out, flush);
            let taken = self.inflate.total_in() - before.0;
            let made = self.inflate.total_out() - before.1;
            // Both are lengths within the two slices.
            let (taken, made) = (taken as usize, made as usize);
            self.input.consume(taken);
            self.checksum.update(&out[..made]);
            self.decoded += made as u64;
            match outcome {
                Ok(Status::StreamEnd) => self.end_member()?,
                Ok(_) if taken == 0 && made == 0 => {
                    self.state = MemberState::Broken;
                    let cut = io::ErrorKind::UnexpectedEof.into();
                    return Err(if is_end {
                        cut
                    } else {
                        damage("the gzip data stops")
                    });
                }
                Ok(_) => {}
                Err(_) => {
                    self.state = MemberState::Broken;
                    return Err(damage("the gzip data is damaged"));
                }
            }
            if 0 < made {
                return Ok(made);
            }
        }
        match self.state {
            MemberState::Broken => Err(damage("the gzip data is damaged")),
            MemberState::Between | MemberState::Inside => Ok(0),
        }
    }
}

fn damage(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
