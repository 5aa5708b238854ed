//! Rules on their way into an index: each weighed, in every form in which it is
//! compared.

use super::builder::IndexBuilder;
use super::canonical::{Buffer, has_folding};
use super::dialect::{AllowLines, IndexPages, Precedence, Traits};
use super::index::Index;
use super::parsed_file::ParsedFile;
use super::rank::{BytePlace, IndexEntry, RuleBytes, RuleRank};
use super::repair::FurtherForms;
use super::shape::{Shape, folder_of_index};
use super::token::{Token, TokenKind};

/// Rules on their way into an index.
pub(super) struct RuleDraft<'a> {
    file: &'a ParsedFile,
    traits: &'static Traits,
    entries: Vec<IndexEntry>,
    extra: Vec<u8>,
    rewritten: Buffer,
    pub(super) reaches_query: bool,
    pub(super) escapes_reserved: bool,
}

impl<'a> RuleDraft<'a> {
    pub(super) fn new(file: &'a ParsedFile) -> Self {
        Self {
            file,
            traits: file.traits(),
            // The median group has fewer rules.
            entries: Vec::with_capacity(16),
            extra: Vec::new(),
            rewritten: Buffer::new(),
            reaches_query: false,
            escapes_reserved: false,
        }
    }

    #[inline]
    pub(super) fn take(&mut self, at: u32, token: Token) {
        // The consensus of 1994 knows no Allow.
        if self.traits.allow == AllowLines::Ignored && token.kind() == TokenKind::Allow {
            return;
        }
        let value = self.file.value(token);
        let shape = Shape::of(value, self.traits, &mut self.rewritten);
        // A value that is canonical as written has no other form.
        let may_have_forms = !self.rewritten.is_empty() || shape.is_none();
        let rank = shape.as_ref().map(|shape| self.rank(at, token, shape));
        if let Some((rank, shape)) = rank.zip(shape) {
            self.push(rank, token.start, shape);
        }
        if may_have_forms && !value.is_empty() {
            self.take_forms(rank, at, token);
        }
        if self.traits.index_pages == IndexPages::AllowFolder && token.kind() == TokenKind::Allow {
            self.take_folder(at, token);
        }
    }

    /// Takes the further forms of a rule, each of which counts as much as the rule.
    #[cold]
    fn take_forms(&mut self, written: Option<RuleRank>, at: u32, token: Token) {
        let forms = self.further_forms(token);
        if forms.is_empty() {
            return;
        }
        if let Some(rank) = written.or_else(|| self.rank_of(at, token, &forms)) {
            for form in &forms {
                self.take_form(rank, form);
            }
        }
    }

    /// Returns the forms of a rule's value besides the written one.
    pub(super) fn further_forms(&self, token: Token) -> FurtherForms {
        let (value, source) = (self.file.value(token), &self.file.source);
        self.traits.further_forms(token.kind(), value, source)
    }

    /// Takes a form of a rule that may not stand in the text.
    pub(super) fn take_form(&mut self, rank: RuleRank, form: &[u8]) {
        if let Some(shape) = Shape::of(form, self.traits, &mut self.rewritten) {
            if self.rewritten.is_empty() {
                let length = shape.head + shape.tail;
                self.rewritten
                    .extend_from_slice(form.get(..length).unwrap_or(form));
            }
            self.push(rank, 0, shape);
        }
    }

    /// Takes a form of a rule with the escapes of its reserved bytes decoded.
    pub(super) fn take_folded(&mut self, rank: RuleRank, form: &[u8]) {
        if let Some(shape) = Shape::folded(form, self.traits, &mut self.rewritten) {
            self.push(rank, 0, shape);
        }
    }

    /// Returns how much a rule counts: by its value as written, or, if that matches
    /// no path, by the first of its other `forms` that does. `None` if none does.
    pub(super) fn rank_of(
        &mut self,
        at: u32,
        token: Token,
        forms: &FurtherForms,
    ) -> Option<RuleRank> {
        let written = std::iter::once(self.file.value(token));
        let mut all = written.chain(forms.iter().map(|form| &form[..]));
        let shape = all.find_map(|form| Shape::of(form, self.traits, &mut self.rewritten))?;
        Some(self.rank(at, token, &shape))
    }

    /// Puts in a rule whose bytes begin at `start` in the text, unless they
    /// were rewritten.
    #[inline]
    fn push(&mut self, rank: RuleRank, start: u32, shape: Shape) {
        let place = if self.rewritten.is_empty() {
            BytePlace::in_text(start)
        } else {
            self.escapes_reserved |= has_folding(&self.rewritten);
            let place = BytePlace::in_extra(self.extra.len());
            self.extra.extend_from_slice(&self.rewritten);
            place
        };
        self.reaches_query |= shape.reaches_query;
        self.entries.push(IndexEntry { rank, place, shape });
    }

    /// Adds the rule that robots.cc makes of an Allow for an index page.
    fn take_folder(&mut self, at: u32, token: Token) {
        let mut value = Buffer::new();
        let escapes = self.traits.escapes;
        escapes.canonical_rule(self.file.value(token), &mut value);
        let Some(folder) = folder_of_index(&value) else {
            return;
        };
        let anchored = [folder, b"$"].concat();
        if let Some(shape) = Shape::of(&anchored, self.traits, &mut self.rewritten) {
            if self.rewritten.is_empty() {
                self.rewritten.extend_from_slice(folder);
            }
            self.push(self.rank(at, token, &shape), token.start, shape);
        }
    }

    /// Returns how much a rule counts.
    fn rank(&self, at: u32, token: Token, shape: &Shape) -> RuleRank {
        let allows = token.kind() == TokenKind::Allow;
        let weight = match self.traits.order {
            // Rewritten, a text has at most 96 MiB.
            Precedence::Longest => {
                let length = u32::try_from(shape.length).unwrap_or(u32::MAX >> 1);
                length << 1 | u32::from(allows)
            }
            Precedence::Explicit if shape.is_explicit() => 2 + u32::from(allows),
            Precedence::FirstInFile | Precedence::Explicit => 1,
        };
        RuleRank::new(weight, at)
    }

    pub(super) fn index(self) -> Index {
        let bytes = RuleBytes {
            text: &self.file.text,
            extra: &self.extra,
        };
        let index = IndexBuilder::new(bytes, &self.entries).build(self.traits.escapes);
        index.with_extra(self.extra)
    }
}
