//! What is open inside a template, as far as it decides how the page goes on to
//! be read: templates, and SVG or MathML inside them.
//!
//! HTML standard, 13.2.6.4.13 (tables' columns), 13.2.6.4.16 (templates) and
//! 13.2.6.5 (foreign content). Elements of HTML are not followed: where the
//! standard's answer depends on them, [`Step::Doubt`] says so. These are the
//! only doubts there are, and no page but a malformed one has them:
//!
//! - HTML inside SVG or MathML (`<svg><desc><p>`),
//! - an end tag there that closes nothing of it (`<div><svg></div>`),
//! - a nest deeper than [`Nest::DEPTH_MAX`].

use smallvec::SmallVec;

use super::tag::{Ending, Kind, Tag};

/// The templates open, and the foreign elements open in the innermost.
#[derive(Debug, Default)]
pub(super) struct Nest {
    templates: Vec<Template>,
    foreign: Vec<Foreign>,
}

/// How a template is read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Template {
    /// Nothing has decided it yet.
    Fresh,
    /// Its first element was a `<col>`: all but columns and templates is
    /// ignored.
    Columns,
    Any,
}

/// An open element of SVG or MathML.
#[derive(Debug)]
struct Foreign {
    /// In lower case.
    name: SmallVec<[u8; 16]>,
    language: Language,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Svg,
    MathMl,
}

/// What a tag means for the reading of what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It is an element of HTML: a `<style>` holds text.
    Html,
    /// It is none, or ignored: a `<style>` holds markup.
    Markup,
    /// It cannot be known.
    Doubt,
}

impl Nest {
    /// Templates, or foreign elements, that may be open at once.
    pub(super) const DEPTH_MAX: usize = 512;

    /// Whether nothing is open.
    pub(super) fn is_empty(&self) -> bool {
        self.templates.is_empty() && self.foreign.is_empty()
    }

    /// Whether SVG or MathML is open.
    pub(super) fn is_foreign(&self) -> bool {
        !self.foreign.is_empty()
    }

    /// Whether a template is open.
    pub(super) fn is_template(&self) -> bool {
        !self.templates.is_empty()
    }

    pub(super) fn take(&mut self, tag: &Tag<'_>) -> Step {
        let too_deep = Self::DEPTH_MAX;
        if too_deep < self.templates.len() || too_deep < self.foreign.len() {
            return Step::Doubt;
        }
        match (tag.kind, self.foreign.is_empty()) {
            (Kind::Start, true) => self.start(tag),
            (Kind::End, true) => self.end(tag),
            (Kind::Start, false) => self.start_foreign(tag),
            (Kind::End, false) => self.end_foreign(tag),
        }
    }

    fn start(&mut self, tag: &Tag<'_>) -> Step {
        if tag.is("template") {
            self.templates.push(Template::Fresh);
            return Step::Html;
        }
        if let Some(template) = self.templates.last_mut() {
            template.start(tag);
            if *template == Template::Columns {
                return Step::Markup;
            }
        }
        let language = match tag {
            tag if tag.is("svg") => Language::Svg,
            tag if tag.is("math") => Language::MathMl,
            _ => return Step::Html,
        };
        self.open(tag, language);
        Step::Markup
    }

    fn end(&mut self, tag: &Tag<'_>) -> Step {
        if tag.is("template") {
            self.templates.pop();
        }
        Step::Html
    }

    fn start_foreign(&mut self, tag: &Tag<'_>) -> Step {
        let Some(last) = self.foreign.last() else {
            return Step::Doubt;
        };
        if last.may_hold_html() {
            return Step::Doubt;
        }
        if leaves_foreign(tag) {
            self.foreign.clear();
            return self.start(tag);
        }
        let language = last.language;
        self.open(tag, language);
        Step::Markup
    }

    fn end_foreign(&mut self, tag: &Tag<'_>) -> Step {
        let closes = |open: &Foreign| open.name.eq_ignore_ascii_case(tag.name);
        if let Some(place) = self.foreign.iter().rposition(closes) {
            self.foreign.truncate(place);
            return Step::Markup;
        }
        if tag.is("template") && self.is_template() || tag.is("p") || tag.is("br") {
            self.foreign.clear();
            return self.end(tag);
        }
        Step::Doubt
    }

    fn open(&mut self, tag: &Tag<'_>, language: Language) {
        if tag.ending() != Ending::SelfClosing {
            let name = tag.name.iter().map(u8::to_ascii_lowercase).collect();
            self.foreign.push(Foreign { name, language });
        }
    }
}

impl Template {
    /// Takes in the start tag of an element it holds.
    fn start(&mut self, tag: &Tag<'_>) {
        if *self == Self::Fresh && !is_for_any_template(tag) {
            *self = match tag {
                tag if tag.is("col") => Self::Columns,
                _ => Self::Any,
            };
        }
    }
}

impl Foreign {
    /// Whether HTML may stand in it (an integration point).
    fn may_hold_html(&self) -> bool {
        let names: &[&str] = match self.language {
            Language::Svg => &["foreignobject", "desc", "title"],
            Language::MathMl => &["mi", "mo", "mn", "ms", "mtext", "annotation-xml"],
        };
        names.iter().any(|name| name.as_bytes() == &*self.name)
    }
}

/// Whether a template's content stays undecided by this element.
fn is_for_any_template(tag: &Tag<'_>) -> bool {
    let names = [
        "base", "basefont", "bgsound", "link", "meta", "noframes", "script", "style", "title",
    ];
    names.into_iter().any(|name| tag.is(name))
}

/// Whether a start tag ends foreign content, being HTML beyond doubt.
fn leaves_foreign(tag: &Tag<'_>) -> bool {
    const NAMES: [&str; 44] = [
        "b",
        "big",
        "blockquote",
        "body",
        "br",
        "center",
        "code",
        "dd",
        "div",
        "dl",
        "dt",
        "em",
        "embed",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "head",
        "hr",
        "i",
        "img",
        "li",
        "listing",
        "menu",
        "meta",
        "nobr",
        "ol",
        "p",
        "pre",
        "ruby",
        "s",
        "small",
        "span",
        "strong",
        "strike",
        "sub",
        "sup",
        "table",
        "tt",
        "u",
        "ul",
        "var",
    ];
    let styles = ["color", "face", "size"];
    let is_styled = || {
        let mut styles = styles.into_iter();
        styles.any(|name| tag.attribute(name).is_some())
    };
    NAMES.into_iter().any(|name| tag.is(name)) || tag.is("font") && is_styled()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps of these tags, and whether anything is open behind them.
    fn steps(tags: &str) -> (Vec<Step>, bool) {
        let mut nest = Nest::default();
        let mut steps = Vec::new();
        let mut rest = tags.as_bytes();
        while let Some((tag, behind)) = Tag::read(rest) {
            steps.push(nest.take(&tag));
            rest = behind;
        }
        (steps, !nest.is_empty())
    }

    macro_rules! nests {
        ($($name:ident: $tags:literal is $last:ident, $open:literal;)*) => {$(
            #[test]
            fn $name() {
                let (steps, is_open) = steps($tags);
                assert_eq!((steps.last(), is_open), (Some(&Step::$last), $open));
            }
        )*};
    }

    // HTML standard, 13.2.6.4.13, 13.2.6.4.16 and 13.2.6.5.
    nests! {
        a_template_holds_html: "<template><style>" is Html, true;
        a_template_ends: "<template><p></template>" is Html, false;
        templates_nest: "<template><template></template>" is Html, true;
        a_template_of_svg_is_none: "<template><svg><template></svg></template>" is Html, false;
        a_template_ends_what_is_open_in_it: "<template><svg><g></template>" is Html, false;
        svg_holds_markup: "<template><svg><style>" is Markup, true;
        svg_closes_itself: "<template><svg/><style>" is Html, true;
        math_in_svg_is_svg: "<template><svg><math><mi><g>" is Markup, true;
        a_paragraph_leaves_svg: "<template><svg><g><p><style>" is Html, true;
        the_end_of_a_paragraph_leaves_svg: "<template><svg></p><style>" is Html, true;
        a_styled_font_leaves_svg: "<template><svg><font SIZE=1><style>" is Html, true;
        another_font_does_not: "<template><svg><font x><style>" is Markup, true;
        html_in_svg_is_a_doubt: "<template><svg><title><b>" is Doubt, true;
        html_in_math_is_a_doubt: "<template><math><mi><b>" is Doubt, true;
        a_title_of_svg_ends: "<template><svg><title></title><style>" is Markup, true;
        an_end_tag_of_html_in_svg_is_a_doubt: "<template><div><svg></div>" is Doubt, true;
        columns_ignore_a_style: "<template><col><style>" is Markup, true;
        columns_ignore_svg: "<template><col><svg></template>" is Html, false;
        columns_hold_templates: "<template><col><template><style>" is Html, true;
        columns_come_first_or_not_at_all: "<template><p><col><style>" is Html, true;
        metas_may_stand_before_columns: "<template><meta><col><style>" is Markup, true;
    }

    #[test]
    fn a_deep_nest_is_a_doubt() {
        let (steps, _) = steps(&"<template>".repeat(Nest::DEPTH_MAX + 2));
        assert_eq!(steps.last(), Some(&Step::Doubt));
    }
}
