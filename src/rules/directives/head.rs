//! Where the head of a page ends, and the `<meta>` elements in it.
//!
//! HTML standard, 13.2.6: the head may be implied, and goes on until something
//! appears that only a body can hold; `</head>` by itself does not end it for
//! a meta. Tokens come from `html`; octets and encodings are not known here.

use super::reference;
use super::segment;

/// A `<meta>` element that restricts something, its references decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// The attribute `name`, as written: which crawler is meant.
    pub name: String,
    /// The attribute `content`, as written.
    pub content: String,
}

/// Which elements count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Those in the head.
    Head,
    /// All but those inside a template: the text of a `<noscript>`.
    All,
}

/// A start tag, as far as it matters.
#[derive(Debug)]
pub(super) struct Tag {
    /// In lower case.
    pub(super) name: String,
    /// The attributes `name` and `content` of a meta, not decoded.
    pub(super) meta: Option<(String, String)>,
}

/// How a piece of text is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    /// Text of the page, with references.
    Data,
    /// The content of an element that holds no tags but may hold scripts,
    /// styles, or the markup of a `<noscript>`.
    Raw,
    /// The content of a title, a script.
    Other,
}

/// Follows the tokens of a page to the end of its head.
#[derive(Debug)]
pub(super) struct Head {
    extent: Extent,
    is_over: bool,
    /// Templates open; what they hold is not part of the page.
    templates: usize,
    noscript: Noscript,
    /// The texts of the `<noscript>` elements seen.
    pub(super) noscripts: Vec<String>,
    /// The metas that restrict something, each once.
    pub(super) metas: Vec<Meta>,
    /// Octets between the last token seen and the next: end tags alone.
    pub(super) gap: Vec<u8>,
}

/// Where the scan stands towards a `<noscript>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noscript {
    Outside,
    Opened,
    Inside,
}

impl Head {
    /// Different metas kept of one page. Real pages have five at most.
    pub(super) const METAS_MAX: usize = 256;

    pub(super) fn new(extent: Extent) -> Self {
        Self {
            extent,
            is_over: false,
            templates: 0,
            noscript: Noscript::Outside,
            noscripts: Vec::new(),
            metas: Vec::new(),
            gap: Vec::new(),
        }
    }

    /// Whether the head was seen to end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether the page has more metas than are kept.
    pub(super) fn is_full(&self) -> bool {
        Self::METAS_MAX <= self.metas.len()
    }

    pub(super) fn start_tag(&mut self, tag: Tag) {
        self.noscript = Noscript::Outside;
        if tag.name == "template" {
            self.templates += 1;
        }
        if 0 < self.templates || self.is_over {
            return;
        }
        match tag.name.as_str() {
            "meta" => self.keep(tag.meta),
            "noscript" => self.noscript = Noscript::Opened,
            name => self.is_over = self.extent == Extent::Head && !may_stand_in_head(name),
        }
    }

    pub(super) fn text(&mut self, text: &str, kind: Text) {
        if 0 < self.templates || self.is_over || text.is_empty() {
            return;
        }
        match kind {
            Text::Data => {
                let is_blank = text.bytes().all(|octet| octet.is_ascii_whitespace());
                self.is_over = self.extent == Extent::Head && !is_blank;
            }
            Text::Raw => self.noscript_text(text),
            Text::Other => {}
        }
    }

    /// Reads the end tags that stand between two tokens, and forgets them.
    pub(super) fn close_gap(&mut self) {
        let gap = std::mem::take(&mut self.gap);
        let mut rest = gap.as_slice();
        while let Some((name, behind)) = end_tag(rest) {
            self.end_tag(name);
            rest = behind;
        }
    }

    fn end_tag(&mut self, name: &[u8]) {
        if name.eq_ignore_ascii_case(b"template") {
            self.templates = self.templates.saturating_sub(1);
            return;
        }
        let opens_body = [b"body".as_slice(), b"html", b"br"];
        let opens_body = opens_body.iter().any(|it| name.eq_ignore_ascii_case(it));
        if self.extent == Extent::Head && self.templates == 0 && opens_body {
            self.is_over = true;
        }
    }

    /// Collects the content of a `<noscript>`. Where scripts do not run it is
    /// part of the head; where they do it is text. Both readings count, so its
    /// metas do, and nothing in it ends the head.
    fn noscript_text(&mut self, text: &str) {
        match (self.noscript, self.noscripts.last_mut()) {
            (Noscript::Outside, _) => {}
            (Noscript::Inside, Some(open)) => open.push_str(text),
            (Noscript::Opened, _) | (Noscript::Inside, None) => {
                self.noscripts.push(text.to_owned());
                self.noscript = Noscript::Inside;
            }
        }
    }

    fn keep(&mut self, meta: Option<(String, String)>) {
        let Some((name, content)) = meta else { return };
        let name = reference::decoded(&name).into_owned();
        let content = reference::decoded(&content).into_owned();
        // The descriptions and keywords of a page would fill the bound.
        if segment::read_content(&content).is_empty() {
            return;
        }
        self.keep_once(Meta { name, content });
    }

    pub(super) fn keep_once(&mut self, meta: Meta) {
        if !self.is_full() && !self.metas.contains(&meta) {
            self.metas.push(meta);
        }
    }
}

/// Whether an element of this name leaves the head open.
fn may_stand_in_head(name: &str) -> bool {
    let names = [
        "base", "basefont", "bgsound", "link", "meta", "title", "style", "script", "noframes",
        "noscript", "template", "head", "html",
    ];
    names.contains(&name)
}

/// The name of the next end tag, and what stands behind the tag.
fn end_tag(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = text.windows(2).position(|pair| pair == b"</")?;
    let tag = &text[start + 2..];
    let ends_name = |octet: &u8| octet.is_ascii_whitespace() || matches!(octet, b'/' | b'>');
    let end = tag.iter().position(ends_name).unwrap_or(tag.len());
    let (name, attributes) = tag.split_at(end);
    Some((name, behind_attributes(attributes)))
}

/// What stands behind a tag. A `>` in a quoted value does not end it.
fn behind_attributes(text: &[u8]) -> &[u8] {
    let mut rest = text;
    let mut before = b' ';
    while let Some((&octet, behind)) = rest.split_first() {
        rest = behind;
        match octet {
            b'>' => return rest,
            b'"' | b'\'' if before == b'=' => {
                let end = rest.iter().position(|&other| other == octet);
                rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
                before = b' ';
            }
            _ if octet.is_ascii_whitespace() => {}
            _ => before = octet,
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(head: &mut Head, name: &str) {
        let meta = (name == "meta").then(|| ("robots".into(), "noindex".into()));
        let name = name.into();
        head.start_tag(Tag { name, meta });
    }

    fn close(head: &mut Head, tags: &str) {
        head.gap.extend_from_slice(tags.as_bytes());
        head.close_gap();
    }

    // HTML standard, 13.2.6.4.4 and 13.2.6.4.6.
    #[test]
    fn end_tags_that_open_a_body_end_the_head() {
        for tag in ["</br>", "</BODY >", "</html a='>'>", "</p a='</x>'></br>"] {
            let mut head = Head::new(Extent::Head);
            close(&mut head, tag);
            assert!(head.is_over(), "{tag}");
        }
    }

    #[test]
    fn other_end_tags_do_not() {
        for tag in [
            "</head>",
            "</p>",
            "</>",
            "</p a=\"</br>\">",
            "</title></style>",
        ] {
            let mut head = Head::new(Extent::Head);
            close(&mut head, tag);
            assert!(!head.is_over(), "{tag}");
        }
    }

    #[test]
    fn what_a_template_holds_does_not_count() {
        let mut head = Head::new(Extent::Head);
        for name in ["template", "template", "div", "meta"] {
            open(&mut head, name);
        }
        head.text("words", Text::Data);
        close(&mut head, "</br></template>");
        open(&mut head, "meta");
        assert!(!head.is_over() && head.metas.is_empty());
        close(&mut head, "</template>");
        open(&mut head, "meta");
        assert_eq!(head.metas.len(), 1);
    }

    #[test]
    fn a_meta_is_kept_once() {
        let mut head = Head::new(Extent::Head);
        open(&mut head, "meta");
        open(&mut head, "meta");
        assert_eq!(head.metas.len(), 1);
    }

    #[test]
    fn a_noscript_text_that_comes_in_pieces_is_one() {
        let mut head = Head::new(Extent::Head);
        for _ in 0..2 {
            open(&mut head, "noscript");
            head.text("<me", Text::Raw);
            head.text("ta>", Text::Raw);
        }
        open(&mut head, "style");
        head.text("p{}", Text::Raw);
        assert_eq!(head.noscripts, ["<meta>", "<meta>"]);
    }
}
