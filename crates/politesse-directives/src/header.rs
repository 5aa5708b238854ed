//! `Robots-Tag` and `X-Robots-Tag` field lines to statements.
//!
//! Three syntaxes are in use under both names, and one reader takes them all:
//! the structured list of draft-illyes-repext-03, the values of its revisions
//! -00 and -01, and the list without a standard that vendors document. Lines
//! are read one by one, because joining them changes what they say.

use std::borrow::Cow;

use super::annotation::Why;
use super::segment::{self, Piece, Quotes, Scope, Statement, pieces, trimmed};
use super::vocabulary::lookup;

/// How a field line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syntax {
    /// `*;nosnippet, ExampleBot;noindex` (draft-illyes-repext-03).
    List,
    /// `*=noindex, nosnippet; ExampleBot=nofollow` (draft-illyes-repext-00).
    Values,
    /// `noindex, examplebot: nofollow` (vendor documents).
    Legacy,
}

/// The part of a field line that is read: at most `limit` bytes of it.
#[derive(Debug)]
pub(super) struct Line<'a> {
    text: Cow<'a, str>,
    end: End,
}

/// What stands behind the part that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nothing.
    Line,
    /// This separator, so that the part's last member is whole.
    Separator(u8),
    /// The rest of a member.
    Member,
}

/// What a field line says.
#[derive(Debug, Default)]
pub(super) struct Said<'a> {
    pub(super) statements: Vec<Statement<'a>>,
    /// The crawler under which the line's last rule stands, if it may have
    /// been meant for everyone: joined to this line by an intermediary.
    pub(super) suspect: Option<Scope<'a>>,
}

impl<'a> Line<'a> {
    /// The first `limit` bytes of a value. draft-illyes-repext-03 wants
    /// complete members up to the limit honored, and the rest ignored.
    pub(super) fn within(limit: usize, value: &'a [u8]) -> Self {
        let kept = value.get(..limit).unwrap_or(value);
        let rest = value.get(limit..).unwrap_or_default().trim_ascii_start();
        let end = match rest.first() {
            None => End::Line,
            Some(&byte @ (b',' | b';')) => End::Separator(byte),
            Some(_) => End::Member,
        };
        let text = decoded(kept);
        Self { text, end }
    }

    /// Why the line was not read whole, if it was not.
    pub(super) fn why(&self) -> Option<Why> {
        (self.end != End::Line).then_some(Why::FieldLimit)
    }

    /// What the line says, and to whom.
    pub(super) fn read(&self) -> Said<'_> {
        match syntax(&self.text) {
            Syntax::List => self.read_list(),
            Syntax::Values => self.read_values(),
            Syntax::Legacy => self.read_legacy(),
        }
    }

    /// Reads member by member: strict parsing would lose the whole field for
    /// one bad member.
    fn read_list(&self) -> Said<'_> {
        let mut said = Said::default();
        for member in self.whole_pieces(b",", Quotes::Hold) {
            let mut parts = pieces(member.text, b";", Quotes::Hold).into_iter();
            let head = parts.next().map_or("", |part| part.text);
            let scope = read_head(head, &mut said.statements);
            for part in parts {
                // A value of draft -00 may stand here as well. It binds the
                // crawler that it names, and opens no scope.
                segment::read(part.text, scope, &mut said.statements);
            }
        }
        said
    }

    fn read_values(&self) -> Said<'_> {
        let mut said = Said::default();
        let (mut scope, mut scopes) = (Scope::Everyone, 0);
        for piece in self.whole_pieces(b",;", Quotes::Ignore) {
            let starts_value = piece.behind == Some(b';');
            let before = if starts_value { Scope::Everyone } else { scope };
            let opens_scope = opened_scope(piece.text).is_some();
            scope = segment::read(piece.text, before, &mut said.statements);
            if trimmed(piece.text).is_empty() {
                continue;
            }
            let begins = opens_scope || piece.behind != Some(b',');
            scopes += usize::from(begins);
            said.suspect = (!begins && 1 < scopes).then_some(scope);
        }
        said
    }

    /// Reads with scopes that last until the next one.
    fn read_legacy(&self) -> Said<'_> {
        let mut said = Said::default();
        let mut scope = Scope::Everyone;
        for piece in self.whole_pieces(b",;", Quotes::Ignore) {
            scope = segment::read(piece.text, scope, &mut said.statements);
        }
        said
    }

    /// The pieces that the limit did not cut.
    fn whole_pieces(&self, separators: &[u8], quotes: Quotes) -> Vec<Piece<'_>> {
        let mut found = pieces(&self.text, separators, quotes);
        let is_whole = match self.end {
            End::Line => true,
            End::Separator(byte) => separators.contains(&byte),
            End::Member => false,
        };
        if !is_whole {
            found.pop();
        }
        found
    }
}

/// Field values are bytes: UTF-8 where they are valid as that, else Latin-1
/// (RFC 9110, section 5.5). A limit may have cut a letter in two.
fn decoded(value: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(value) {
        return Cow::Borrowed(text);
    }
    let mut text = String::new();
    for chunk in value.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().copied().map(char::from));
    }
    Cow::Owned(text)
}

fn syntax(text: &str) -> Syntax {
    let members = pieces(text, b",", Quotes::Hold);
    if members.iter().any(|member| is_list_member(member.text)) {
        return Syntax::List;
    }
    let values = pieces(text, b",;", Quotes::Ignore);
    if values
        .iter()
        .any(|value| opened_scope(value.text).is_some())
    {
        return Syntax::Values;
    }
    Syntax::Legacy
}

/// Whether this is a crawler with parameters: `ExampleBot;noindex`.
fn is_list_member(text: &str) -> bool {
    let parts = pieces(text, b";", Quotes::Hold);
    let head = parts.first().map_or("", |part| part.text.trim());
    1 < parts.len() && (head.is_empty() || is_agent(trimmed(head)))
}

/// The crawler that a segment `ExampleBot=noindex` is for. The draft's grammar
/// does not derive `=noindex`; it is read as everyone's.
fn opened_scope(text: &str) -> Option<Scope<'_>> {
    let (name, _) = text.split_once('=')?;
    let name = name.trim();
    (name.is_empty() || is_agent(name)).then(|| Scope::of(name))
}

/// Whether this is a product token, or `*`, rather than a directive or text.
fn is_agent(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"*_-./".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token) && lookup(text).is_none()
}

/// The scope of a member's parameters. A member that is itself a rule
/// (`noindex`), or is written in another syntax, is read as such. An inner list
/// names several crawlers, so everyone. Anything else is a name, if of nobody:
/// a bad member costs itself.
fn read_head<'a>(head: &'a str, statements: &mut Vec<Statement<'a>>) -> Scope<'a> {
    let mut words = head.split(|letter: char| letter == ',' || letter.is_whitespace());
    let is_rule = head.contains([':', '=']) || words.any(|it| lookup(trimmed(it)).is_some());
    if !is_rule && !head.trim_start().starts_with('(') {
        return Scope::of(head);
    }
    let mut scope = Scope::Everyone;
    for piece in pieces(head, b",", Quotes::Ignore) {
        scope = segment::read(piece.text, scope, statements);
    }
    scope
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements(value: &str) -> Vec<String> {
        let line = Line::within(usize::MAX, value.as_bytes());
        let said = line.read().statements;
        let shown = said.iter().map(|it| match it.scope {
            Scope::Everyone => it.restriction.to_string(),
            Scope::Agent(name) => format!("{name} {}", it.restriction),
        });
        shown.collect()
    }

    macro_rules! lines {
        ($($name:ident: $value:literal says $said:expr;)*) => {$(
            #[test]
            fn $name() {
                let said: &[&str] = &$said;
                assert_eq!(statements($value), said);
            }
        )*};
    }

    // draft-illyes-repext-03, section 3.1.1, and its revisions; vendors'
    // documents for the rest; the leniency is ours.
    lines! {
        a_list_member_binds_its_crawler: "*;nosnippet, A;noindex" says ["nosnippet", "A noindex"];
        a_list_member_may_be_a_string: r#""_a";noindex"# says ["_a noindex"];
        a_rule_alone_in_a_list_is_everyones: "A;noindex, nosnippet" says ["A noindex", "nosnippet"];
        a_bad_member_costs_itself: r#"*;noindex, ,"x;(, A;nosnippet"# says ["noindex", "A nosnippet"];
        a_value_among_parameters_binds_its_crawler: "A;b=noindex;noai" says ["b noindex", "A noai"];
        an_unknown_rule_costs_no_value: "*=noindex, x; A=noai" says ["noindex", "A noai"];
        a_quoted_rule_is_no_crawler: r#""noindex"; nofollow"# says ["noindex", "nofollow"];
        quoted_rules_are_no_crawler: r#""noindex, noai";, *;spc"# says ["noindex", "noai", "spc"];
        an_inner_list_is_for_everyone: "A;noai, (B C);noindex" says ["A noai", "noindex"];
        what_is_no_token_is_a_name_of_nobody: "*;noindex, @ x;noai" says ["noindex", "@ x noai"];
        a_false_parameter_is_not_given: "*;noindex=?0;nofollow" says ["nofollow"];
        values_bind_until_the_semicolon: "A=noindex, nofollow; noai" says ["A noindex", "A nofollow", "noai"];
        a_comma_may_open_a_value: "A=noindex, B=nosnippet" says ["A noindex", "B nosnippet"];
        an_empty_name_is_everyone: "=noindex" says ["noindex"];
        a_legacy_scope_lasts: "noai, a: noindex; nofollow" says ["noai", "a noindex", "a nofollow"];
        quotes_around_a_line_are_an_accident: r#""noindex, nofollow""# says ["noindex", "nofollow"];
        a_version_is_dropped: "A/2.1: noindex" says ["A noindex"];
        punctuation_says_nothing: ":, :, ,;: -:: " says [];
    }

    #[test]
    fn a_member_cut_by_the_limit_is_ignored() {
        let line = Line::within(28, b"*;nosnippet, ExampleBot;noindex");
        assert_eq!(line.read().statements.len(), 1);
        assert_eq!(line.why(), Some(Why::FieldLimit));
    }

    // RFC 9110, section 5.5.
    #[test]
    fn bytes_that_are_no_utf_8_cost_themselves() {
        let line = Line::within(
            usize::MAX,
            b"noindex\xA0nofollow, \xE2\x80\x9Cnoai\xE2\x80\x9D",
        );
        assert_eq!(line.read().statements.len(), 3);
    }

    #[test]
    fn a_member_that_ends_at_the_limit_is_whole() {
        let line = Line::within(9, b"*;noindex, A;nofollow");
        assert_eq!(line.read().statements.len(), 1);
        // In a list, a semicolon does not end a member.
        let line = Line::within(9, b"*;noindex;nofollow");
        assert!(line.read().statements.is_empty());
    }

    #[test]
    fn a_rule_behind_a_second_scope_may_have_been_joined() {
        let suspect = |value: &'static str| {
            let line = Line::within(usize::MAX, value.as_bytes());
            line.read().suspect.is_some()
        };
        assert!(suspect("noindex; A=nofollow, nosnippet"));
        assert!(!suspect("A=nofollow, nosnippet"));
        assert!(!suspect("noindex; A=nofollow"));
        assert!(!suspect("A=nofollow, noai; nosnippet"));
    }
}
