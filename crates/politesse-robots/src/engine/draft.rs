//! Draft of an index: collects rules with their ranks, in every form in which they are
//! compared.
//!
//! Does not know how the index is arranged.

use super::builder::IndexBuilder;
use super::canonical::{Buffer, has_folding};
use super::dialect::{AllowLines, IndexPages, Precedence, Traits};
use super::index::Index;
use super::parsed_file::ParsedFile;
use super::rank::{BytePlace, IndexEntry, RuleBytes, RuleRank};
use super::repair::FurtherForms;
use super::shape::{Shape, folder_of_index};
use super::token::{Token, TokenKind};

/// Collection of rules for an index.
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
            // Enough for the median group.
            entries: Vec::with_capacity(16),
            extra: Vec::new(),
            rewritten: Buffer::new(),
            reaches_query: false,
            escapes_reserved: false,
        }
    }

    #[inline]
    pub(super) fn take(&mut self, at: u32, token: Token) {
        // The consensus of 1994 has no Allow lines.
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

    /// Adds the further forms of a rule. Each form has the rank of the rule.
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

    /// Returns the forms of a rule's value other than the written one.
    pub(super) fn further_forms(&self, token: Token) -> FurtherForms {
        let (value, source) = (self.file.value(token), &self.file.source);
        self.traits.further_forms(token.kind(), value, source)
    }

    /// Adds a form of a rule that need not occur in the text of the file.
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

    /// Adds a form of a rule with the escapes of its reserved bytes decoded.
    pub(super) fn take_folded(&mut self, rank: RuleRank, form: &[u8]) {
        if let Some(shape) = Shape::folded(form, self.traits, &mut self.rewritten) {
            self.push(rank, 0, shape);
        }
    }

    /// Returns the rank of a rule. It depends on the value as written or, if that matches
    /// no path, on the first of the other `forms` that matches some. Returns `None` if no
    /// form matches any path.
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

    /// Adds an entry. Its bytes begin at `start` in the text, or are in `self.rewritten` if
    /// they had to be rewritten.
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

    /// Adds the rule for the folder that robots.cc derives from an Allow for an index page.
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

    /// Returns the rank of a rule with this shape.
    fn rank(&self, at: u32, token: Token, shape: &Shape) -> RuleRank {
        let allows = token.kind() == TokenKind::Allow;
        let weight = match self.traits.order {
            // Always fits: a rewritten text has at most 96 MiB.
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
