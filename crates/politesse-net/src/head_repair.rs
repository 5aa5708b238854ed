//! Repair of HTTP/1.1 response heads between socket and parser: malformed fields are read
//! in the way that RFC 9110 and RFC 9112 allow a recipient to.
//!
//! hyper refuses a whole response because of one malformed field, so a site whose
//! robots.txt has one would count as unreachable. Its options to ignore such fields drop
//! their lines, including directives. Everything that is not repaired passes unchanged,
//! for hyper to refuse. Knows nothing of the framing of a response except where its head
//! ends.

use std::mem;
use std::ops::Range;

use memchr::{memchr, memchr_iter, memchr2};

use super::head::FIELDS_BYTES_MAX;

/// First bytes of every response that hyper reads (RFC 9112, section 2.3).
const VERSION: &[u8] = b"HTTP/1.";
/// Position of the status in a status line (RFC 9112, section 4).
const STATUS: Range<usize> = 9..12;

/// Names that a dropped field must not even resemble, reduced to lower-case letters and
/// digits: framing (RFC 9112, section 6) and content coding (RFC 9110, section 8.4).
const FRAMING: [&str; 4] = [
    "contentlength",
    "transferencoding",
    "connection",
    "contentencoding",
];

/// Parts of the names of fields that state directives, reduced in the same way.
const DIRECTIVES: [&str; 5] = [
    "robotstag",
    "contentusage",
    "contentsignal",
    "tdmreservation",
    "tdmpolicy",
];

/// Bytes allowed in a field name.
static IS_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let bytes = b"!#$%&'*+-.^_`|~0123456789\
        ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] = true;
        at += 1;
    }
    table
};

/// Response heads of one connection. A head that arrives whole and well-formed is not
/// touched. Any other is held back until it is complete.
#[derive(Debug, Default)]
pub(super) struct HeadRepair {
    /// Whether the next bytes belong to a head.
    expects_head: bool,
    /// Bytes received but not handed on yet.
    held: Vec<u8>,
    /// Number of held bytes that may be handed on.
    ready: usize,
    /// Number of held bytes known not to contain the end of a head.
    searched: usize,
}

impl HeadRepair {
    /// Starts an exchange: the next bytes are a head.
    pub(super) fn begin_exchange(&mut self) {
        self.expects_head = true;
    }

    /// Takes the next bytes from the origin, split at any position. Returns whether they
    /// may pass unchanged; otherwise they are held back.
    ///
    /// All ready bytes must have been handed on before.
    pub(super) fn read(&mut self, bytes: &[u8]) -> bool {
        if self.held.is_empty() && self.passes(bytes) {
            return true;
        }
        self.held.extend_from_slice(bytes);
        self.repair_held();
        false
    }

    /// Removes up to `max` ready bytes and passes them to `take`. Returns whether there
    /// were any.
    pub(super) fn hand_on(&mut self, max: usize, take: impl FnOnce(&[u8])) -> bool {
        let taken = self.ready.min(max);
        if taken == 0 {
            return false;
        }
        take(&self.held[..taken]);
        self.held.drain(..taken);
        self.ready -= taken;
        if self.held.is_empty() {
            // An idle connection must not keep a buffer.
            self.held = Vec::new();
        }
        true
    }

    /// Skips the heads at the start of `bytes`. Returns whether all of them are complete
    /// and well-formed, or the bytes are not a head.
    fn passes(&mut self, bytes: &[u8]) -> bool {
        let mut unread = bytes;
        while self.expects_head && !unread.is_empty() {
            let Some((head, after)) = split_plain_head(unread) else {
                self.expects_head = may_be_response(unread);
                return !self.expects_head;
            };
            self.expects_head = is_interim(head);
            unread = after;
        }
        true
    }

    /// Repairs the heads at the start of the held bytes.
    fn repair_held(&mut self) {
        let mut end = end_of_head(&self.held, mem::take(&mut self.searched));
        if end.is_none() && may_go_on(&self.held) {
            self.searched = self.held.len();
            return;
        }
        let held = mem::take(&mut self.held);
        let mut unread = held.as_slice();
        while self.expects_head
            && let Some((head, after)) = end.and_then(|end| unread.split_at_checked(end))
        {
            self.held.extend(repaired(head));
            self.expects_head = is_interim(head);
            unread = after;
            end = end_of_head(unread, 0);
        }
        self.expects_head &= may_go_on(unread);
        self.ready = self.held.len();
        self.held.extend_from_slice(unread);
        if !self.expects_head {
            self.ready = self.held.len();
        }
    }
}

/// Returns a head with its fields repaired. Anything ambiguous stays as received.
///
/// - A folded line is joined to the previous line with a space (RFC 9112, section 5.2).
/// - Whitespace before a colon is removed, except in framing fields (section 5.1).
/// - Control characters in a value become spaces, except NUL and CR (RFC 9110,
///   section 5.5).
/// - A line is dropped if its name is printable ASCII but not a token, unless it
///   resembles the name of a field that must not be lost.
pub(super) fn repaired(head: &[u8]) -> Vec<u8> {
    let empty = head.len() - without_empty_lines(head).len();
    let status_end = memchr(b'\n', &head[empty..]).map_or(head.len(), |at| empty + at + 1);
    let (status_line, fields) = head.split_at(status_end);
    let mut repaired = Vec::with_capacity(head.len());
    repaired.extend_from_slice(status_line);
    let mut lines = fields.split_inclusive(|&byte| byte == b'\n').peekable();
    let mut field = Vec::new();
    while let Some(line) = lines.next() {
        field.clear();
        field.extend_from_slice(line);
        // Only values can be folded, so a line without a colon cannot continue.
        let may_fold = line.contains(&b':');
        while let Some(folded) =
            lines.next_if(|next| may_fold && next.first().is_some_and(is_blank))
        {
            field.truncate(without_end(&field).len());
            field.push(b' ');
            let blanks = folded.iter().take_while(|byte| is_blank(byte)).count();
            field.extend_from_slice(&folded[blanks..]);
        }
        push_field(&mut repaired, &field);
    }
    repaired
}

/// Appends a field line to a head: repaired, unchanged, or not at all.
fn push_field(head: &mut Vec<u8>, line: &[u8]) {
    let content = without_end(line);
    let colon = memchr(b':', content);
    let Some(colon) = colon.filter(|_| memchr2(0, b'\r', content).is_none()) else {
        return head.extend_from_slice(line);
    };
    let (written, value) = line.split_at(colon);
    let name = without_blanks_behind(written);
    let has_blank = name.len() < written.len();
    let is_token = !name.is_empty() && name.iter().all(|&byte| IS_TOKEN[usize::from(byte)]);
    let is_lost = !is_token
        && name
            .iter()
            .all(|byte| is_blank(byte) || byte.is_ascii_graphic());
    if is_lost && !name.is_empty() && !resembles_needed(name) {
        return;
    }
    if !is_token || (has_blank && is_framing(name)) {
        return head.extend_from_slice(line);
    }
    head.extend_from_slice(name);
    head.extend(value.iter().map(|&byte| match byte {
        b'\t' | b'\r' | b'\n' => byte,
        byte if byte.is_ascii_control() => b' ',
        byte => byte,
    }));
}

/// Reports whether whitespace before the colon of `name` could change the framing of a
/// response.
fn is_framing(name: &[u8]) -> bool {
    let names = ["content-length", "transfer-encoding", "connection"];
    names
        .iter()
        .any(|framing| name.eq_ignore_ascii_case(framing.as_bytes()))
}

/// Reports whether the letters and digits of `name` spell a field for framing, coding or
/// directives.
fn resembles_needed(name: &[u8]) -> bool {
    let letters: String = name
        .iter()
        .filter(|byte| byte.is_ascii_alphanumeric())
        .map(|byte| char::from(byte.to_ascii_lowercase()))
        .collect();
    FRAMING.contains(&letters.as_str()) || DIRECTIVES.iter().any(|part| letters.contains(part))
}

/// Returns the end of the first head. The first `searched` bytes are known not to contain
/// it.
fn end_of_head(bytes: &[u8], searched: usize) -> Option<usize> {
    let empty = bytes.len() - without_empty_lines(bytes).len();
    // The last searched byte, or the one before it, may be the end of a line.
    let start = empty.max(searched.saturating_sub(2));
    let mut line_ends = memchr_iter(b'\n', &bytes[start..]).map(|at| start + at + 1);
    line_ends.find_map(|line| match &bytes[line..] {
        [b'\n', ..] => Some(line + 1),
        [b'\r', b'\n', ..] => Some(line + 2),
        _ => None,
    })
}

/// Reports whether an incomplete head may still become a response that hyper accepts.
fn may_go_on(bytes: &[u8]) -> bool {
    may_be_response(bytes) && bytes.len() <= FIELDS_BYTES_MAX
}

fn may_be_response(bytes: &[u8]) -> bool {
    let status_line = without_empty_lines(bytes);
    status_line.starts_with(VERSION) || VERSION.starts_with(status_line)
}

/// Splits off a head that is complete and needs no repair. A tab counts as malformed,
/// because few heads contain one.
///
/// One pass over the lines and one over the bytes, because every response goes through
/// this function.
fn split_plain_head(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    if !bytes.starts_with(VERSION) {
        return None;
    }
    let mut line = memchr(b'\n', bytes)? + 1;
    let end = loop {
        let rest = &bytes[line..];
        let name = rest.iter().position(|&byte| !IS_TOKEN[usize::from(byte)])?;
        match &rest[name..] {
            [b':', value @ ..] if name != 0 => line += name + 1 + memchr(b'\n', value)? + 1,
            [b'\r', b'\n', ..] if name == 0 => break line + 2,
            [b'\n', ..] if name == 0 => break line + 1,
            _ => return None,
        }
    };
    let (head, after) = bytes.split_at(end);
    let is_odd = |byte: u8| byte.is_ascii_control() && !matches!(byte, b'\r' | b'\n');
    // No early exit: without one, the loop processes many bytes at a time.
    let has_odd = head.iter().fold(false, |odd, &byte| odd | is_odd(byte));
    (!has_odd).then_some((head, after))
}

/// Reports whether a head is that of an interim response, which another head follows (RFC
/// 9110, section 15.2). No head follows a 101.
fn is_interim(head: &[u8]) -> bool {
    let status = without_empty_lines(head).get(STATUS);
    status.is_some_and(|status| status.starts_with(b"1") && status != b"101")
}

/// Skips the empty lines that may precede a status line (RFC 9112, section 2.2).
fn without_empty_lines(bytes: &[u8]) -> &[u8] {
    let is_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
    &bytes[bytes.iter().take_while(is_end).count()..]
}

/// Removes the line end.
fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn without_blanks_behind(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| !is_blank(byte));
    &bytes[..end.map_or(0, |end| end + 1)]
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Builds the head of a response with these lines.
    fn head(lines: &str) -> String {
        format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n")
    }

    /// Returns everything that is handed on for an exchange received in these pieces.
    fn handed_on<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut repair = HeadRepair::default();
        repair.begin_exchange();
        let mut handed = Vec::new();
        for piece in pieces {
            if repair.read(piece) {
                handed.extend_from_slice(piece);
            }
            while repair.hand_on(7, |ready| handed.extend_from_slice(ready)) {}
        }
        handed.extend(repair.held);
        handed
    }

    macro_rules! repairs {
        ($($name:ident: $lines:expr => $repaired:expr;)*) => {$(
            #[test]
            fn $name() {
                let wanted = $repaired.map_or("HTTP/1.1 200 OK\r\n\r\n".to_owned(), head);
                let came = head($lines) + "body\r\n\r\nX : y\r\n\r\n";
                let handed = handed_on([came.as_bytes()]);
                assert_eq!(String::from_utf8_lossy(&handed), came.replacen(&head($lines), &wanted, 1));
                let bytewise = handed_on(came.as_bytes().chunks(1));
                assert_eq!(bytewise, handed, "in pieces of one byte");
            }
        )*};
    }

    /// Tests lines that are left unchanged, for hyper to refuse or to accept.
    macro_rules! left {
        ($($name:ident: $lines:expr;)*) => { repairs! { $($name: $lines => Some($lines);)* } };
    }

    // RFC 9110, section 5.5.
    repairs! {
        control_characters_in_a_value_become_spaces:
            "X: a\x01b\x0bc\x7fd\x1f\r\nY: z" => Some("X: a b c d \r\nY: z");
    }

    // RFC 9112, section 5.2.
    repairs! {
        a_folded_line_is_joined_with_a_space: "X: a\r\n  b\r\n\tc\r\nY: z" => Some("X: a b c\r\nY: z");
        a_fold_may_be_empty: "X: a\r\n \r\nY: z" => Some("X: a \r\nY: z");
        a_fold_after_a_bare_line_feed_is_joined: "X: a\n b" => Some("X: a b");
        an_empty_value_may_continue_in_a_fold: "X:\r\n a" => Some("X: a");
    }

    // RFC 9112, section 5.1.
    repairs! {
        whitespace_before_a_colon_is_removed: "X-Robots-Tag \t: noindex\r\nX : y"
            => Some("X-Robots-Tag: noindex\r\nX: y");
    }
    left! {
        a_blank_before_the_colon_of_a_length_stays: "content-Length : 3";
        a_blank_before_the_colon_of_a_coding_stays: "Transfer-Encoding\t: chunked";
        a_blank_before_the_colon_of_connection_stays: "Connection : close";
    }

    // Ours: a line whose name is not a token contains nothing that is needed here.
    repairs! {
        a_line_whose_name_has_a_space_is_dropped: "PHP Warning: x\r\n in y: z\r\nX: y" => Some("X: y");
        a_line_whose_name_is_not_a_token_is_dropped: "X: y\r\n<b>Note</b>: x" => Some("X: y");
        a_first_line_that_begins_with_a_space_is_dropped: " X: y" => None::<&str>;
    }
    left! {
        a_name_that_resembles_a_length_stays: "Content Length: 3";
        a_name_that_resembles_a_transfer_coding_stays: "Transfer_ Encoding: x";
        a_name_that_resembles_connection_stays: "Conn ection: close";
        a_name_that_resembles_a_coding_stays: "Content_ Encoding: gzip";
        a_name_that_resembles_directives_stays: "X Robots Tag: noindex";
        a_name_that_contains_a_directive_field_stays: "X-Robots-Tag googlebot: noindex";
        a_name_that_begins_a_folded_value_stays: " Content-Usage: train-ai=n";
    }

    // RFC 9110, section 5.5; RFC 9112, sections 2.2 and 5.
    left! {
        nul_stays: "X: a\0b\x01";
        a_bare_cr_stays: "X : a\rSet-Cookie: x=1";
        nul_in_a_line_without_a_token_stays: "X Y: a\0b";
        a_line_without_a_colon_stays: "X y";
        a_name_outside_ascii_stays: "X\u{e9}: y";
        a_control_character_in_a_name_stays: "X\x01: y";
        an_empty_name_stays: ": y";
        a_plain_head_stays: "X: y\r\nContent-Type: text/html; charset=\"x\"";
    }

    // RFC 9112, section 2.2; RFC 9110, section 15.2.
    #[test]
    fn heads_after_interim_responses_are_repaired_and_later_bytes_are_not() {
        let odd = "\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink : x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n\
            HTTP/1.1 200 OK\r\nX : y\r\n\r\nHTTP/1.1 200 OK\r\nX : y\r\n\r\n";
        let wanted = odd.replace("Link :", "Link:").replacen("X :", "X:", 1);
        for size in [1, 2, 3, 50, 1000] {
            let handed = handed_on(odd.as_bytes().chunks(size));
            assert_eq!(String::from_utf8_lossy(&handed), wanted, "{size}");
        }
    }

    // Ours: hyper refuses such bytes at once, and must not wait for the end of a head.
    #[test]
    fn bytes_that_do_not_begin_a_response_are_not_held_back() {
        for bytes in ["220 mail.test ready\r\n", "<html>", "\r\nHTTP/2.0 200 OK"] {
            let mut repair = HeadRepair::default();
            repair.begin_exchange();
            assert!(repair.read(bytes.as_bytes()), "{bytes}");
        }
    }

    // Invariant 8 (ARCHITECTURE.md): the held bytes never exceed the amount that hyper
    // would accept.
    #[test]
    fn a_head_without_end_is_held_back_up_to_a_bound() {
        let mut repair = HeadRepair::default();
        repair.begin_exchange();
        assert!(!repair.read(b"HTTP/1.1 200 OK\r\nX: "));
        for _ in 0..FIELDS_BYTES_MAX / 1024 {
            assert!(repair.ready == 0 && !repair.read(&[b'x'; 1024]));
        }
        assert!(repair.hand_on(usize::MAX, |ready| assert!(FIELDS_BYTES_MAX < ready.len())));
        assert!(repair.read(b"x"));
    }

    // Ours: an idle connection must not hold a buffer.
    #[test]
    fn no_buffer_is_kept_after_everything_is_handed_on() {
        let mut repair = HeadRepair::default();
        repair.begin_exchange();
        assert!(!repair.read(b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n"));
        assert!(repair.hand_on(usize::MAX, |_| ()) && repair.held.capacity() == 0);
    }

    proptest! {
        // Ours.
        #[test]
        fn heads_are_repaired_however_they_are_cut(
            lines in "([A-Zx-]{1,3}[ \t\u{1}]?:?[ab:\u{1}\u{0}\r]{0,3}(\r?\n){1,2}[ \t]?){0,6}",
            cuts in proptest::collection::vec(1_usize..9, 1..40),
        ) {
            let came = format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\nX : y");
            let mut rest = came.as_bytes();
            let mut pieces = Vec::new();
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            pieces.push(rest);
            pieces.retain(|piece| !piece.is_empty());
            prop_assert_eq!(handed_on(pieces), handed_on([came.as_bytes()]));
        }
    }
}
