//! Reader of `Robots-Tag` and `X-Robots-Tag` field lines.
//!
//! Three syntaxes are in use under both names, and one reader accepts them all: the
//! structured list of draft-illyes-repext-03, the values of its revisions -00 and -01,
//! and the unstandardised list that vendors document. Lines are read one by one,
//! because joining them would change their meaning. Does not know which crawler asks.

use std::borrow::Cow;

use super::repair::repaired;
use super::segment::{self, DirectiveStatement, Quotes, Scope, TextPiece, pieces, trimmed};
use super::vocabulary::{DirectiveWord, lookup, lookup_hyphenated};

/// Syntax of a field line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineSyntax {
    /// `*;nosnippet, ExampleBot;noindex` (draft-illyes-repext-03).
    List,
    /// `*=noindex, nosnippet; ExampleBot=nofollow` (draft-illyes-repext-00).
    Values,
    /// `noindex, examplebot: nofollow` (vendor documents).
    Legacy,
}

/// The part of a field line that is read: at most `limit` bytes.
#[derive(Debug)]
pub(super) struct FieldLine<'a> {
    /// The part that is read, decoded.
    text: Cow<'a, str>,
    /// The text with its damage repaired; `None` if it is undamaged.
    repaired: Option<String>,
    /// Text of the line after that part.
    end: LineEnd,
}

/// Text after the part of the line that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    /// Nothing.
    Line,
    /// A separator: the last member of the part is complete.
    Separator(u8),
    /// The rest of a member: the last member of the part is incomplete.
    Member,
}

/// Content of a field line.
#[derive(Debug, Default)]
pub(super) struct LineContent<'a> {
    pub(super) statements: Vec<DirectiveStatement<'a>>,
    /// Crawler of the last rule, if that rule may have been meant for everyone because
    /// an intermediary joined two lines.
    pub(super) suspect: Option<Scope<'a>>,
}

impl<'a> FieldLine<'a> {
    /// Returns the first `limit` bytes of a value. draft-illyes-repext-03 requires
    /// complete members up to the limit to be honored and the rest to be ignored.
    pub(super) fn within(limit: usize, value: &'a [u8]) -> Self {
        let kept = value.get(..limit).unwrap_or(value);
        let rest = value.get(limit..).unwrap_or_default().trim_ascii_start();
        let end = match rest.first() {
            None => LineEnd::Line,
            Some(&byte @ (b',' | b';')) => LineEnd::Separator(byte),
            Some(_) => LineEnd::Member,
        };
        let text = decoded(kept);
        let repaired = repaired(&text);
        Self {
            text,
            repaired,
            end,
        }
    }

    /// Reports whether the line is longer than the part that is read.
    pub(super) fn is_cut(&self) -> bool {
        self.end != LineEnd::Line
    }

    /// Reads the statements of the line as it is written, and those of the repaired
    /// text.
    pub(super) fn read(&self) -> LineContent<'_> {
        let mut content = self.read_text(&self.text);
        if let Some(text) = &self.repaired {
            content.statements.extend(self.read_text(text).statements);
        }
        content
    }

    /// Reads the statements of a text in the syntax that it appears to have.
    fn read_text<'t>(&self, text: &'t str) -> LineContent<'t> {
        match syntax(text) {
            LineSyntax::List => self.read_list(text),
            LineSyntax::Values => self.read_values(text),
            LineSyntax::Legacy => self.read_legacy(text),
        }
    }

    /// Reads member by member, because strict parsing would lose the whole field for
    /// one bad member.
    fn read_list<'t>(&self, text: &'t str) -> LineContent<'t> {
        let mut content = LineContent::default();
        for member in self.whole_pieces(text, b",", Quotes::Hold) {
            let mut parts = pieces(member.text, b";", Quotes::Hold).into_iter();
            let head = parts.next().map_or("", |part| part.text);
            let scope = read_head(head, &mut content.statements);
            for part in parts {
                // A value of draft -00 may also appear here. It binds the crawler that
                // it names and opens no scope.
                segment::read(part.text, scope, &mut content.statements);
            }
        }
        content
    }

    /// Reads rules of the form `name=directives`. The scope of a rule lasts until the next
    /// rule or `;`.
    ///
    /// A directive after a comma continues the rule before it. But if several rules
    /// precede it, an intermediary may have appended it from another line, where it bound
    /// every crawler: then the line is suspect.
    fn read_values<'t>(&self, text: &'t str) -> LineContent<'t> {
        let mut content = LineContent::default();
        let (mut scope, mut rules) = (Scope::Everyone, 0);
        let mut names = NameList::default();
        for piece in self.whole_pieces(text, b",;", Quotes::Ignore) {
            let starts_value = piece.separator == Some(b';');
            let before = if starts_value { Scope::Everyone } else { scope };
            let opens_scope = opened_scope(piece.text).is_some();
            scope = names.read(text, piece, before, &mut content.statements);
            if trimmed(piece.text).is_empty() {
                continue;
            }
            let begins_rule = opens_scope || piece.separator != Some(b',');
            rules += usize::from(begins_rule);
            content.suspect = (!begins_rule && 1 < rules).then_some(scope);
        }
        content
    }

    /// Reads rules whose scope lasts until the next one.
    fn read_legacy<'t>(&self, text: &'t str) -> LineContent<'t> {
        let mut content = LineContent::default();
        let mut scope = Scope::Everyone;
        let mut names = NameList::default();
        for piece in self.whole_pieces(text, b",;", Quotes::Ignore) {
            scope = names.read(text, piece, scope, &mut content.statements);
        }
        content
    }

    /// Returns the pieces that the limit did not cut off.
    fn whole_pieces<'t>(
        &self,
        text: &'t str,
        separators: &[u8],
        quotes: Quotes,
    ) -> Vec<TextPiece<'t>> {
        let mut found = pieces(text, separators, quotes);
        let is_whole = match self.end {
            LineEnd::Line => true,
            LineEnd::Separator(byte) => separators.contains(&byte),
            LineEnd::Member => false,
        };
        if !is_whole {
            found.pop();
        }
        found
    }
}

/// List of names before the name that opens a scope: `ExampleBot, ` in
/// `ExampleBot, OtherBot: noindex`, which binds both.
#[derive(Debug, Default)]
struct NameList {
    /// Position of the first name; `None` if the preceding segment is not a name.
    start: Option<usize>,
}

impl NameList {
    /// Reads a segment of `text` like [`segment::read`]. If the segment opens a scope,
    /// the crawlers of the list are added to it.
    fn read<'t>(
        &mut self,
        text: &'t str,
        piece: TextPiece<'t>,
        scope: Scope<'t>,
        statements: &mut Vec<DirectiveStatement<'t>>,
    ) -> Scope<'t> {
        let known = statements.len();
        let read = segment::read(piece.text, scope, statements);
        if let Some(start) = self.start
            && piece.text.contains([':', '='])
        {
            self.start = None;
            if read == scope {
                return read;
            }
            let joint = read.with(&text[start..piece.at]);
            for statement in &mut statements[known..] {
                if statement.scope == read {
                    statement.scope = joint;
                }
            }
            return joint;
        }
        // A list of names contains no directive, and each of its segments is a name.
        if known < statements.len() {
            self.start = None;
            return read;
        }
        let name = trimmed(piece.text);
        if !name.is_empty() {
            self.start = is_agent(name).then(|| self.start.unwrap_or(piece.at));
        }
        read
    }
}

/// Returns the text of a field value: UTF-8 for the valid parts, Latin-1 for other
/// bytes (RFC 9110, section 5.5). The limit may have cut a character in two.
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

/// Returns the syntax of a line. The order matters: a list may contain values of draft
/// -00, and those may contain rules of the unstandardised syntax.
fn syntax(text: &str) -> LineSyntax {
    let members = pieces(text, b",", Quotes::Hold);
    if members.iter().any(|member| is_list_member(member.text)) {
        return LineSyntax::List;
    }
    let values = pieces(text, b",;", Quotes::Ignore);
    if values
        .iter()
        .any(|value| opened_scope(value.text).is_some())
    {
        return LineSyntax::Values;
    }
    LineSyntax::Legacy
}

/// Reports whether a text is a crawler with parameters: `ExampleBot;noindex`.
fn is_list_member(text: &str) -> bool {
    let parts = pieces(text, b";", Quotes::Hold);
    let head = parts.first().map_or("", |part| part.text.trim());
    1 < parts.len() && (head.is_empty() || is_agent(trimmed(head)))
}

/// Returns the crawler addressed by a segment such as `ExampleBot=noindex`. The draft's
/// grammar does not derive `=noindex`; it is read as addressed to everyone.
fn opened_scope(text: &str) -> Option<Scope<'_>> {
    let (name, _) = text.split_once('=')?;
    let name = name.trim();
    (name.is_empty() || is_agent(name)).then(|| Scope::of(name))
}

/// Reports whether a text is a product token or `*`, as opposed to a directive or other
/// text. Damaged restrictions (`no-index`, `noindex/nofollow`) are directives: if they
/// were taken for a crawler, they would change the syntax of the whole line.
fn is_agent(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"*_-./".contains(&byte);
    let is_restriction = |part: &str| {
        lookup(part).is_some_and(DirectiveWord::restricts) || lookup_hyphenated(part).is_some()
    };
    !text.is_empty()
        && text.bytes().all(is_token)
        && lookup(text).is_none()
        && !text.split(['.', '/']).any(is_restriction)
}

/// Returns the scope of a member's parameters. A member that is itself a rule
/// (`noindex`) or is written in another syntax is read as such. An inner list names
/// several crawlers, so it counts as everyone. Any other text is taken for a name, even
/// if no crawler has it, so that a bad member affects only itself.
fn read_head<'a>(head: &'a str, statements: &mut Vec<DirectiveStatement<'a>>) -> Scope<'a> {
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
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;

    fn statements(value: &str) -> Vec<String> {
        let line = FieldLine::within(usize::MAX, value.as_bytes());
        let said = line.read().statements;
        let shown = said.iter().map(|it| match it.scope {
            Scope::Everyone => it.restriction.to_string(),
            Scope::Agent { name, others } => format!("{others}{name} {}", it.restriction),
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

    // draft-illyes-repext-03, section 3.1.1, and its revisions; vendors' documents for
    // the rest. The leniency is ours.
    lines! {
        a_list_member_binds_its_crawler: "*;nosnippet, A;noindex" says ["nosnippet", "A noindex"];
        a_list_member_may_be_a_string: r#""_a";noindex"# says ["_a noindex"];
        a_rule_alone_in_a_list_is_for_everyone: "A;noindex, nosnippet" says ["A noindex", "nosnippet"];
        a_bad_member_affects_only_itself: r#"*;noindex, ,"x;(, A;nosnippet"# says ["noindex", "A nosnippet"];
        a_value_among_parameters_binds_its_crawler: "A;b=noindex;noai" says ["b noindex", "A noai"];
        an_unknown_rule_does_not_end_a_value: "*=noindex, x; A=noai" says ["noindex", "A noai"];
        a_quoted_rule_is_no_crawler: r#""noindex"; nofollow"# says ["noindex", "nofollow"];
        quoted_rules_are_no_crawler: r#""noindex, noai";, *;spc"# says ["noindex", "noai", "spc"];
        an_inner_list_is_for_everyone: "A;noai, (B C);noindex" says ["A noai", "noindex"];
        an_invalid_token_is_a_name_that_no_crawler_has: "*;noindex, @ x;noai" says ["noindex", "@ x noai"];
        a_false_parameter_counts_as_absent: "*;noindex=?0;nofollow" says ["nofollow"];
        values_bind_until_the_semicolon: "A=noindex, nofollow; noai" says ["A noindex", "A nofollow", "noai"];
        a_comma_may_open_a_value: "A=noindex, B=nosnippet" says ["A noindex", "B nosnippet"];
        an_empty_name_is_everyone: "=noindex" says ["noindex"];
        a_legacy_scope_lasts: "noai, a: noindex; nofollow" says ["noai", "a noindex", "a nofollow"];
        quotes_around_a_line_are_ignored: r#""noindex, nofollow""# says ["noindex", "nofollow"];
        a_version_is_dropped: "A/2.1: noindex" says ["A noindex"];
        punctuation_says_nothing: ":, :, ,;: -:: " says [];
    }

    // Ours: text that a person would read as a restriction counts.
    lines! {
        a_list_of_names_binds_each: "A, B/2, C: noindex, noai" says ["A, B/2,C noindex", "A, B/2,C noai"];
        a_list_of_names_has_values_too: "A, B=noindex; noai" says ["A,B noindex", "noai"];
        a_directive_ends_a_list_of_names: "A, noai, B: noindex" says ["noai", "B noindex"];
        everyone_may_be_in_a_list_of_names: "A, robots, B: noindex" says ["noindex"];
        a_value_ends_a_list_of_names: "A, max-snippet:1, B: noindex" says ["max-snippet:1", "B noindex"];
        damage_is_repaired: "A|B: no-index" says ["A,B noindex"];
        a_damaged_directive_is_no_list_member: "A: noai, noindex, no-index;" says
            ["A noai", "A noindex", "A noai", "A noindex", "A noindex"];
        directives_joined_by_a_slash_are_no_list_member: "A: noai, noindex, noai/noindex;" says
            ["A noai", "A noindex", "A noai", "A noindex", "A noai", "A noindex"];
        a_damaged_line_is_read_as_written_too: "noai: x|noindex nofollow" says
            ["noai", "nofollow", "noai", "noindex", "nofollow"];
    }

    /// Reads a line as it is written, without repairs and without lists of names.
    fn as_written(text: &str) -> Vec<DirectiveStatement<'_>> {
        let line = FieldLine::within(usize::MAX, text.as_bytes());
        let syntax = syntax(text);
        if syntax == LineSyntax::List {
            return line.read_list(text).statements;
        }
        let (mut scope, mut statements) = (Scope::Everyone, Vec::new());
        for piece in pieces(text, b",;", Quotes::Ignore) {
            if syntax == LineSyntax::Values && piece.separator == Some(b';') {
                scope = Scope::Everyone;
            }
            scope = segment::read(piece.text, scope, &mut statements);
        }
        statements
    }

    /// Returns the values of the test cases: those of header fields and of metas.
    fn case_values() -> Vec<String> {
        let cases = [
            include_str!("../cases/directives.jsonl"),
            include_str!("../cases/directives-ours.jsonl"),
        ];
        let mut values = Vec::new();
        for line in cases.into_iter().flat_map(str::lines) {
            let case: serde_json::Value = serde_json::from_str(line).unwrap();
            let headers = case["headers"].as_array().into_iter().flatten();
            values.extend(headers.filter_map(|it| Some(it[1].as_str()?.to_owned())));
            let contents = case["body"]
                .as_str()
                .unwrap_or_default()
                .split("content=")
                .skip(1);
            values.extend(contents.map(|it| it.split(['>', '"']).take(2).collect()));
        }
        values
    }

    const MARKS: [&str; 20] = [
        ",", ";", ":", "=", "|", "/", ".", "+", "&", "!", "-", "_", " ", "no ", "\u{200B}",
        "\u{FF0C}", "*", "\"", "A, ", "20",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

        // Ours: every restriction of a line as written is also in the repaired reading.
        #[test]
        fn a_repair_removes_no_restriction(
            value in select(case_values()),
            marks in vec((select(MARKS.to_vec()), any::<Index>()), 0..5),
        ) {
            let mut value = value;
            for (mark, at) in marks {
                let at = value.floor_char_boundary(at.index(value.len() + 1));
                value.insert_str(at, mark);
            }
            let line = FieldLine::within(usize::MAX, value.as_bytes());
            let repaired = line.read().statements;
            for written in as_written(&value) {
                let is_kept = |it: &DirectiveStatement<'_>| {
                    it.restriction == written.restriction
                        && match written.scope {
                            Scope::Everyone => it.scope == Scope::Everyone,
                            Scope::Agent { name, .. } => it.scope.binds(|other| other == name),
                        }
                };
                prop_assert!(repaired.iter().any(is_kept), "{value:?}: {written:?}");
            }
        }
    }

    #[test]
    fn a_member_cut_by_the_limit_is_ignored() {
        let line = FieldLine::within(28, b"*;nosnippet, ExampleBot;noindex");
        assert_eq!(line.read().statements.len(), 1);
        assert!(line.is_cut());
    }

    // RFC 9110, section 5.5.
    #[test]
    fn invalid_utf_8_affects_only_itself() {
        let line = FieldLine::within(
            usize::MAX,
            b"noindex\xA0nofollow, \xE2\x80\x9Cnoai\xE2\x80\x9D",
        );
        assert_eq!(line.read().statements.len(), 3);
    }

    #[test]
    fn a_member_that_ends_at_the_limit_is_whole() {
        let line = FieldLine::within(9, b"*;noindex, A;nofollow");
        assert_eq!(line.read().statements.len(), 1);
        // In a list, a semicolon does not end a member.
        let line = FieldLine::within(9, b"*;noindex;nofollow");
        assert!(line.read().statements.is_empty());
    }

    #[test]
    fn a_rule_after_a_second_scope_may_have_been_joined() {
        let suspect = |value: &'static str| {
            let line = FieldLine::within(usize::MAX, value.as_bytes());
            line.read().suspect.is_some()
        };
        assert!(suspect("noindex; A=nofollow, nosnippet"));
        assert!(!suspect("A=nofollow, nosnippet"));
        assert!(!suspect("noindex; A=nofollow"));
        assert!(!suspect("A=nofollow, noai; nosnippet"));
    }
}
