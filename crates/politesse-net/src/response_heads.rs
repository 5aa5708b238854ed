//! Counter of the response heads that an origin sends on an HTTP/2 connection.
//!
//! HTTP/2 (RFC 9113, section 8.1) allows any number of interim responses before the
//! response. hyper skips them without a notification: it calls its callback for interim
//! responses on HTTP/1.1 only, and h2 passes them only to its own callers. So they are
//! counted here in the received bytes, using the frame headers (RFC 9113, section 4.1).
//! Fields are compressed and stay unread, so a head that does not end its stream counts
//! as either an interim response or the response itself. Does not know how the connection
//! is handled.

use std::collections::BTreeMap;

/// Maximum number of interim responses to one request. Real servers send a 100, a 103, or
/// a few 102.
pub(super) const INTERIM_RESPONSES_MAX: usize = 16;

/// Maximum number of heads that do not end their stream: the interim responses and the
/// response.
const HEADS_MAX: usize = INTERIM_RESPONSES_MAX + 1;

/// Maximum number of streams whose heads are counted. The entry of a stream that the
/// client has reset stays until it is the oldest of that many.
const STREAMS_MAX: usize = 1024;

/// Length of a frame header, in bytes.
const FRAME_HEADER: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;

/// Parser state for the frames that an origin sends.
#[derive(Debug, Default)]
pub(super) struct ResponseHeads {
    /// Partially received frame header.
    header: [u8; FRAME_HEADER],
    header_bytes: usize,
    /// Bytes of the current payload still to be received.
    payload_bytes: usize,
    /// Number of heads by stream, for streams that have not ended.
    heads: BTreeMap<u32, usize>,
}

/// Error for a stream with more heads than any response needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyHeads;

impl ResponseHeads {
    /// Processes the next bytes from the origin, split at any position.
    ///
    /// # Errors
    ///
    /// [`TooManyHeads`] if a stream has more than [`INTERIM_RESPONSES_MAX`] interim
    /// responses. One more goes unnoticed if the response has no body.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), TooManyHeads> {
        while !bytes.is_empty() {
            let (payload, after) = bytes.split_at(self.payload_bytes.min(bytes.len()));
            self.payload_bytes -= payload.len();
            let missing = FRAME_HEADER - self.header_bytes;
            let (header, rest) = after.split_at(missing.min(after.len()));
            self.header[self.header_bytes..][..header.len()].copy_from_slice(header);
            self.header_bytes += header.len();
            if self.header_bytes == FRAME_HEADER {
                self.header_bytes = 0;
                self.begin_frame()?;
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Processes a complete frame header.
    fn begin_frame(&mut self) -> Result<(), TooManyHeads> {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = self.header;
        self.payload_bytes = usize::from(l0) << 16 | usize::from(l1) << 8 | usize::from(l2);
        // The first bit is reserved.
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & (u32::MAX >> 1);
        let ends = flags & END_STREAM != 0;
        if kind == HEADERS && !ends {
            return self.count_head(stream);
        }
        // CONTINUATION belongs to a head already counted. Frames of other types do not
        // concern a response.
        if kind == RST_STREAM || (ends && matches!(kind, DATA | HEADERS)) {
            self.heads.remove(&stream);
        }
        Ok(())
    }

    fn count_head(&mut self, stream: u32) -> Result<(), TooManyHeads> {
        let heads = self.heads.entry(stream).or_default();
        *heads += 1;
        if HEADS_MAX < *heads {
            return Err(TooManyHeads);
        }
        if STREAMS_MAX < self.heads.len() {
            // Stream numbers grow, so this is the oldest.
            self.heads.pop_first();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload];
        head.concat()
    }

    fn head(stream: u32) -> Vec<u8> {
        frame(HEADERS, 4, stream, b"\x08\x03103")
    }

    fn read(frames: &[Vec<u8>]) -> Result<(), TooManyHeads> {
        ResponseHeads::default().read(&frames.concat())
    }

    #[test]
    fn the_number_of_heads_per_stream_is_limited() {
        let most = vec![head(1); HEADS_MAX];
        assert_eq!(read(&most), Ok(()));
        let one_more = [most, vec![head(1)]].concat();
        assert_eq!(read(&one_more), Err(TooManyHeads));
        let mut heads = ResponseHeads::default();
        let cut: Vec<_> = one_more.concat();
        let mut read = cut.iter().map(|byte| heads.read(&[*byte]));
        assert!(read.any(|read| read.is_err()), "in pieces of one byte");
    }

    #[test]
    fn heads_of_several_streams_do_not_add_up() {
        let both = [head(1), head(3)].concat();
        assert_eq!(read(&vec![both; HEADS_MAX]), Ok(()));
    }

    // RFC 9113, section 5.1: an ended stream gets no more heads, and its number is not
    // reused. If a server ignores that, h2 refuses it.
    #[test]
    fn an_ended_stream_is_no_longer_tracked() {
        let mut heads = ResponseHeads::default();
        let ends = [
            frame(DATA, END_STREAM, 1, b"x"),
            frame(HEADERS, 4 | END_STREAM, 1, b""),
            frame(RST_STREAM, 0, 1, &[0; 4]),
        ];
        for end in ends {
            let most = vec![head(1); HEADS_MAX].concat();
            assert_eq!(heads.read(&most), Ok(()));
            assert_eq!(heads.read(&end), Ok(()));
            assert!(heads.heads.is_empty());
        }
    }

    #[test]
    fn payloads_are_not_read() {
        let body = frame(DATA, 0, 1, &vec![head(1); 100].concat());
        assert_eq!(read(&[body]), Ok(()));
        // A frame without payload, a reserved bit, and an undefined frame type.
        let others = [frame(4, 1, 0, b""), frame(0xFF, 0, 1 << 31, b"x")];
        assert_eq!(read(&others), Ok(()));
    }

    // Invariant 8 (ARCHITECTURE.md).
    #[test]
    fn the_number_of_tracked_streams_is_bounded() {
        let mut heads = ResponseHeads::default();
        for stream in (1..10_000).step_by(2) {
            assert_eq!(heads.read(&head(stream)), Ok(()));
        }
        assert_eq!(heads.heads.len(), STREAMS_MAX);
        assert_eq!(heads.heads.keys().next_back(), Some(&9_999));
    }
}
