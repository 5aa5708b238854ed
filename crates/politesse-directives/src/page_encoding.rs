//! The encoding of a page: its byte order mark, else the label in its
//! Content-Type, else what its first octets declare.
//!
//! HTML standard, 13.2.3.2, as far as it changes how markup reads: in UTF-16
//! and ISO-2022-JP octets that look like markup are none. In every other
//! encoding of the Encoding standard markup is ASCII.

use encoding_rs::{Encoding, ISO_2022_JP, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};
use memchr::memmem;

use super::tag::{Attributes, Tag};

/// Octets in which a page declares its encoding.
pub(super) const PRESCAN_BYTES: usize = 1024;

/// What a label stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    Missing,
    Known(&'static Encoding),
    /// No parser reads it so. Pages that are ASCII all the same are read.
    Unknown,
    /// An encoding in which ASCII does not stand for itself, and that nobody
    /// decodes any more.
    Unreadable,
}

impl Label {
    /// Reads the parameter `charset` of a Content-Type.
    pub(super) fn of(text: Option<&str>) -> Self {
        let text = text.unwrap_or_default().trim();
        if text.is_empty() {
            return Self::Missing;
        }
        match Encoding::for_label(text.as_bytes()) {
            Some(encoding) if encoding.output_encoding() == encoding => Self::Known(encoding),
            Some(encoding) if encoding == UTF_16LE || encoding == UTF_16BE => Self::Known(encoding),
            Some(_) => Self::Unreadable,
            None if is_foreign_to_ascii(text) => Self::Unreadable,
            None => Self::Unknown,
        }
    }
}

/// Whether a label is that of an encoding in which ASCII does not stand for
/// itself: UTF-7 and UTF-32, what switches by escapes, EBCDIC.
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
    let label = label.to_ascii_lowercase();
    let number = ["ibm-", "ibm", "cp", "csibm", "x-ibm", "ibm0", "cp0"];
    let mut number = number.iter().filter_map(|start| label.strip_prefix(start));
    BEGINNINGS.iter().any(|start| label.starts_with(start))
        || label.contains("ebcdic")
        || number.any(|number| NUMBERS.contains(&number))
}

/// Whether a page begins as markup in ASCII does, unlike one in UTF-16, UTF-32
/// or EBCDIC; none while more octets are needed to tell.
pub(super) fn is_ascii_markup(start: &[u8]) -> Option<bool> {
    match start.trim_ascii_start() {
        [] | [b'<'] => None,
        [b'<', next, ..] => Some(next.is_ascii_alphabetic() || b"!?/".contains(next)),
        _ => Some(false),
    }
}

/// Octets at the start of a page that tell UTF-16 and UTF-32 from others.
pub(super) const ZERO_BYTES: usize = 2;

/// Whether a page begins with a zero octet where its encoding has none: it is
/// in UTF-16 or UTF-32 without saying so, or in the other byte order.
pub(super) fn has_foreign_zero(start: &[u8], encoding: Option<&'static Encoding>) -> bool {
    let zero = |at| start.get(at) == Some(&0);
    match encoding {
        Some(encoding) if encoding == UTF_16LE => zero(0),
        Some(encoding) if encoding == UTF_16BE => zero(1),
        _ => zero(0) || zero(1),
    }
}

/// A way for a page to begin, and the encoding that it tells.
type Beginning = (&'static [u8], &'static Encoding);

/// Byte order marks.
const MARKS: [Beginning; 3] = [
    (b"\xEF\xBB\xBF", UTF_8),
    (b"\xFE\xFF", UTF_16BE),
    (b"\xFF\xFE", UTF_16LE),
];

/// XML declarations in UTF-16.
const DECLARATIONS: [Beginning; 2] = [(b"<\0?\0x\0", UTF_16LE), (b"\0<\0?\0x", UTF_16BE)];

/// What the first octets of a page tell of its encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signature {
    /// Too few to tell.
    Begun,
    /// It, and the octets of the mark.
    Mark(&'static Encoding, usize),
    /// It, by an XML declaration.
    Declaration(&'static Encoding),
    None,
}

impl Signature {
    /// Reads the first octets of a page. `label`: a mark outweighs it, a
    /// declaration does not.
    pub(super) fn of(start: &[u8], label: Label) -> Self {
        let may_declare = !matches!(label, Label::Known(_));
        let found = |of: &[Beginning]| {
            let mut of = of.iter();
            of.find(|(octets, _)| start.starts_with(octets)).copied()
        };
        let begun = |of: &[Beginning]| of.iter().any(|(octets, _)| octets.starts_with(start));
        if let Some((octets, encoding)) = found(&MARKS) {
            Self::Mark(encoding, octets.len())
        } else if let Some((_, encoding)) = found(&DECLARATIONS).filter(|_| may_declare) {
            Self::Declaration(encoding)
        } else if begun(&MARKS) || may_declare && begun(&DECLARATIONS) {
            Self::Begun
        } else {
            Self::None
        }
    }
}

/// Whether the first octets of a page declare ISO-2022-JP.
pub(super) fn declares_iso_2022_jp(start: &[u8]) -> bool {
    let start = start.get(..PRESCAN_BYTES).unwrap_or(start);
    // All its labels have this number, and few pages do.
    memmem::find(start, b"2022").is_some() && declared(start) == Some(ISO_2022_JP)
}

/// The encoding that the first octets of a page declare (HTML standard,
/// 13.2.3.2: "prescan a byte stream to determine its encoding").
fn declared(start: &[u8]) -> Option<&'static Encoding> {
    if let Some(encoding) = xml_encoding(start) {
        return Some(encoding);
    }
    let mut rest = start;
    while let Some((first, behind)) = rest.split_first() {
        rest = match rest {
            [b'<', b'!', b'-', b'-', ..] => &rest[memmem::find(&rest[2..], b"-->")? + 5..],
            [b'<', b'!' | b'?', ..] => past_angle(rest)?,
            [b'<', b'/', next, ..] if !next.is_ascii_alphabetic() => past_angle(rest)?,
            _ if *first != b'<' => behind,
            _ => {
                let Some((tag, next)) = Tag::read(rest) else {
                    rest = behind;
                    continue;
                };
                if let Some(encoding) = declared_by(&tag) {
                    return Some(encoding);
                }
                next
            }
        };
    }
    None
}

fn past_angle(text: &[u8]) -> Option<&[u8]> {
    let end = memchr::memchr(b'>', text)?;
    Some(&text[end + 1..])
}

/// `<?xml version="1.0" encoding="...">` (HTML standard, 13.2.3.2: "get an XML
/// encoding").
fn xml_encoding(start: &[u8]) -> Option<&'static Encoding> {
    let text = start.strip_prefix(b"<?xml")?;
    let text = &text[..memchr::memchr(b'>', text)?];
    let at = memmem::find(text, b"encoding")?;
    let blank = |octet: &u8| *octet <= b' ';
    let skip = |text: &'_ [u8]| text.iter().position(|it| !blank(it)).unwrap_or(text.len());
    let text = &text[at + b"encoding".len()..];
    let text = text[skip(text)..].strip_prefix(b"=")?;
    let (quote, text) = text[skip(text)..].split_first()?;
    let end = text.iter().position(|octet| octet == quote)?;
    let is_quote = matches!(quote, b'"' | b'\'');
    markup_encoding(
        text.get(..end)
            .filter(|text| is_quote && !text.iter().any(blank))?,
    )
}

/// What a `<meta>` declares.
fn declared_by(tag: &Tag<'_>) -> Option<&'static Encoding> {
    if tag.kind != super::tag::Kind::Start || !tag.is("meta") {
        return None;
    }
    let value = |name| first(tag.attributes(), name);
    if let Some(label) = value(b"charset".as_slice()) {
        return markup_encoding(label);
    }
    let pragma = value(b"http-equiv")?;
    let content = value(b"content")?;
    let label = label_in(content)?;
    markup_encoding(label).filter(|_| pragma.eq_ignore_ascii_case(b"content-type"))
}

fn first<'a>(mut attributes: Attributes<'a>, name: &[u8]) -> Option<&'a [u8]> {
    let found = attributes.find(|(own, _)| own.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value)
}

/// The label in `text/html; charset=...` (HTML standard, 2.6.5: "extracting a
/// character encoding from a meta element").
fn label_in(content: &[u8]) -> Option<&[u8]> {
    let lower = content.to_ascii_lowercase();
    let mut at = 0;
    loop {
        at += memmem::find(&lower[at..], b"charset")? + b"charset".len();
        if let [b'=', value @ ..] = content[at..].trim_ascii_start() {
            let value = value.trim_ascii_start();
            return match value {
                [quote @ (b'"' | b'\''), quoted @ ..] => {
                    Some(&quoted[..memchr::memchr(*quote, quoted)?])
                }
                bare => {
                    let ends = |octet: &u8| octet.is_ascii_whitespace() || *octet == b';';
                    let end = bare.iter().position(ends).unwrap_or(bare.len());
                    Some(&bare[..end])
                }
            };
        }
    }
}

/// The encoding that a declaration in markup means: markup that can be read is
/// not in UTF-16.
fn markup_encoding(label: &[u8]) -> Option<&'static Encoding> {
    let encoding = Encoding::for_label(label)?;
    if encoding == UTF_16LE || encoding == UTF_16BE {
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
        assert_eq!(Label::of(Some(" UTF8 ")), Label::Known(UTF_8));
        assert_eq!(Label::of(Some("utf-16")), Label::Known(UTF_16LE));
        assert_eq!(
            Label::of(Some("x-user-defined")),
            Label::Known(X_USER_DEFINED)
        );
        assert_eq!(Label::of(Some("ibm866")), Label::Known(encoding_rs::IBM866));
        assert_eq!(Label::of(None), Label::Missing);
        assert_eq!(Label::of(Some("")), Label::Missing);
        assert_eq!(Label::of(Some("cp850")), Label::Unknown);
    }

    // Ours.
    #[test]
    fn what_nobody_decodes_is_unreadable() {
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
            assert_eq!(Label::of(Some(label)), Label::Unreadable, "{label}");
        }
    }

    #[test]
    fn markup_begins_with_an_angle() {
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
                assert_eq!(declared($text.as_bytes()), $encoding);
            }
        )*};
    }

    // HTML standard, 13.2.3.2.
    declarations! {
        a_meta_declares: "<p><META a CHARSET = 'shift_jis'>" is Some(SHIFT_JIS);
        a_pragma_declares: "<meta content='text/html; charset=\"sjis\"' http-equiv=Content-Type>" is Some(SHIFT_JIS);
        another_pragma_does_not: "<meta http-equiv=refresh content='charset=sjis'>" is None;
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
    fn a_mark_counts_before_a_label_and_a_declaration_behind_it() {
        let known = Label::Known(SHIFT_JIS);
        for (start, label, signature) in [
            (
                b"\xEF\xBB\xBFx".as_slice(),
                known,
                Signature::Mark(UTF_8, 3),
            ),
            (b"\xFF\xFE", known, Signature::Mark(UTF_16LE, 2)),
            (b"\xEF\xBB", known, Signature::Begun),
            (b"\xEF\xBBx", known, Signature::None),
            (
                b"<\0?\0x\0m\0",
                Label::Missing,
                Signature::Declaration(UTF_16LE),
            ),
            (
                b"\0<\0?\0x\0m",
                Label::Unknown,
                Signature::Declaration(UTF_16BE),
            ),
            (b"\0<\0?\0x\0m", known, Signature::None),
            (b"<\0?", Label::Missing, Signature::Begun),
            (b"<", known, Signature::None),
            (b"<h", Label::Missing, Signature::None),
        ] {
            assert_eq!(Signature::of(start, label), signature, "{start:?}");
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
