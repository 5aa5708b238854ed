//! Collector of what one response says to one crawler, statement by statement.
//!
//! Several statements add up, so that no reading grants what another forbids,
//! and a directive for a named crawler never lifts one for all
//! (draft-illyes-repext-03, section 3.1). Does not know which part of a
//! response is read.

use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use sfv::Key;

use super::annotation::{
    Annotation, AnnotationState, CrawlerDirectives, PartialReason, SavedDirectives,
};
use super::context::{AnnotationContext, BothFields};
use super::directive_set::{Directive, DirectiveSource};
use super::field_line::FieldLine;
use super::findings::{Meta, Notice};
use super::preferences::TdmRule;
use super::quotations::{self, Quotations};
use super::segment::{self, Scope};
use super::vocabulary::Restriction;

/// Collects what one response says to one crawler.
#[derive(Debug)]
pub struct DirectiveCollector<'a> {
    context: AnnotationContext<'a>,
    directives: CrawlerDirectives,
    quotations: Quotations,
    /// Rule of the origin's TDM file.
    tdm_rule: Option<&'a TdmRule>,
    state: AnnotationState,
    /// Time at which restored directives were sent.
    restored_from: Option<Timestamp>,
    /// Bytes of fields that may still be read.
    bytes_left: usize,
    /// Field lines read so far.
    lines: usize,
}

impl<'a> DirectiveCollector<'a> {
    /// Field lines read of one response; more make it partial.
    pub const LINES_MAX: usize = 64;

    /// Bytes read of all field lines of one response, or one line of the
    /// longest that is read; more make it partial.
    pub const FIELD_BYTES_MAX: usize = 32 * 1024;

    /// Begins with a response that says nothing.
    pub fn new(context: AnnotationContext<'a>) -> Self {
        Self {
            context,
            directives: CrawlerDirectives::default(),
            quotations: Quotations::default(),
            tdm_rule: None,
            state: AnnotationState::Complete,
            restored_from: None,
            bytes_left: Self::FIELD_BYTES_MAX.max(context.limits.field_limit),
            lines: 0,
        }
    }

    /// Adds all fields of a response.
    pub fn add_fields(&mut self, fields: &HeaderMap) {
        // Most responses have none of them, and this is done for each.
        if !fields.keys().any(quotations::is_read) {
            return;
        }
        let ignores_old = self.context.limits.both_fields == BothFields::RobotsTag
            && fields.contains_key("robots-tag");
        for (name, value) in fields {
            self.quotations.field(name, value);
            if !ignores_old || name != "x-robots-tag" {
                self.add_field(name.as_str(), value.as_bytes());
            }
        }
        self.directives.preferences.add_fields(fields);
    }

    /// Adds a field line, as received. Fields of other names say nothing.
    ///
    /// Of each line as many bytes are read as the limit says, so that a long
    /// one does not silence the others, and of all together
    /// [`FIELD_BYTES_MAX`](Self::FIELD_BYTES_MAX).
    pub fn add_field(&mut self, name: &str, value: &[u8]) {
        let source = if name.eq_ignore_ascii_case("robots-tag") {
            DirectiveSource::RobotsTag
        } else if name.eq_ignore_ascii_case("x-robots-tag") {
            DirectiveSource::XRobotsTag
        } else {
            return;
        };
        if self.lines == Self::LINES_MAX {
            return self.miss(PartialReason::FieldLimit);
        }
        self.lines += 1;
        let limit = self.context.limits.field_limit.min(self.bytes_left);
        let line = FieldLine::within(limit, value);
        // The whole line is counted, not what was read of it: a sender of long
        // lines gets no more of them read.
        self.bytes_left = self.bytes_left.saturating_sub(value.len());
        let content = line.read();
        for statement in content.statements {
            self.add(statement.scope, statement.restriction, source);
        }
        if line.is_cut() {
            self.miss(PartialReason::FieldLimit);
        }
        if content.suspect.is_some_and(|scope| !self.binds(scope)) {
            self.miss(PartialReason::Joined);
        }
    }

    /// Adds a `<meta>` element of the head.
    pub fn add_meta(&mut self, meta: &Meta) {
        self.quote_meta(meta);
        let scope = Scope::of_meta(&meta.name);
        for restriction in segment::read_content(&meta.content) {
            self.add(scope, restriction, DirectiveSource::Meta);
        }
    }

    /// Adds a `<meta>` element after the head. It is shown, and not in force
    /// (draft-illyes-repext-03, section 3.2).
    pub fn add_meta_outside(&mut self, meta: &Meta) {
        self.quote_meta(meta);
        if self.binds(Scope::of_meta(&meta.name)) {
            for restriction in segment::read_content(&meta.content) {
                let directive = Directive::new(restriction, DirectiveSource::Meta);
                self.directives.outside.add(directive);
            }
        }
    }

    /// Adds a field with the name of the annotation, which no origin may use: it
    /// says nothing, and is evidence.
    pub fn add_forged(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.quotations.forged(name, value);
    }

    /// Adds the rule of the origin's TDM file that binds the path of the request.
    pub fn add_tdm_rule(&mut self, rule: &'a TdmRule) {
        self.tdm_rule = Some(rule);
    }

    /// Adds a statement of the head about uses of the content.
    pub fn add_notice(&mut self, notice: &Notice) {
        let preferences = &mut self.directives.preferences;
        let (name, text) = match notice {
            Notice::TdmReservation(text) => {
                preferences.add_tdm_reservation(text);
                ("meta tdm-reservation", text)
            }
            Notice::TdmPolicy(text) => {
                preferences.add_tdm_policy(text);
                ("meta tdm-policy", text)
            }
            Notice::License(text) => {
                preferences.add_license(text);
                ("link license", text)
            }
        };
        self.quotations.element(name, text);
    }

    /// Adds the saved directives of the representation that a 304 confirms: they
    /// are still in force (draft-illyes-repext-03, section 4), and what was not
    /// known then is not known now.
    pub fn restore(&mut self, saved: &SavedDirectives) {
        self.directives.add_all(&saved.directives);
        self.restored_from = Some(saved.at);
        if let AnnotationState::Partial(why) = saved.state {
            self.miss(why);
        }
    }

    /// Notes that not all was read. The first reason stays.
    pub fn miss(&mut self, why: PartialReason) {
        if self.state == AnnotationState::Complete {
            self.state = AnnotationState::Partial(why);
        }
    }

    /// Notes a failure of ours: nothing that was collected can be relied upon.
    pub fn fail(&mut self) {
        self.state = AnnotationState::Unknown;
    }

    /// Returns the annotation.
    pub fn annotation(self) -> Annotation {
        let AnnotationContext { tokens, now, .. } = self.context;
        let key = |token: &&str| Key::from_string(token.to_ascii_lowercase()).ok();
        let mut directives = self.directives;
        // The preferences of robots.txt and of the TDM file are those of the copies in
        // force now, whatever a 304 confirms: they are not saved with the others.
        let mut preferences = directives.preferences.clone();
        if let Some(rule) = self.tdm_rule {
            preferences.add_tdm_rule(rule);
        }
        if let Some(robots) = self.context.robots {
            preferences.add_robots(robots.text, robots.crawler, robots.path);
        }
        directives.own.add_expiry(now);
        directives.general.add_expiry(now);
        Annotation {
            tokens: tokens.iter().map(key).collect(),
            preferences: preferences.settle(),
            known: SavedDirectives {
                directives,
                state: self.state,
                at: self.restored_from.unwrap_or(now),
            },
            from: self.restored_from,
            quotations: self.quotations,
        }
    }

    fn quote_meta(&mut self, meta: &Meta) {
        let name = format!("meta {}", meta.name);
        self.quotations.element(&name, &meta.content);
    }

    fn add(&mut self, scope: Scope<'_>, restriction: Restriction, source: DirectiveSource) {
        let directive = Directive::new(restriction, source);
        if scope == Scope::Everyone {
            self.directives.general.add(directive.clone());
        }
        if self.binds(scope) {
            self.directives.own.add(directive);
        }
    }

    /// Reports whether a statement of this scope binds the crawler. Tokens are
    /// equal or not: none is part of another (RFC 9309, section 2.2.1).
    fn binds(&self, scope: Scope<'_>) -> bool {
        let tokens = self.context.tokens;
        scope.binds(|name| tokens.iter().any(|token| token.eq_ignore_ascii_case(name)))
    }
}
