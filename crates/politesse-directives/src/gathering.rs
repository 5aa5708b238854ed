//! What one response says to one crawler, collected statement by statement.
//!
//! Several statements add up, so that no reading grants what another forbids,
//! and a name never opts out of what everyone is told (draft-illyes-repext-03,
//! section 3.1). Which part of a response is looked at is not known here.

use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;

use super::annotation::{Annotation, Known, Said, State, Why};
use super::findings::{Meta, Notice};
use super::quotations::Quotations;
use super::segment::{self, Scope};
use super::set::{Directive, Source};
use super::vocabulary::Restriction;
use super::{BothFields, Reading, header};

/// Collects what one response says to one crawler.
#[derive(Debug)]
pub struct Gathering<'a> {
    reading: Reading<'a>,
    said: Said,
    quotations: Quotations,
    state: State,
    repeated: Option<Timestamp>,
    /// Bytes of fields that may still be read.
    room: usize,
    lines: usize,
}

impl<'a> Gathering<'a> {
    /// Field lines read of one response; more make it partial.
    pub const LINES_MAX: usize = 64;

    /// Bytes read of all field lines of one response, or one line of the
    /// longest that is read; more make it partial.
    pub const FIELD_BYTES_MAX: usize = 32 * 1024;

    /// Begins with a response that says nothing.
    pub fn new(reading: Reading<'a>) -> Self {
        Self {
            reading,
            said: Said::default(),
            quotations: Quotations::default(),
            state: State::Complete,
            repeated: None,
            room: Self::FIELD_BYTES_MAX.max(reading.limits.field_limit),
            lines: 0,
        }
    }

    /// Takes in all fields of a response.
    pub fn fields(&mut self, fields: &HeaderMap) {
        let has_new = fields.contains_key("robots-tag");
        let passed_over = has_new && self.reading.limits.both_fields == BothFields::RobotsTag;
        for (name, value) in fields {
            self.quotations.field(name, value);
            if !passed_over || name != "x-robots-tag" {
                self.field(name.as_str(), value.as_bytes());
            }
        }
        self.said.preferences.of_fields(fields);
    }

    /// Takes in a field line, one at a time and as received. Fields of other
    /// names say nothing.
    ///
    /// Of each line as many bytes are read as the limit says, so that a long
    /// one does not silence the others, and of all together
    /// [`FIELD_BYTES_MAX`](Self::FIELD_BYTES_MAX).
    pub fn field(&mut self, name: &str, value: &[u8]) {
        let source = if name.eq_ignore_ascii_case("robots-tag") {
            Source::RobotsTag
        } else if name.eq_ignore_ascii_case("x-robots-tag") {
            Source::XRobotsTag
        } else {
            return;
        };
        if self.lines == Self::LINES_MAX {
            return self.miss(Why::FieldLimit);
        }
        self.lines += 1;
        let limit = self.reading.limits.field_limit.min(self.room);
        let line = header::Line::within(limit, value);
        self.room = self.room.saturating_sub(value.len());
        let said = line.read();
        for statement in said.statements {
            self.state_to(statement.scope, statement.restriction, source);
        }
        if let Some(why) = line.why() {
            self.miss(why);
        }
        if said.suspect.is_some_and(|scope| !self.binds(scope)) {
            self.miss(Why::Joined);
        }
    }

    /// Takes in a `<meta>` element of the head.
    pub fn meta(&mut self, meta: &Meta) {
        let name = format!("meta {}", meta.name);
        self.quotations.element(&name, &meta.content);
        let scope = scope_of(meta);
        for restriction in segment::read_content(&meta.content) {
            self.state_to(scope, restriction, Source::Meta);
        }
    }

    /// Takes in a `<meta>` element behind the head. It is told, and not in
    /// force (draft-illyes-repext-03, section 3.2).
    pub fn meta_outside(&mut self, meta: &Meta) {
        let name = format!("meta {}", meta.name);
        self.quotations.element(&name, &meta.content);
        if self.binds(scope_of(meta)) {
            for restriction in segment::read_content(&meta.content) {
                let directive = Directive::new(restriction, Source::Meta);
                self.said.outside.add(directive);
            }
        }
    }

    /// Takes in a field in our name, which no origin may use: it says nothing,
    /// and is evidence.
    pub fn forged(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.quotations.forged(name, value);
    }

    /// Takes in what the head says about uses of the content.
    pub fn notice(&mut self, notice: &Notice) {
        let preferences = &mut self.said.preferences;
        let (name, said) = match notice {
            Notice::TdmReservation(said) => {
                preferences.tdm_reservation(said);
                ("meta tdm-reservation", said)
            }
            Notice::TdmPolicy(said) => {
                preferences.tdm_policy(said);
                ("meta tdm-policy", said)
            }
            Notice::License(said) => {
                preferences.license(said);
                ("link license", said)
            }
        };
        self.quotations.element(name, said);
    }

    /// Takes in what is known of the same representation from before: it is
    /// still in force (draft-illyes-repext-03, section 4), with all that was
    /// not known of it then.
    pub fn repeat(&mut self, known: &Known) {
        let Said {
            own,
            general,
            outside,
            preferences,
        } = &known.said;
        self.said.own.add_all(own);
        self.said.general.add_all(general);
        self.said.outside.add_all(outside);
        self.said.preferences = preferences.clone();
        self.repeated = Some(known.at);
        if let State::Partial(why) = known.state {
            self.miss(why);
        }
    }

    /// Notes that not all was looked at. The first reason stays.
    pub fn miss(&mut self, why: Why) {
        if self.state == State::Complete {
            self.state = State::Partial(why);
        }
    }

    /// Notes a failure of ours: nothing that was gathered can be relied upon.
    pub fn fail(&mut self) {
        self.state = State::Unknown;
    }

    /// What has been gathered. Preferences of robots.txt come last: they are
    /// those of the copy in force now, whatever a 304 repeats.
    pub fn annotation(self) -> Annotation {
        let Reading { tokens, now, .. } = self.reading;
        let mut preferences = self.said.preferences.clone();
        if let Some(robots) = self.reading.robots {
            preferences.of_robots(robots.text, robots.crawler, robots.path);
        }
        let mut said = self.said;
        said.own.add_expiry(now);
        said.general.add_expiry(now);
        Annotation {
            tokens: tokens.iter().map(ToString::to_string).collect(),
            preferences: preferences.settle(),
            known: Known {
                said,
                state: self.state,
                at: self.repeated.unwrap_or(now),
            },
            from: self.repeated,
            quotations: self.quotations,
        }
    }

    fn state_to(&mut self, scope: Scope<'_>, restriction: Restriction, source: Source) {
        if scope == Scope::Everyone {
            let directive = Directive::new(restriction, source);
            self.said.general.add(directive);
        }
        if self.binds(scope) {
            self.said.own.add(Directive::new(restriction, source));
        }
    }

    /// Whether what is said to this scope binds the crawler. Tokens are equal
    /// or not: none is part of another (RFC 9309, section 2.2.1).
    fn binds(&self, scope: Scope<'_>) -> bool {
        match scope {
            Scope::Everyone => true,
            Scope::Agent(name) => {
                let mut tokens = self.reading.tokens.iter();
                tokens.any(|token| token.eq_ignore_ascii_case(name))
            }
        }
    }
}

/// Returns the crawlers that a `<meta>` element speaks to. It is named by a
/// product token, of which `*` is one, or by `robots` or `robot`. Other names
/// that a field has for everyone are none here.
fn scope_of(meta: &Meta) -> Scope<'_> {
    let name = segment::trimmed(&meta.name);
    let token = name.split('/').next().unwrap_or_default();
    if segment::is_meta_for_everyone(token) || token == "*" {
        Scope::Everyone
    } else {
        Scope::Agent(token)
    }
}
