//! Reader of the TDM file of an origin, `/.well-known/tdmrep.json`.
//!
//! TDMRep (W3C Community Group Final Report of 10 May 2024), section "TDM File on the
//! Origin Server": an array of rules, each with a `location`, a `tdm-reservation` and
//! an optional `tdm-policy`. The first rule whose location matches a path counts, even
//! if a later rule is more specific. Reading never fails: a mistake affects only its
//! own rule, and a note reports it. Does not know how the file is fetched, or what
//! supersedes it.

use std::fmt;

use politesse_robots::{CanonicalPath, Pattern};
use serde_json::Value;

use super::mining::Declaration;

/// TDM file of an origin: its rules in order, and notes on its mistakes.
///
/// ```
/// use politesse_directives::preferences::TdmFile;
///
/// let file = TdmFile::parse(br#"[{"location": "/free/", "tdm-reservation": 0},
///                                {"location": "/", "tdm-reservation": 1}]"#);
/// assert_eq!(file.binding("/free/a").unwrap().location, "/free/");
/// assert_eq!(file.binding("/a").unwrap().location, "/");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TdmFile {
    rules: Vec<TdmRule>,
    notes: Vec<TdmNote>,
}

/// Rule of a TDM file: the paths it applies to, and its declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TdmRule {
    /// Number of the rule in the file, counted from 1.
    pub number: usize,
    /// Pattern of the paths, as written.
    pub location: String,
    pattern: Pattern,
    pub(super) declaration: Declaration,
}

/// Mistake in a TDM file, or a limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TdmNote {
    /// Number of the rule, counted from 1; `None` if the note is about the whole file.
    pub rule: Option<usize>,
    /// Problem that was found.
    pub problem: TdmProblem,
}

/// Problem in a TDM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TdmProblem {
    /// The file is longer than [`TdmFile::BYTES_MAX`] and is not read.
    TooLong,
    /// The file is not a JSON array of rules and is not read.
    NotRules,
    /// The file has more rules than [`TdmFile::RULES_MAX`]; the rest is not read.
    TooManyRules,
    /// The rule has no location, or one that matches no path; the rule is ignored.
    Location,
    /// The reservation is neither 0 nor 1; it counts as unset.
    Reservation,
    /// The policy is not an absolute URL; it is ignored.
    Policy,
}

impl TdmFile {
    /// Length of the longest file that is read, in bytes. Most files have one rule; a
    /// thousand rules of the usual length fit.
    pub const BYTES_MAX: usize = 64 * 1024;

    /// Maximum number of rules that are read. Every path may be compared with each of
    /// them.
    pub const RULES_MAX: usize = 512;

    /// Reads a file.
    pub fn parse(text: &[u8]) -> Self {
        if Self::BYTES_MAX < text.len() {
            return Self::unread(TdmProblem::TooLong);
        }
        // RFC 8259, section 8.1, lets a reader ignore a BOM, which some editors
        // write.
        let json = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        let entries = match serde_json::from_slice(json) {
            Ok(Value::Array(entries)) => entries,
            // The report requires brackets even around a single rule, but without them
            // the reservation is just as clear.
            Ok(rule @ Value::Object(_)) => vec![rule],
            _ => return Self::unread(TdmProblem::NotRules),
        };
        let mut file = Self::default();
        for (number, entry) in (1..=Self::RULES_MAX).zip(&entries) {
            file.add(number, entry);
        }
        if Self::RULES_MAX < entries.len() {
            file.note(None, TdmProblem::TooManyRules);
        }
        file
    }

    /// Returns the rule that binds a path (with its query, as sent): the first one that
    /// matches.
    pub fn binding(&self, path: &str) -> Option<&TdmRule> {
        // Most origins have no such file.
        if self.rules.is_empty() {
            return None;
        }
        let path = CanonicalPath::new(path);
        self.rules.iter().find(|rule| rule.pattern.matches(&path))
    }

    /// Reports whether the whole file was read. If not, a path that no rule binds may
    /// still be reserved.
    pub fn is_whole(&self) -> bool {
        self.notes.iter().all(|note| note.rule.is_some())
    }

    /// Reports whether the file was read at all: it is a list of rules and not too
    /// long.
    pub fn is_readable(&self) -> bool {
        let unread = [TdmProblem::TooLong, TdmProblem::NotRules];
        !self.notes.iter().any(|note| unread.contains(&note.problem))
    }

    /// Returns the notes, in the order in which they were made.
    pub fn notes(&self) -> &[TdmNote] {
        &self.notes
    }

    fn unread(problem: TdmProblem) -> Self {
        let mut file = Self::default();
        file.note(None, problem);
        file
    }

    fn note(&mut self, rule: Option<usize>, problem: TdmProblem) {
        self.notes.push(TdmNote { rule, problem });
    }

    fn add(&mut self, number: usize, entry: &Value) {
        let stated = entry.get("location").and_then(Value::as_str);
        let location = stated.unwrap_or_default();
        let pattern = Pattern::new(location.as_bytes());
        let Some(pattern) = pattern.filter(|_| location.starts_with(['/', '*'])) else {
            return self.note(Some(number), TdmProblem::Location);
        };
        let mut declaration = Declaration::default();
        // Some files write the number as a string, as in a field.
        declaration.add_reservation(text_of(entry, "tdm-reservation").as_bytes());
        if declaration.reservation.is_none() {
            self.note(Some(number), TdmProblem::Reservation);
        }
        let policy = text_of(entry, "tdm-policy");
        declaration.add_policy(policy.as_bytes());
        if declaration.policy.is_none() && !policy.is_empty() {
            self.note(Some(number), TdmProblem::Policy);
        }
        self.rules.push(TdmRule {
            number,
            location: location.to_owned(),
            pattern,
            declaration,
        });
    }
}

/// Returns a property of a rule as text; empty if it is absent or null.
fn text_of(entry: &Value, name: &str) -> String {
    match entry.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

impl fmt::Display for TdmNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(number) = self.rule {
            write!(f, "rule {number}: ")?;
        }
        f.write_str(match self.problem {
            TdmProblem::TooLong => "the file is longer than 64 KiB, and is not read",
            TdmProblem::NotRules => "the file is no JSON array of rules",
            TdmProblem::TooManyRules => "rules after the 512th are not read",
            TdmProblem::Location => "location is missing, or matches no path",
            TdmProblem::Reservation => "tdm-reservation is neither 0 nor 1",
            TdmProblem::Policy => "tdm-policy is no absolute URL",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Preferences;
    use super::*;

    /// Returns the number of the rule that binds a path, with its declaration.
    fn bound(file: &TdmFile, path: &str) -> Option<String> {
        let rule = file.binding(path)?;
        let mut preferences = Preferences::default();
        preferences.add_tdm_rule(rule);
        let settled = preferences.settle();
        let said: Vec<_> = settled.iter().map(ToString::to_string).collect();
        Some(format!("{}: {}", rule.number, said.join(" ")))
    }

    /// One test per row: `"file" binds "path" by [rule], notes [notes];`
    macro_rules! files {
        ($($name:ident: $file:literal binds $path:literal by [$($rule:literal)?],
            notes [$($note:literal),*];)*) => {$(
            #[test]
            fn $name() {
                let file = TdmFile::parse($file.as_bytes());
                let rule: &[&str] = &[$($rule)?];
                let notes: &[&str] = &[$($note),*];
                assert_eq!(bound(&file, $path).as_deref(), rule.first().copied());
                let shown: Vec<_> = file.notes().iter().map(ToString::to_string).collect();
                assert_eq!(shown, notes);
            }
        )*};
    }

    // TDMRep, "TDM File on the Origin Server", and its examples.
    files! {
        rule_for_the_whole_site: r#"[{"location": "/", "tdm-reservation": 1}]"# binds "/a?b" by ["1: tdm-reservation:1"], notes [];
        rule_with_a_policy: r#"[{"location": "/b/", "tdm-reservation": 1, "tdm-policy": "https://h.example/p"}]"# binds "/b/c" by ["1: tdm-policy:https://h.example/p tdm-reservation:1"], notes [];
        first_match_counts: r#"[{"location": "/a", "tdm-reservation": 0}, {"location": "/a/b", "tdm-reservation": 1}]"# binds "/a/b" by ["1: tdm-reservation:0"], notes [];
        other_paths_are_unset: r#"[{"location": "/a/", "tdm-reservation": 1}]"# binds "/b" by [], notes [];
        paths_are_case_sensitive: r#"[{"location": "/A", "tdm-reservation": 1}]"# binds "/a" by [], notes [];
        star_is_a_wildcard: r#"[{"location": "/i/*.jpg", "tdm-reservation": 0}]"# binds "/i/a/b.jpg" by ["1: tdm-reservation:0"], notes [];
        star_may_be_first: r#"[{"location": "*.jpg$", "tdm-reservation": 1}]"# binds "/a.jpg" by ["1: tdm-reservation:1"], notes [];
        dollar_is_the_end: r#"[{"location": "/a$", "tdm-reservation": 1}]"# binds "/ab" by [], notes [];
        escaped_letters_are_letters: r#"[{"location": "/~a", "tdm-reservation": 1}]"# binds "/%7Ea" by ["1: tdm-reservation:1"], notes [];
        order_of_properties_means_nothing: r#"[{"tdm-reservation": 1, "x": [{}], "location": "/"}]"# binds "/" by ["1: tdm-reservation:1"], notes [];
        empty_array_says_nothing: "[]" binds "/" by [], notes [];
        other_reservation_is_unset: r#"[{"location": "/", "tdm-reservation": 2}]"# binds "/" by ["1: "], notes ["rule 1: tdm-reservation is neither 0 nor 1"];
        missing_reservation_is_unset: r#"[{"location": "/"}]"# binds "/" by ["1: "], notes ["rule 1: tdm-reservation is neither 0 nor 1"];
        boolean_is_not_a_reservation: r#"[{"location": "/", "tdm-reservation": true}]"# binds "/" by ["1: "], notes ["rule 1: tdm-reservation is neither 0 nor 1"];
        policy_without_reservation_is_dropped: r#"[{"location": "/", "tdm-reservation": 0, "tdm-policy": "https://h.example/p"}]"# binds "/" by ["1: tdm-reservation:0"], notes [];
    }

    // Ours: a mistake affects as little as possible.
    files! {
        number_may_be_a_text: r#"[{"location": "/", "tdm-reservation": "1"}]"# binds "/" by ["1: tdm-reservation:1"], notes [];
        null_is_absent: r#"[{"location": "/", "tdm-reservation": 1, "tdm-policy": null}]"# binds "/" by ["1: tdm-reservation:1"], notes [];
        relative_policy_is_left_out: r#"[{"location": "/", "tdm-reservation": 1, "tdm-policy": "/p"}]"# binds "/" by ["1: tdm-reservation:1"], notes ["rule 1: tdm-policy is no absolute URL"];
        rule_without_a_location_is_left_out: r#"[{"tdm-reservation": 1}, {"location": "/", "tdm-reservation": 0}]"# binds "/" by ["2: tdm-reservation:0"], notes ["rule 1: location is missing, or matches no path"];
        location_without_a_slash_is_left_out: r#"[{"location": "a/", "tdm-reservation": 1}]"# binds "/a/" by [], notes ["rule 1: location is missing, or matches no path"];
        location_that_is_no_text_is_left_out: r#"[{"location": ["/"], "tdm-reservation": 1}]"# binds "/" by [], notes ["rule 1: location is missing, or matches no path"];
        entry_that_is_no_rule_is_left_out: r#"[1, {"location": "/", "tdm-reservation": 1}]"# binds "/" by ["2: tdm-reservation:1"], notes ["rule 1: location is missing, or matches no path"];
        brackets_may_be_missing: r#"{"location": "/", "tdm-reservation": 1}"# binds "/" by ["1: tdm-reservation:1"], notes [];
        byte_order_mark_is_ignored: "\u{feff}[{\"location\": \"/\", \"tdm-reservation\": 1}]" binds "/" by ["1: tdm-reservation:1"], notes [];
        broken_file_says_nothing: r#"[{"location": "/", "tdm-reservation": 1},]"# binds "/" by [], notes ["the file is no JSON array of rules"];
        page_in_its_place_says_nothing: "<!doctype html>" binds "/" by [], notes ["the file is no JSON array of rules"];
    }

    // Ours: a file made to be slow or large has bounded cost.
    #[test]
    fn files_are_bounded() {
        let rule = r#"{"location": "/a", "tdm-reservation": 1}"#;
        let last = r#"{"location": "/b", "tdm-reservation": 1}"#;
        let file = |rules: usize| {
            let text = format!("[{}{last}]", format!("{rule},").repeat(rules - 1));
            TdmFile::parse(text.as_bytes())
        };
        let full = file(TdmFile::RULES_MAX);
        assert!(full.is_whole() && full.binding("/b").is_some());
        let beyond = file(TdmFile::RULES_MAX + 1);
        assert!(!beyond.is_whole() && beyond.binding("/b").is_none());
        let long = file(TdmFile::BYTES_MAX / rule.len());
        assert_eq!(long.notes()[0].problem, TdmProblem::TooLong);
        assert!(!long.is_whole() && long.binding("/a").is_none());
        let deep = TdmFile::parse("[".repeat(TdmFile::BYTES_MAX).as_bytes());
        assert_eq!(deep.notes()[0].problem, TdmProblem::NotRules);
    }

    /// Returns texts in which significant pieces are frequent.
    fn likely() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "[",
            "]",
            "{",
            "}",
            ",",
            ":",
            "\"location\"",
            "\"tdm-reservation\"",
            "\"tdm-policy\"",
            "\"/\"",
            "\"/*a$\"",
            "\"https://h\"",
            "1",
            "0",
            "null",
            "\"",
            "\\",
            "\u{e9}",
        ]);
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        // Ours: reading never fails, and the rules stay in order.
        #[test]
        fn anything_is_read(text in likely(), bytes in prop::collection::vec(any::<u8>(), 0..60), path in ".{0,20}") {
            for text in [text.as_bytes(), &bytes, &[b"[{\"location\":\"/", text.as_bytes(), b"\"}]"].concat()] {
                let file = TdmFile::parse(text);
                prop_assert!(file.rules.is_sorted_by_key(|rule| rule.number));
                let first = file.binding(&path);
                prop_assert!(first.is_none_or(|rule| file.rules.contains(rule)));
            }
        }
    }
}
