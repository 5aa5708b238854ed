//! Collector of the statements of one response that concern one crawler.
//!
//! Several statements add up, so that none grants what another forbids, and a directive
//! for a named crawler never lifts one for all (draft-illyes-repext-03, section 3.1).
//! Does not know which part of a response is read.

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

/// Collects the statements of one response for one crawler.
#[derive(Debug)]
pub struct DirectiveCollector<'a> {
    context: AnnotationContext<'a>,
    /// Directives and preferences found so far.
    directives: CrawlerDirectives,
    /// Statements as written.
    quotations: Quotations,
    /// Rule of the origin's TDM file.
    tdm_rule: Option<&'a TdmRule>,
    /// State of the annotation, from what was read so far.
    state: AnnotationState,
    /// Time at which restored directives were sent.
    restored_from: Option<Timestamp>,
    /// Bytes of fields that may still be read.
    bytes_left: usize,
    /// Field lines read so far.
    lines: usize,
}

impl<'a> DirectiveCollector<'a> {
    /// Maximum number of field lines read of one response; with more, the annotation is
    /// partial.
    pub const LINES_MAX: usize = 64;

    /// Maximum number of bytes read of all field lines of one response together, or the
    /// limit for one line if that is larger; with more, the annotation is partial.
    pub const FIELD_BYTES_MAX: usize = 32 * 1024;

    /// Begins a response without statements.
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
        // Most responses have none of these fields, and this runs for every response.
        if !fields.keys().any(quotations::may_hold_statement) {
            return;
        }
        let ignores_old = self.context.limits.both_fields == BothFields::RobotsTag
            && fields.contains_key("robots-tag");
        for (name, value) in fields {
            self.quotations.add_field(name, value);
            if !ignores_old || name != "x-robots-tag" {
                self.add_field(name.as_str(), value.as_bytes());
            }
        }
        self.directives.preferences.add_fields(fields);
    }

    /// Adds a field line, as received. Fields with other names are ignored.
    ///
    /// The limits on bytes apply to each line, so that a long line does not suppress
    /// the others, and to all lines together
    /// ([`FIELD_BYTES_MAX`](Self::FIELD_BYTES_MAX)).
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
        // The whole line counts, not only the part that was read, so that sending long
        // lines does not make more of them readable.
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

    /// Adds a `<meta>` element after the head. It is reported but not in force
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

    /// Adds a field that has the name of the annotation field, which no origin may use.
    /// It is ignored and kept as evidence.
    pub fn add_forged(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.quotations.add_forged(name, value);
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
        self.quotations.add_element(name, text);
    }

    /// Adds the saved directives of the representation that a 304 confirms. They are
    /// still in force (draft-illyes-repext-03, section 4), and what was unknown then is
    /// still unknown.
    pub fn restore(&mut self, saved: &SavedDirectives) {
        self.directives.add_all(&saved.directives);
        self.restored_from = Some(saved.at);
        if let AnnotationState::Partial(why) = saved.state {
            self.miss(why);
        }
    }

    /// Records that part of the response was not read. The first reason stays.
    pub fn miss(&mut self, why: PartialReason) {
        if self.state == AnnotationState::Complete {
            self.state = AnnotationState::Partial(why);
        }
    }

    /// Records an internal failure: nothing that was collected can be relied on.
    pub fn fail(&mut self) {
        self.state = AnnotationState::Unknown;
    }

    /// Returns the annotation.
    pub fn annotation(self) -> Annotation {
        let AnnotationContext { tokens, now, .. } = self.context;
        let key = |token: &&str| Key::from_string(token.to_ascii_lowercase()).ok();
        let mut directives = self.directives;
        // The preferences of robots.txt and of the TDM file come from the copies in
        // force now, even if a 304 confirms older directives, so they are not saved
        // with the others.
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

    /// Quotes a meta, named as in `meta robots`.
    fn quote_meta(&mut self, meta: &Meta) {
        let name = format!("meta {}", meta.name);
        self.quotations.add_element(&name, &meta.content);
    }

    /// Adds a directive to those for every crawler, to those for this crawler, or both.
    fn add(&mut self, scope: Scope<'_>, restriction: Restriction, source: DirectiveSource) {
        let directive = Directive::new(restriction, source);
        if scope == Scope::Everyone {
            self.directives.general.add(directive.clone());
        }
        if self.binds(scope) {
            self.directives.own.add(directive);
        }
    }

    /// Reports whether a statement with this scope binds the crawler. Tokens must be
    /// equal; a substring does not match (RFC 9309, section 2.2.1).
    fn binds(&self, scope: Scope<'_>) -> bool {
        let tokens = self.context.tokens;
        scope.binds(|name| tokens.iter().any(|token| token.eq_ignore_ascii_case(name)))
    }
}
