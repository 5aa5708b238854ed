//! HTML tokenizer: splits a page that grows into tags and the text between them.
//!
//! HTML standard, section 13.2.5, as far as it determines the boundaries of tokens:
//! comments and doctypes are skipped; character references and encodings are left to
//! the caller. As in the standard, the tokenizer does not know which elements contain
//! text: its caller says so after the start tag, with [`Tokenizer::enter_text`].

use memchr::{memchr, memchr_iter, memchr2};

use super::tag::{self, Tag, TagReader};

/// Piece of a page.
#[derive(Debug)]
pub(super) enum HtmlToken<'a> {
    Tag(Tag<'a>),
    /// Text outside of tags. It may be split into several tokens, but never inside a
    /// character reference.
    Text(&'a [u8]),
    /// Content of an element that contains text, in one token or several.
    ElementText(&'a [u8]),
    /// `<![CDATA[`. The text after it is read as a comment, as it is outside of SVG and
    /// MathML.
    CdataStart,
    /// Part of a comment or a doctype, or `</>`.
    Skipped,
}

/// Splits a page into tokens.
#[derive(Debug, Default)]
pub(super) struct Tokenizer {
    state: TokenizerState,
    /// Reader of the tag that has not ended, if the page ends inside one.
    tag: TagReader,
}

#[derive(Debug, Default, Clone, Copy)]
enum TokenizerState {
    #[default]
    Data,
    Comment,
    /// Bogus comment or doctype: both end at the next `>`.
    BogusComment,
    /// Content of the element with this name.
    ElementText(&'static str, ScriptEscape),
    Plaintext,
}

/// Escape in the content of a script (HTML standard, 13.2.5.15 to 13.2.5.31). Other
/// elements that contain text have none.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ScriptEscape {
    #[default]
    None,
    /// After `<!--`.
    Escaped,
    /// After a `<script>` inside the escape: `</script>` does not end the element.
    DoubleEscaped,
}

/// Meaning of a `<` or a `-` in the content of an element.
enum TextMark {
    Text,
    EndTag,
    /// The content continues with this escape after this number of bytes.
    Escape(ScriptEscape, usize),
}

impl Tokenizer {
    /// Reads the content of the element `name` as text. Its start tag was the previous
    /// token.
    pub(super) fn enter_text(&mut self, name: &'static str) {
        self.state = match name {
            "plaintext" => TokenizerState::Plaintext,
            _ => TokenizerState::ElementText(name, ScriptEscape::None),
        };
    }

    /// Reads the token at the start of `text`. Returns it with its length.
    ///
    /// Returns `None` if the token does not end in `text`: the next call must pass the
    /// same bytes and more after them.
    pub(super) fn read<'a>(&mut self, text: &'a [u8]) -> Option<(HtmlToken<'a>, usize)> {
        if text.is_empty() {
            return None;
        }
        match self.state {
            TokenizerState::Data => self.read_data(text),
            TokenizerState::Comment => self.read_comment(text),
            TokenizerState::BogusComment => Some(self.read_bogus_comment(text)),
            TokenizerState::ElementText(name, escape) => self.read_element_text(text, name, escape),
            TokenizerState::Plaintext => Some((HtmlToken::ElementText(text), text.len())),
        }
    }

    fn read_data<'a>(&mut self, text: &'a [u8]) -> Option<(HtmlToken<'a>, usize)> {
        let length = match text {
            [b'<', ..] => return self.read_markup(text),
            [b'&', after @ ..] => 1 + reference_length(after)?,
            // A line break between two tags of a head.
            [_, b'<', ..] => 1,
            _ => memchr2(b'<', b'&', text).unwrap_or(text.len()),
        };
        Some((HtmlToken::Text(&text[..length]), length))
    }

    /// Reads markup that begins with `<` (13.2.5.6, tag open state).
    fn read_markup<'a>(&mut self, text: &'a [u8]) -> Option<(HtmlToken<'a>, usize)> {
        match text {
            [_] | [_, b'/'] => None,
            [_, b'/', b'>', ..] => Some((HtmlToken::Skipped, 3)),
            [_, b'!', declaration @ ..] => self.read_declaration(declaration),
            [_, b'/', letter, ..] | [_, letter, ..] if letter.is_ascii_alphabetic() => {
                let tag = self.tag.read(text)?;
                Some((HtmlToken::Tag(tag), tag.text.len()))
            }
            [_, b'/' | b'?', ..] => {
                self.state = TokenizerState::BogusComment;
                Some((HtmlToken::Skipped, 2))
            }
            _ => Some((HtmlToken::Text(&text[..1]), 1)),
        }
    }

    /// Reads markup that begins with `<!` (13.2.5.42, markup declaration open state).
    fn read_declaration(&mut self, text: &[u8]) -> Option<(HtmlToken<'static>, usize)> {
        const OPEN: usize = b"<!".len();
        let (token, length) = match text {
            // These comments end at once: no second `--` is needed.
            [b'-', b'-', b'>', ..] => (HtmlToken::Skipped, 3),
            [b'-', b'-', b'-', b'>', ..] => (HtmlToken::Skipped, 4),
            b"" | b"-" | b"--" | b"---" => return None,
            [b'-', b'-', ..] => {
                self.state = TokenizerState::Comment;
                (HtmlToken::Skipped, 2)
            }
            _ => {
                let is_cdata = begins(text, b"[CDATA[")?;
                self.state = TokenizerState::BogusComment;
                if is_cdata {
                    (HtmlToken::CdataStart, 7)
                } else {
                    (HtmlToken::Skipped, 0)
                }
            }
        };
        Some((token, OPEN + length))
    }

    fn read_comment(&mut self, text: &[u8]) -> Option<(HtmlToken<'static>, usize)> {
        let is_end = |&at: &usize| text[..at].ends_with(b"--") || text[..at].ends_with(b"--!");
        let length = if let Some(end) = memchr_iter(b'>', text).find(is_end) {
            self.state = TokenizerState::Data;
            end + 1
        } else {
            // The last three bytes stay unread, because they may be the beginning of an
            // end.
            text.len().saturating_sub(3)
        };
        (0 < length).then_some((HtmlToken::Skipped, length))
    }

    fn read_bogus_comment(&mut self, text: &[u8]) -> (HtmlToken<'static>, usize) {
        let end = memchr(b'>', text);
        if end.is_some() {
            self.state = TokenizerState::Data;
        }
        (HtmlToken::Skipped, end.map_or(text.len(), |end| end + 1))
    }

    fn read_element_text<'a>(
        &mut self,
        text: &'a [u8],
        name: &'static str,
        escape: ScriptEscape,
    ) -> Option<(HtmlToken<'a>, usize)> {
        let token = |length| (HtmlToken::ElementText(&text[..length]), length);
        let mut at = 0;
        while let Some(distance) = next_mark(&text[at..], escape) {
            at += distance;
            match text_mark(&text[at..], name, escape) {
                Some(TextMark::Text) => at += 1,
                Some(TextMark::Escape(next, length)) => {
                    self.state = TokenizerState::ElementText(name, next);
                    return Some(token(at + length));
                }
                _ if 0 < at => return Some(token(at)),
                None => return None,
                Some(TextMark::EndTag) => {
                    self.state = TokenizerState::Data;
                    return self.read_markup(text);
                }
            }
        }
        Some(token(text.len()))
    }
}

/// Bytes of a character reference that are kept together. A longer one can only be
/// padded with zeros, and is read as text.
const REFERENCE_BYTES_MAX: usize = 1024;

/// Returns the length of the character reference at the start of `text`, without its
/// `&` (13.2.5.72). `None` while the reference may continue.
fn reference_length(text: &[u8]) -> Option<usize> {
    let goes_on = |byte: &u8| *byte == b'#' || byte.is_ascii_alphanumeric();
    let beginning = text.get(..REFERENCE_BYTES_MAX).unwrap_or(text);
    let length = beginning.iter().take_while(|byte| goes_on(byte)).count();
    if length == REFERENCE_BYTES_MAX {
        return Some(length);
    }
    Some(length + usize::from(*text.get(length)? == b';'))
}

/// Returns the distance to the next byte in the content of an element that may change
/// how it is read. A dash matters only inside an escape; style sheets are full of
/// dashes.
fn next_mark(text: &[u8], escape: ScriptEscape) -> Option<usize> {
    match escape {
        ScriptEscape::None => memchr(b'<', text),
        ScriptEscape::Escaped | ScriptEscape::DoubleEscaped => memchr2(b'<', b'-', text),
    }
}

/// Reads the mark at the start of `text`, in the content of the element `name`. Returns
/// `None` while more bytes are needed to decide.
fn text_mark(text: &[u8], name: &str, escape: ScriptEscape) -> Option<TextMark> {
    let (is_mark, mark) = match (text, escape) {
        ([b'-', ..], _) => (
            begins(text, b"-->"),
            TextMark::Escape(ScriptEscape::None, b"-->".len()),
        ),
        ([_, b'/', tag @ ..], ScriptEscape::DoubleEscaped) => (
            begins_with_name(tag, name),
            TextMark::Escape(ScriptEscape::Escaped, b"</script".len()),
        ),
        ([_, b'/', tag @ ..], _) => (begins_with_name(tag, name), TextMark::EndTag),
        // Its dashes may belong to a `-->`, so they are read again.
        ([_, b'!', ..], ScriptEscape::None) if name == "script" => (
            begins(text, b"<!--"),
            TextMark::Escape(ScriptEscape::Escaped, b"<!".len()),
        ),
        ([_, tag @ ..], ScriptEscape::Escaped) => (
            begins_with_name(tag, name),
            TextMark::Escape(ScriptEscape::DoubleEscaped, b"<script".len()),
        ),
        ([_], _) => return None,
        _ => return Some(TextMark::Text),
    };
    Some(if is_mark? { mark } else { TextMark::Text })
}

/// Reports whether `text` begins with `wanted`. `None` while it is too short to decide.
fn begins(text: &[u8], wanted: &[u8]) -> Option<bool> {
    let length = text.len().min(wanted.len());
    let may_begin = text[..length].eq_ignore_ascii_case(&wanted[..length]);
    (!may_begin || length == wanted.len()).then_some(may_begin)
}

/// Reports whether `text` begins with the name of a tag that ends there. `None` while
/// it is too short to decide.
fn begins_with_name(text: &[u8], name: &str) -> Option<bool> {
    if !begins(text, name.as_bytes())? {
        return Some(false);
    }
    Some(tag::ends_name(*text.get(name.len())?))
}

#[cfg(test)]
mod tests {
    use super::super::tag::{ElementName, TagKind};
    use super::*;

    /// Returns the texts outside of tags, and the tags, of a page pushed byte by byte.
    fn tokens(page: &str) -> Vec<String> {
        let mut tokenizer = Tokenizer::default();
        let mut tokens = Vec::new();
        let mut start = 0;
        for end in 0..=page.len() {
            while let Some((token, length)) = tokenizer.read(&page.as_bytes()[start..end]) {
                start += length;
                match token {
                    HtmlToken::Text(text) => tokens.push(String::from_utf8_lossy(text).into()),
                    HtmlToken::Tag(tag) => {
                        if tag.element == ElementName::Script && tag.kind == TagKind::Start {
                            tokenizer.enter_text("script");
                        }
                        tokens.push(String::from_utf8_lossy(tag.text).into());
                    }
                    HtmlToken::ElementText(_) | HtmlToken::CdataStart | HtmlToken::Skipped => {}
                }
            }
        }
        tokens
    }

    macro_rules! pages {
        ($($name:ident: $page:literal is $tokens:expr;)*) => {$(
            #[test]
            fn $name() {
                assert_eq!(tokens($page), $tokens);
            }
        )*};
    }

    // HTML standard, 13.2.5.
    pages! {
        everything_outside_tags_is_text: "a<1" is ["a", "<", "1"];
        an_end_tag_without_a_name_is_nothing: "</><b>" is ["<b>"];
        a_comment_ends_with_dashes: "<!-- > -> --!- --><b>" is ["<b>"];
        a_comment_ends_with_a_bang: "<!-- --!><b>" is ["<b>"];
        a_comment_may_end_at_once: "<!--><b><!---><i>" is ["<b>", "<i>"];
        a_bang_at_the_start_ends_no_comment: "<!--!>--><b><!---!>--><i>" is ["<b>", "<i>"];
        a_doctype_ends_with_any_angle_bracket: "<!DOCTYPE a '>'" is ["'"];
        others_are_bogus_comments: "<?a?></ a><!a><![CDATA[a>b" is ["b"];
        a_script_ends_with_its_tag_alone: "<script></b></scriptx></SCRIPT a><b>" is ["<script>", "</SCRIPT a>", "<b>"];
        an_escape_does_not_hide_its_end: "<script><!-- </script><b>" is ["<script>", "</script>", "<b>"];
        a_script_in_an_escape_hides_its_end: "<script><!--<script></script></script>" is ["<script>", "</script>"];
        an_escape_ends: "<script><!--<script>--></script><b>" is ["<script>", "</script>", "<b>"];
        an_escape_may_end_at_once: "<script><!--><script></script><b>" is ["<script>", "</script>", "<b>"];
    }
}
