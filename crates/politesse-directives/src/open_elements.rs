//! Open templates, and open elements of SVG or MathML. They decide how the rest of a
//! page is read and whether a meta counts.
//!
//! HTML standard, sections 13.2.6.4.13 (columns of tables), 13.2.6.4.16 (templates) and
//! 13.2.6.5 (foreign content). HTML elements are not tracked. If the standard's result
//! depends on them, the reading is [`TagReading::Ambiguous`]. Only malformed pages lead
//! to that:
//!
//! - HTML inside SVG or MathML (`<svg><desc><p>`),
//! - an end tag there that closes none of its elements (`<div><svg></div>`),
//! - more than [`OpenElements::DEPTH_MAX`] open elements.

use smallvec::SmallVec;

use super::tag::{ElementName, Tag, TagKind};

/// Open templates, and the foreign elements open in the innermost one.
#[derive(Debug, Default)]
pub(super) struct OpenElements {
    /// Kinds of content of the open templates, the innermost last.
    templates: Vec<TemplateContent>,
    /// Open elements of SVG or MathML, the innermost last.
    foreign: Vec<ForeignElement>,
}

/// Kind of content in a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TemplateContent {
    /// No element has decided the kind yet.
    Undecided,
    /// The first element was a `<col>`: everything but columns and templates is
    /// ignored.
    Columns,
    /// Any other content.
    Any,
}

/// Open element of SVG or MathML.
#[derive(Debug)]
struct ForeignElement {
    /// Name in lower case.
    name: SmallVec<[u8; 16]>,
    /// Language that the element belongs to.
    language: ForeignLanguage,
}

/// Language other than HTML that a page may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForeignLanguage {
    Svg,
    MathMl,
}

/// Reading of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TagReading {
    /// As a tag of HTML: a `<style>` holds text.
    Html,
    /// As a tag of SVG or MathML, or ignored: a `<style>` contains markup.
    Markup,
    /// As one or the other, depending on elements that are not tracked.
    Ambiguous,
}

impl OpenElements {
    /// Maximum number of templates, or foreign elements, that may be open at once.
    pub(super) const DEPTH_MAX: usize = 512;

    /// Reports whether nothing is open.
    pub(super) fn is_empty(&self) -> bool {
        self.templates.is_empty() && self.foreign.is_empty()
    }

    /// Reports whether an element of SVG or MathML is open.
    pub(super) fn is_in_foreign(&self) -> bool {
        !self.foreign.is_empty()
    }

    /// Reports whether a template is open.
    pub(super) fn has_template(&self) -> bool {
        !self.templates.is_empty()
    }

    /// Opens or closes elements according to the next tag of the page.
    pub(super) fn read(&mut self, tag: &Tag<'_>) -> TagReading {
        if Self::DEPTH_MAX < self.templates.len().max(self.foreign.len()) {
            return TagReading::Ambiguous;
        }
        match (tag.kind, self.foreign.last()) {
            (TagKind::Start, None) => self.read_start_tag(tag),
            (TagKind::End, None) => self.read_end_tag(tag),
            (TagKind::Start, Some(last)) => {
                if last.may_hold_html() {
                    return TagReading::Ambiguous;
                }
                if leaves_foreign(tag) {
                    self.foreign.clear();
                    return self.read_start_tag(tag);
                }
                let language = last.language;
                self.open_foreign(tag, language)
            }
            (TagKind::End, Some(_)) => self.read_foreign_end_tag(tag),
        }
    }

    fn read_start_tag(&mut self, tag: &Tag<'_>) -> TagReading {
        if tag.element == ElementName::Template {
            self.templates.push(TemplateContent::Undecided);
            return TagReading::Html;
        }
        if let Some(content) = self.templates.last_mut() {
            if *content == TemplateContent::Undecided && !leaves_undecided(tag.element) {
                *content = match tag.element == ElementName::Col {
                    true => TemplateContent::Columns,
                    false => TemplateContent::Any,
                };
            }
            if *content == TemplateContent::Columns {
                return TagReading::Markup;
            }
        }
        if tag.element == ElementName::Svg {
            self.open_foreign(tag, ForeignLanguage::Svg)
        } else if tag.element == ElementName::Math {
            self.open_foreign(tag, ForeignLanguage::MathMl)
        } else {
            TagReading::Html
        }
    }

    fn read_end_tag(&mut self, tag: &Tag<'_>) -> TagReading {
        if tag.element == ElementName::Template {
            self.templates.pop();
        }
        TagReading::Html
    }

    fn read_foreign_end_tag(&mut self, tag: &Tag<'_>) -> TagReading {
        let closes = |open: &ForeignElement| open.name.eq_ignore_ascii_case(tag.name);
        if let Some(index) = self.foreign.iter().rposition(closes) {
            self.foreign.truncate(index);
            return TagReading::Markup;
        }
        let leaves_foreign = matches!(tag.element, ElementName::P | ElementName::Br);
        if leaves_foreign || tag.element == ElementName::Template && self.has_template() {
            self.foreign.clear();
            return self.read_end_tag(tag);
        }
        TagReading::Ambiguous
    }

    /// Opens an element of `language`, unless its tag closes itself.
    fn open_foreign(&mut self, tag: &Tag<'_>, language: ForeignLanguage) -> TagReading {
        if !tag.is_self_closing {
            let name = tag.name.to_ascii_lowercase().into();
            self.foreign.push(ForeignElement { name, language });
        }
        TagReading::Markup
    }
}

impl ForeignElement {
    /// Reports whether the element may contain HTML (an integration point).
    fn may_hold_html(&self) -> bool {
        let names: &[&str] = match self.language {
            ForeignLanguage::Svg => &["foreignobject", "desc", "title"],
            ForeignLanguage::MathMl => &["mi", "mo", "mn", "ms", "mtext", "annotation-xml"],
        };
        names.iter().any(|name| name.as_bytes() == &*self.name)
    }
}

/// Reports whether an element may appear in any template without deciding how the
/// template's content is read ([`TemplateContent::Undecided`]).
fn leaves_undecided(element: ElementName) -> bool {
    matches!(
        element,
        ElementName::Base
            | ElementName::Basefont
            | ElementName::Bgsound
            | ElementName::Link
            | ElementName::Meta
            | ElementName::Noframes
            | ElementName::Script
            | ElementName::Style
            | ElementName::Title
    )
}

/// Elements that are certainly HTML, and so end foreign content.
const HTML_ELEMENTS: &str = "b big blockquote body br center code dd div dl dt em embed h1 h2 h3 \
    h4 h5 h6 head hr i img li listing menu meta nobr ol p pre ruby s small span strong strike \
    sub sup table tt u ul var";

/// Reports whether a start tag ends foreign content (13.2.6.5).
fn leaves_foreign(tag: &Tag<'_>) -> bool {
    let is_styled = |(name, _): (&[u8], &[u8])| {
        let mut styles = ["color", "face", "size"].into_iter();
        styles.any(|style| name.eq_ignore_ascii_case(style.as_bytes()))
    };
    let mut names = HTML_ELEMENTS.split(' ');
    names.any(|name| tag.name.eq_ignore_ascii_case(name.as_bytes()))
        || tag.element == ElementName::Font && tag.attributes().any(is_styled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the readings of these tags, and whether anything is open after them.
    fn readings(tags: &str) -> (Vec<TagReading>, bool) {
        let mut open = OpenElements::default();
        let mut readings = Vec::new();
        let mut rest = tags.as_bytes();
        while let Some(tag) = Tag::read(rest) {
            readings.push(open.read(&tag));
            rest = &rest[tag.text.len()..];
        }
        (readings, !open.is_empty())
    }

    macro_rules! nests {
        ($($name:ident: $tags:literal is $last:ident, $open:literal;)*) => {$(
            #[test]
            fn $name() {
                let (readings, is_open) = readings($tags);
                assert_eq!((readings.last(), is_open), (Some(&TagReading::$last), $open));
            }
        )*};
    }

    // HTML standard, 13.2.6.4.13, 13.2.6.4.16 and 13.2.6.5.
    nests! {
        a_template_holds_html: "<template><style>" is Html, true;
        a_template_ends: "<template><p></template>" is Html, false;
        templates_nest: "<template><template></template>" is Html, true;
        an_svg_template_is_not_a_template: "<template><svg><template></svg></template>" is Html, false;
        a_template_ends_what_is_open_in_it: "<template><svg><g></template>" is Html, false;
        svg_holds_markup: "<template><svg><style>" is Markup, true;
        svg_closes_itself: "<template><svg/><style>" is Html, true;
        math_in_svg_is_svg: "<template><svg><math><mi><g>" is Markup, true;
        a_paragraph_leaves_svg: "<template><svg><g><p><style>" is Html, true;
        the_end_of_a_paragraph_leaves_svg: "<template><svg></p><style>" is Html, true;
        a_styled_font_leaves_svg: "<template><svg><font SIZE=1><style>" is Html, true;
        an_unstyled_font_stays_in_svg: "<template><svg><font x><style>" is Markup, true;
        html_in_svg_is_ambiguous: "<template><svg><title><b>" is Ambiguous, true;
        html_in_math_is_ambiguous: "<template><math><mi><b>" is Ambiguous, true;
        a_title_of_svg_ends: "<template><svg><title></title><style>" is Markup, true;
        an_end_tag_of_html_in_svg_is_ambiguous: "<template><div><svg></div>" is Ambiguous, true;
        columns_ignore_a_style: "<template><col><style>" is Markup, true;
        columns_ignore_svg: "<template><col><svg></template>" is Html, false;
        columns_hold_templates: "<template><col><template><style>" is Html, true;
        columns_come_first_or_not_at_all: "<template><p><col><style>" is Html, true;
        metas_may_stand_before_columns: "<template><meta><col><style>" is Markup, true;
    }

    #[test]
    fn a_deep_nest_is_ambiguous() {
        let (readings, _) = readings(&"<template>".repeat(OpenElements::DEPTH_MAX + 2));
        assert_eq!(readings.last(), Some(&TagReading::Ambiguous));
    }
}
