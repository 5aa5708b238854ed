//! Encoding of a page: its byte order mark, else the label in its Content-Type,
//! else what its first bytes declare.
//!
//! HTML standard, section 13.2.3.2, as far as it changes how markup reads: in UTF-16
//! and ISO-2022-JP, bytes that look like markup may not be markup. In every other
//! encoding of the Encoding standard, markup is ASCII.

use encoding_rs::{Encoding, ISO_2022_JP, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};
use memchr::{memchr, memmem};

use super::tag::{ElementName, Tag, TagKind};

/// Bytes at the start of a page in which it may declare its encoding.
pub(super) const PRESCAN_BYTES: usize = 1024;

/// Bytes at the start of a page that [`is_mislabelled`] examines.
const ZERO_PLACES: usize = 2;

/// Byte that switches to two-byte characters in ISO-2022-JP.
pub(super) const ESCAPE: u8 = 0x1B;

/// Encoding named by a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EncodingLabel {
    Missing,
    Known(&'static Encoding),
    /// A label that no parser knows. The page is read if it is ASCII all the same.
    Unknown,
    /// An encoding in which ASCII does not represent itself, and that no browser
    /// decodes any more.
    Unreadable,
}

impl EncodingLabel {
    /// Reads the parameter `charset` of a Content-Type.
    pub(super) fn parse(text: Option<&str>) -> Self {
        let text = text.unwrap_or_default().trim();
        if text.is_empty() {
            return Self::Missing;
        }
        match Encoding::for_label(text.as_bytes()) {
            Some(encoding) if encoding.output_encoding() == encoding => Self::Known(encoding),
            Some(encoding) if is_utf_16(encoding) => Self::Known(encoding),
            Some(_) => Self::Unreadable,
            None if is_foreign_to_ascii(text) => Self::Unreadable,
            None => Self::Unknown,
        }
    }
}

/// First bytes of a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageStart<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether no more bytes will come that could determine the encoding.
    pub(super) is_complete: bool,
}

/// Encoding of a page, as determined by its first bytes and its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageEncoding {
    /// `None` if undetermined: markup is ASCII in the page's encoding, or the page
    /// declares another one later in its first [`PRESCAN_BYTES`].
    pub(super) encoding: Option<&'static Encoding>,
    /// Length of the byte order mark.
    pub(super) mark_bytes: usize,
}

/// Beginning of a page, and the encoding it implies.
type Beginning = (&'static [u8], &'static Encoding);

const MARKS: [Beginning; 3] = [
    (b"\xEF\xBB\xBF", UTF_8),
    (b"\xFE\xFF", UTF_16BE),
    (b"\xFF\xFE", UTF_16LE),
];

/// XML declarations in UTF-16.
const DECLARATIONS: [Beginning; 2] = [(b"<\0?\0x\0", UTF_16LE), (b"\0<\0?\0x", UTF_16BE)];

impl PageEncoding {
    /// Reads the start of a page. A byte order mark outweighs the `label`, an XML
    /// declaration does not. Returns `None` while more bytes are needed to decide.
    pub(super) fn read(start: PageStart<'_>, label: EncodingLabel) -> Option<Self> {
        let PageStart { bytes, is_complete } = start;
        let begins = |(beginning, _): &&Beginning| bytes.starts_with(beginning);
        let may_begin = |(beginning, _): &Beginning| beginning.starts_with(bytes);
        if let Some((mark, encoding)) = MARKS.iter().find(begins) {
            return Some(Self::new(Some(encoding), mark.len()));
        }
        // A head may end with its first byte (`0`), and the second byte is still needed
        // to decide whether the page is readable.
        let is_short = bytes.len() < ZERO_PLACES;
        if !is_complete && (is_short || MARKS.iter().any(may_begin)) {
            return None;
        }
        if let EncodingLabel::Known(encoding) = label {
            return Some(Self::new(Some(encoding), 0));
        }
        if let Some((_, encoding)) = DECLARATIONS.iter().find(begins) {
            return Some(Self::new(Some(encoding), 0));
        }
        // The beginning of its markup shows whether a page with an unknown label is
        // readable.
        let has_begun = label != EncodingLabel::Unknown || is_ascii_markup(bytes).is_some();
        if !is_complete && (!has_begun || DECLARATIONS.iter().any(may_begin)) {
            return None;
        }
        if is_complete || PRESCAN_BYTES <= bytes.len() {
            let declared = declares_iso_2022_jp(bytes).then_some(ISO_2022_JP);
            return Some(Self::new(declared, 0));
        }
        // Before an escape, no declaration makes a difference.
        memchr(ESCAPE, bytes)
            .is_none()
            .then_some(Self::new(None, 0))
    }

    fn new(encoding: Option<&'static Encoding>, mark_bytes: usize) -> Self {
        Self {
            encoding,
            mark_bytes,
        }
    }
}

/// Reports whether a page begins like markup in ASCII, unlike a page in UTF-16, UTF-32
/// or EBCDIC. `None` while more bytes are needed to decide.
pub(super) fn is_ascii_markup(start: &[u8]) -> Option<bool> {
    match start.trim_ascii_start() {
        [] | [b'<'] => None,
        [b'<', next, ..] => Some(next.is_ascii_alphabetic() || b"!?/".contains(next)),
        _ => Some(false),
    }
}

/// Reports whether a page begins in a way that is impossible in its encoding. Either a
/// zero byte shows undeclared UTF-16 or UTF-32 or the other byte order, or ASCII markup
/// is labelled UTF-16.
pub(super) fn is_mislabelled(start: &[u8], encoding: Option<&'static Encoding>) -> bool {
    let is_zero = |at| start.get(at) == Some(&0);
    let is_ascii = || is_ascii_markup(start) == Some(true);
    match encoding {
        Some(encoding) if encoding == UTF_16LE => is_zero(0) || is_ascii(),
        Some(encoding) if encoding == UTF_16BE => is_zero(1) || is_ascii(),
        _ => is_zero(0) || is_zero(1),
    }
}

/// Reports whether the first bytes of a page declare ISO-2022-JP.
pub(super) fn declares_iso_2022_jp(start: &[u8]) -> bool {
    let start = start.get(..PRESCAN_BYTES).unwrap_or(start);
    // All labels of the encoding contain this number, and few pages do, so most pages
    // skip the prescan.
    memmem::find(start, b"2022").is_some() && declared_encoding(start) == Some(ISO_2022_JP)
}

fn is_utf_16(encoding: &'static Encoding) -> bool {
    encoding == UTF_16LE || encoding == UTF_16BE
}

/// Reports whether a label names an encoding in which ASCII does not represent itself:
/// UTF-7, UTF-32, EBCDIC, and encodings that switch by escapes.
fn is_foreign_to_ascii(label: &str) -> bool {
    const BEGINNINGS: [&str; 14] = [
        "utf-7",
        "utf7",
        "unicode-1-1-utf-7",
        "csutf7",
        "utf-32",
        "utf32",
        "csutf32",
        "ucs-4",
        "ucs4",
        "iso-10646-ucs-",
        "iso-2022-",
        "scsu",
        "bocu",
        "hz",
    ];
    /// EBCDIC, as IBM numbers it.
    const NUMBERS: [&str; 56] = [
        "037", "273", "274", "275", "277", "278", "280", "281", "284", "285", "290", "297", "420",
        "423", "424", "500", "833", "838", "870", "871", "875", "880", "905", "918", "924", "930",
        "931", "933", "935", "937", "939", "1025", "1026", "1047", "1097", "1112", "1122", "1123",
        "1130", "1132", "1140", "1141", "1142", "1143", "1144", "1145", "1146", "1147", "1148",
        "1149", "1364", "1371", "1388", "1390", "1399", "38",
    ];
    const NUMBER_PREFIXES: [&str; 7] = ["ibm-", "ibm", "cp", "csibm", "x-ibm", "ibm0", "cp0"];
    let lower = label.to_ascii_lowercase();
    let mut numbers = NUMBER_PREFIXES
        .iter()
        .filter_map(|prefix| lower.strip_prefix(prefix));
    BEGINNINGS.iter().any(|start| lower.starts_with(start))
        || lower.contains("ebcdic")
        || numbers.any(|number| NUMBERS.contains(&number))
}

/// Returns the encoding that the first bytes of a page declare (HTML standard,
/// 13.2.3.2: "prescan a byte stream to determine its encoding").
fn declared_encoding(start: &[u8]) -> Option<&'static Encoding> {
    if let Some(encoding) = xml_encoding(start) {
        return Some(encoding);
    }
    let mut rest = start;
    while let Some(at) = memchr(b'<', rest) {
        rest = &rest[at..];
        let length = match rest {
            // The dashes of `<!-->` also belong to its end.
            [_, b'!', b'-', b'-', ..] => memmem::find(&rest[2..], b"-->")? + b"<!-->".len(),
            [_, b'!' | b'?', ..] => memchr(b'>', rest)? + 1,
            [_, b'/', next, ..] if !next.is_ascii_alphabetic() => memchr(b'>', rest)? + 1,
            _ => match Tag::read(rest) {
                Some(tag) => match encoding_of_meta(&tag) {
                    Some(encoding) => return Some(encoding),
                    None => tag.text.len(),
                },
                None => 1,
            },
        };
        rest = &rest[length..];
    }
    None
}

/// Reads `<?xml version="1.0" encoding="...">` (HTML standard, 13.2.3.2: "get
/// an XML encoding").
fn xml_encoding(start: &[u8]) -> Option<&'static Encoding> {
    let is_blank = |byte: &u8| *byte <= b' ';
    let skip_blanks = |text: &'_ [u8]| text.iter().position(|byte| !is_blank(byte));
    let rest = start.strip_prefix(b"<?xml")?;
    let declaration = &rest[..memchr(b'>', rest)?];
    let name = memmem::find(declaration, b"encoding")?;
    let after = &declaration[name + b"encoding".len()..];
    let value = after[skip_blanks(after)?..].strip_prefix(b"=")?;
    let (quote, quoted) = value[skip_blanks(value)?..].split_first()?;
    let label = &quoted[..memchr(*quote, quoted)?];
    if !matches!(quote, b'"' | b'\'') || label.iter().any(is_blank) {
        return None;
    }
    encoding_in_markup(label)
}

/// Returns the encoding that a `<meta>` declares.
fn encoding_of_meta(tag: &Tag<'_>) -> Option<&'static Encoding> {
    if tag.kind != TagKind::Start || tag.element != ElementName::Meta {
        return None;
    }
    if let Some(label) = tag.attribute("charset") {
        return encoding_in_markup(label);
    }
    let pragma = tag.attribute("http-equiv")?;
    let content = tag.attribute("content")?;
    let label = label_in(content)?;
    encoding_in_markup(label).filter(|_| pragma.eq_ignore_ascii_case(b"content-type"))
}

/// Returns the label in `text/html; charset=...` (HTML standard, 2.6.5: "extracting a
/// character encoding from a meta element").
fn label_in(content: &[u8]) -> Option<&[u8]> {
    let lower = content.to_ascii_lowercase();
    let mut at = 0;
    loop {
        at += memmem::find(&lower[at..], b"charset")? + b"charset".len();
        if let [b'=', value @ ..] = content[at..].trim_ascii_start() {
            let value = value.trim_ascii_start();
            return match value {
                [quote @ (b'"' | b'\''), quoted @ ..] => Some(&quoted[..memchr(*quote, quoted)?]),
                bare => {
                    let ends = |byte: &u8| byte.is_ascii_whitespace() || *byte == b';';
                    let end = bare.iter().position(ends).unwrap_or(bare.len());
                    Some(&bare[..end])
                }
            };
        }
    }
}

/// Returns the encoding that a label in markup stands for: markup that could be read as
/// ASCII is not in UTF-16.
fn encoding_in_markup(label: &[u8]) -> Option<&'static Encoding> {
    let encoding = Encoding::for_label(label)?;
    if is_utf_16(encoding) {
        Some(UTF_8)
    } else if encoding == X_USER_DEFINED {
        Some(WINDOWS_1252)
    } else {
        Some(encoding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use encoding_rs::{SHIFT_JIS, WINDOWS_1251};

    // Encoding standard, 4.2.
    #[test]
    fn labels_are_those_of_the_standard() {
        assert_eq!(
            EncodingLabel::parse(Some(" UTF8 ")),
            EncodingLabel::Known(UTF_8)
        );
        assert_eq!(
            EncodingLabel::parse(Some("utf-16")),
            EncodingLabel::Known(UTF_16LE)
        );
        assert_eq!(
            EncodingLabel::parse(Some("x-user-defined")),
            EncodingLabel::Known(X_USER_DEFINED)
        );
        assert_eq!(
            EncodingLabel::parse(Some("ibm866")),
            EncodingLabel::Known(encoding_rs::IBM866)
        );
        assert_eq!(EncodingLabel::parse(None), EncodingLabel::Missing);
        assert_eq!(EncodingLabel::parse(Some("")), EncodingLabel::Missing);
        assert_eq!(EncodingLabel::parse(Some("cp850")), EncodingLabel::Unknown);
    }

    // Ours.
    #[test]
    fn encodings_that_browsers_do_not_decode_are_unreadable() {
        for label in [
            "hz-gb-2312",
            "iso-2022-kr",
            "UTF-7",
            "utf-32le",
            "ISO-10646-UCS-4",
            "ibm037",
            "IBM-1047",
            "cp500",
            "EBCDIC-US",
            "iso-2022-jp-2",
            "IBM01140",
        ] {
            assert_eq!(
                EncodingLabel::parse(Some(label)),
                EncodingLabel::Unreadable,
                "{label}"
            );
        }
    }

    #[test]
    fn markup_begins_with_an_angle_bracket() {
        for (start, is_markup) in [
            ("", None),
            (" \n", None),
            ("<", None),
            ("<h", Some(true)),
            ("\t<!", Some(true)),
            ("</", Some(true)),
            ("<?", Some(true)),
            ("h", Some(false)),
            ("<\0", Some(false)),
            ("\0<", Some(false)),
            ("Lh", Some(false)),
            ("<<", Some(false)),
            ("+AD", Some(false)),
        ] {
            assert_eq!(is_ascii_markup(start.as_bytes()), is_markup, "{start}");
        }
    }

    macro_rules! declarations {
        ($($name:ident: $text:literal is $encoding:expr;)*) => {$(
            #[test]
            fn $name() {
                assert_eq!(declared_encoding($text.as_bytes()), $encoding);
            }
        )*};
    }

    // HTML standard, 13.2.3.2.
    declarations! {
        a_meta_declares: "<p><META a CHARSET = 'shift_jis'>" is Some(SHIFT_JIS);
        a_pragma_declares: "<meta content='text/html; charset=\"sjis\"' http-equiv=Content-Type>" is Some(SHIFT_JIS);
        another_pragma_declares_nothing: "<meta http-equiv=refresh content='charset=sjis'>" is None;
        a_word_before_charset_may_look_like_it: "<meta http-equiv=content-type content='charset charset=sjis;x'>" is Some(SHIFT_JIS);
        a_comment_declares_nothing: "<!-- <meta charset=sjis> --><meta charset=cp1251>" is Some(WINDOWS_1251);
        a_short_comment_ends: "<!--><meta charset=sjis>" is Some(SHIFT_JIS);
        an_attribute_declares_nothing: "<a b='<meta charset=sjis>'>" is None;
        an_end_tag_declares_nothing: "</meta charset=sjis>" is None;
        a_script_may_declare: "<script>'<meta charset=sjis>'</script>" is Some(SHIFT_JIS);
        an_unknown_label_is_passed_over: "<meta charset=x><meta charset=sjis>" is Some(SHIFT_JIS);
        utf_16_in_markup_is_utf_8: "<meta charset=utf-16le>" is Some(UTF_8);
        x_user_defined_is_windows_1252: "<meta charset=x-user-defined>" is Some(WINDOWS_1252);
        an_xml_declaration_declares: "<?xml version='1.0' encoding = \"sjis\"?>" is Some(SHIFT_JIS);
        an_xml_declaration_comes_first: " <?xml encoding='sjis'?>" is None;
    }

    // Encoding standard, 6.1; HTML standard, 13.2.3.2.
    #[test]
    fn a_mark_outweighs_a_label_and_a_label_a_declaration() {
        let known = EncodingLabel::Known(SHIFT_JIS);
        let (missing, unknown) = (EncodingLabel::Missing, EncodingLabel::Unknown);
        for (bytes, label, encoding) in [
            (b"\xEF\xBB\xBFx".as_slice(), known, Some((Some(UTF_8), 3))),
            (b"\xFF\xFE", known, Some((Some(UTF_16LE), 2))),
            (b"\xEF\xBB", known, None),
            (b"\xEF\xBBx", known, Some((Some(SHIFT_JIS), 0))),
            (b"<\0?\0x\0m\0", missing, Some((Some(UTF_16LE), 0))),
            (b"\0<\0?\0x\0m", unknown, Some((Some(UTF_16BE), 0))),
            (b"\0<\0?\0x\0m", known, Some((Some(SHIFT_JIS), 0))),
            (b"<\0?", missing, None),
            (b"<", known, None),
            (b"<h", known, Some((Some(SHIFT_JIS), 0))),
            (b"<h", missing, Some((None, 0))),
            (b"<h\x1B", missing, None),
            (b" ", unknown, None),
        ] {
            let is_complete = false;
            let found = PageEncoding::read(PageStart { bytes, is_complete }, label);
            let found = found.map(|found| (found.encoding, found.mark_bytes));
            assert_eq!(found, encoding, "{bytes:?}");
        }
    }

    #[test]
    fn iso_2022_jp_is_declared_early_or_not_at_all() {
        let meta = "<meta charset=csISO2022JP>";
        assert!(declares_iso_2022_jp(meta.as_bytes()));
        let page = format!("{}{meta}", " ".repeat(PRESCAN_BYTES));
        assert!(!declares_iso_2022_jp(page.as_bytes()));
    }
}
