use http::HeaderValue;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use politesse_robots::Dialect;

/// Returns `name: value` lines as the fields of a response.
fn fields(lines: &[&str]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap();
        let name = HeaderName::try_from(name).unwrap();
        fields.append(
            name,
            HeaderValue::try_from(value.trim().as_bytes()).unwrap(),
        );
    }
    fields
}

/// Returns the preferences, each with the letters of its carriers.
fn shown(preferences: Preferences) -> Vec<String> {
    let settled = preferences.settle().into_iter();
    let shown = settled.map(|preference| {
        let carriers = preference.carriers.iter();
        let letters: Vec<_> = carriers.map(|carrier| carrier.letter().as_str()).collect();
        format!("{preference} {}", letters.join(" "))
    });
    shown.collect()
}

fn said(fields_of: &[&str], robots: &str, path: &str) -> Preferences {
    let mut preferences = Preferences::default();
    preferences.add_fields(&fields(fields_of));
    let robots = RobotsTxt::parse(robots.as_bytes());
    preferences.add_robots(&robots, &Crawler::parse("ExampleBot/1.0"), path);
    preferences
}

/// One test per row: `[field lines] says [preferences];`
macro_rules! response {
    ($($name:ident: [$($line:expr),*] says [$($said:expr),*];)*) => {$(
        #[test]
        fn $name() {
            let expected: &[&str] = &[$($said),*];
            assert_eq!(shown(said(&[$($line),*], "", "/")), expected);
        }
    )*};
}

/// One test per row: `"lines of the group" at "path" says [preferences];`
macro_rules! group {
    ($($name:ident: $lines:literal at $path:literal says [$($said:expr),*];)*) => {$(
        #[test]
        fn $name() {
            let expected: &[&str] = &[$($said),*];
            let robots = concat!("User-agent: *\nAllow: /\n", $lines);
            assert_eq!(shown(said(&[], robots, $path)), expected);
        }
    )*};
}

/// One test per row: `"whole file" says [preferences];` for `/` and ExampleBot.
macro_rules! robots_txt {
    ($($name:ident: $robots:literal says [$($said:expr),*];)*) => {$(
        #[test]
        fn $name() {
            let expected: &[&str] = &[$($said),*];
            assert_eq!(shown(said(&[], $robots, "/")), expected);
        }
    )*};
}

/// One test per row: `[field lines], page [call content] says [preferences];`
macro_rules! page {
    ($($name:ident: [$($line:expr),*], page [$($call:ident $content:expr),*]
        says [$($said:expr),*];)*) => {$(
        #[test]
        fn $name() {
            let expected: &[&str] = &[$($said),*];
            let mut preferences = said(&[$($line),*], "", "/");
            $(preferences.$call($content);)*
            assert_eq!(shown(preferences), expected);
        }
    )*};
}

// draft-ietf-aipref-attach-05, section 2; draft-ietf-aipref-vocab-08, section 6.
response! {
    usage_field_is_a_dictionary: ["Content-Usage: train-ai=n, search=y"] says ["search:y h", "train-ai:n h"];
    usage_lines_are_one_value: ["Content-Usage: train-ai=n", "Content-Usage: search=n"] says ["search:n h", "train-ai:n h"];
    last_of_a_label_counts: ["Content-Usage: train-ai=n, train-ai=y"] says ["train-ai:y h"];
    last_of_a_label_counts_across_lines: ["Content-Usage: train-ai=y", "Content-Usage: train-ai=n"] says ["train-ai:n h"];
    labels_that_are_no_tokens_are_unknown: ["Content-Usage: train-ai=y, train-ai, search=n, search=\"n\""] says [];
    parameters_mean_nothing: ["Content-Usage: train-ai;allow=n, train-ai=y;has=\"?\""] says ["train-ai:y h"];
    other_tokens_are_unknown: ["Content-Usage: train-ai=no, search=n"] says ["search:n h"];
    tokens_are_case_sensitive: ["Content-Usage: train-ai=N"] says [];
    labels_of_earlier_drafts_are_unknown: ["Content-Usage: tdm=n, ai=n, genai=n, train-genai=n, bots=n, ai-output=n, ai-use=n"] says [];
    inner_list_is_unknown: ["Content-Usage: train-ai=(n), search=n"] says ["search:n h"];
    upper_case_label_loses_all: ["Content-Usage: Train-AI=n, search=n"] says [];
    blank_before_the_value_loses_all: ["Content-Usage: train-ai = n, search=n"] says [];
    broken_member_loses_all: ["Content-Usage: train-ai=n, search=\"y"] says [];
    comma_at_the_end_loses_all: ["Content-Usage: train-ai=n,"] says [];
    path_in_a_field_loses_all: ["Content-Usage: /a train-ai=n"] says [];
    broken_line_loses_all_lines: ["Content-Usage: train-ai=n", "Content-Usage: ?"] says [];
    empty_usage_line_adds_nothing: ["Content-Usage:", "Content-Usage: train-ai=n"] says ["train-ai:n h"];
    usage_out_of_ascii_is_unknown: ["Content-Usage: train-ai=\u{f1}"] says [];
    response_without_fields_says_nothing: [] says [];
    robots_directives_are_not_preferences: ["X-Robots-Tag: noai, noimageai"] says [];
}

// contentsignals.org; allow and disallow are from Spatie's packages, and the field is
// from Cloudflare's Markdown for Agents. The tolerance is ours.
response! {
    signals_are_a_comma_list: ["Content-Signal: search=yes, ai-input=no, ai-train=no"] says ["ai-input:n h", "ai-train:n h", "search:y h"];
    allow_and_disallow_are_answers: ["Content-Signal: ai-train=disallow, ai-input=allow"] says ["ai-input:y h", "ai-train:n h"];
    letters_are_answers: ["Content-Signal: ai-train=n, ai-input=y"] says ["ai-input:y h", "ai-train:n h"];
    signals_are_case_insensitive: ["Content-Signal: AI-Train=NO"] says ["ai-train:n h"];
    blanks_do_not_count: ["Content-Signal: ai-train = no ,search= yes"] says ["ai-train:n h", "search:y h"];
    commas_may_be_missing: ["Content-Signal: search=yes ai-train=no;ai-input=no"] says ["ai-input:n h", "ai-train:n h", "search:y h"];
    quotes_do_not_count: ["Content-Signal: ai-train=\"no\", 'search'='yes'"] says ["ai-train:n h", "search:y h"];
    unknown_signals_say_nothing: ["Content-Signal: ai-see=no, xai-train=no, ai-train-x=no"] says [];
    unknown_answers_say_nothing: ["Content-Signal: ai-train=maybe, search=, ai-input=no"] says ["ai-input:n h"];
    signal_without_a_name_says_nothing: ["Content-Signal: =no, allow"] says [];
    no_wins_within_a_line: ["Content-Signal: ai-train=no, ai-train=yes"] says ["ai-train:n h"];
    no_wins_across_lines: ["Content-Signal: ai-train=yes", "Content-Signal: ai-train=no"] says ["ai-train:n h"];
    use_has_three_levels: ["Content-Signal: use=reference"] says ["use:reference h"];
    strictest_use_counts: ["Content-Signal: use=full, use=immediate, use=reference"] says ["use:immediate h"];
    use_is_not_yes_or_no: ["Content-Signal: use=no, ai-train=full"] says [];
    search_is_one_use_in_both: ["Content-Usage: search=n", "Content-Signal: search=yes"] says ["search:n h"];
    training_has_two_names: ["Content-Usage: train-ai=y", "Content-Signal: ai-train=no"] says ["ai-train:n h", "train-ai:y h"];
    signals_survive_other_bytes: ["Content-Signal: \u{e9}=no, ai-train=no"] says ["ai-train:n h"];
}

// draft-ietf-aipref-attach-05, sections 3.1, 3.2 and 3.4.
group! {
    rule_without_a_path_is_for_all: "Content-Usage: train-ai=n\n" at "/test" says ["train-ai:n u"];
    longest_path_counts: "Content-Usage: train-ai=n\nContent-Usage: /ai-ok/ train-ai=y\n" at "/ai-ok/test" says ["train-ai:y u"];
    order_means_nothing: "Content-Usage: /ai-ok/ train-ai=y\nContent-Usage: train-ai=n\n" at "/ai-ok/test" says ["train-ai:y u"];
    other_paths_keep_the_shorter: "Content-Usage: train-ai=n\nContent-Usage: /ai-ok/ train-ai=y\n" at "/test" says ["train-ai:n u"];
    only_the_longest_path_counts: "Content-Usage: train-ai=n\nContent-Usage: /a search=y\n" at "/a" says ["search:y u"];
    equal_paths_add_up: "Content-Usage: /a train-ai=y\nContent-Usage: /a train-ai=n, search=y\n" at "/a/b" says ["search:y u", "train-ai:n u"];
    no_path_is_as_long_as_the_root: "Content-Usage: train-ai=n\nContent-Usage: / train-ai=y\n" at "/a" says ["train-ai:n u"];
    path_that_does_not_match_says_nothing: "Content-Usage: /a train-ai=n\n" at "/b" says [];
    tab_ends_the_path: "Content-Usage: /a\t train-ai=n\n" at "/a" says ["train-ai:n u"];
    comment_ends_the_rule: "Content-Usage: train-ai=n # search=n\n" at "/" says ["train-ai:n u"];
    label_is_case_insensitive: "  CONTENT-USAGE\t:train-ai=n\n" at "/" says ["train-ai:n u"];
    broken_rule_says_nothing: "Content-Usage: train-ai = n\n" at "/" says [];
    path_alone_is_no_rule: "Content-Usage: train-ai=n\nContent-Usage: /a\n" at "/a" says ["train-ai:n u"];
    broken_rule_counts_where_it_is_longest: "Content-Usage: train-ai=n\nContent-Usage: /a train-ai=?\n" at "/a" says [];
}

// RFC 9309, sections 2.2.2 and 2.2.3, by draft-ietf-aipref-attach-05, 3.1.
group! {
    star_is_a_wildcard: "Content-Usage: /*.pdf$ train-ai=n\n" at "/a/b.pdf" says ["train-ai:n u"];
    dollar_is_the_end: "Content-Usage: /*.pdf$ train-ai=n\n" at "/a.pdf?x" says [];
    escapes_are_compared_in_one_form: "Content-Usage: /%7ea/\u{30c4} train-ai=n\n" at "/~a/%e3%83%84" says ["train-ai:n u"];
    length_is_in_bytes_of_the_escaped_path: "Content-Usage: /%E3%83%84 train-ai=n\nContent-Usage: /\u{30c4} train-ai=y\n" at "/\u{30c4}" says ["train-ai:n u"];
    query_is_part_of_the_path: "Content-Usage: /a?x= train-ai=n\n" at "/a?x=1" says ["train-ai:n u"];
}

// Cloudflare's managed robots.txt, and real files that use a path.
group! {
    signals_stand_in_a_group: "Content-signal: search=yes,ai-train=no,use=reference\n" at "/" says ["ai-train:n u", "search:y u", "use:reference u"];
    signal_may_have_a_path: "Content-Signal: / ai-train=yes\nContent-Signal: /private/ ai-train=no\n" at "/private/a" says ["ai-train:n u"];
    signal_of_another_path_says_nothing: "Content-Signal: /private/ ai-train=no\n" at "/a" says [];
    paths_are_compared_by_vocabulary: "Content-Signal: search=no\nContent-Usage: /a search=y\n" at "/a" says ["search:n u"];
    signal_without_value_says_nothing: "Content-Signal: allow\n" at "/" says [];
}

// RFC 9309, section 2.2.1: a crawler that is named is bound only by its own groups.
// Reading lines above all groups as addressed to everyone is ours, as in
// crawler-commons.
robots_txt! {
    own_group_replaces_the_general_one: "User-agent: *\nAllow: /\nContent-Usage: train-ai=n\nUser-agent: ExampleBot\nContent-Usage: train-ai=y\nAllow: /\n" says ["train-ai:y u"];
    own_group_without_lines_says_nothing: "User-agent: *\nAllow: /\nContent-Signal: ai-train=no\nUser-agent: ExampleBot\nAllow: /\n" says [];
    own_groups_are_merged: "User-agent: ExampleBot\nContent-Usage: train-ai=n\nAllow: /\nUser-agent: examplebot\nContent-Usage: train-ai=y, search=y\n" says ["search:y u", "train-ai:n u"];
    line_above_the_groups_is_for_everyone: "Content-Signal: ai-train=no\nUser-agent: ExampleBot\nAllow: /\n" says ["ai-train:n u"];
    no_wins_over_the_own_group: "Content-Signal: ai-train=no\nUser-agent: ExampleBot\nContent-Signal: ai-train=yes\n" says ["ai-train:n u"];
    line_between_agents_does_not_end_the_list: "User-agent: A\nContent-Usage: train-ai=n\nUser-agent: ExampleBot\nAllow: /\n" says ["train-ai:n u"];
    file_of_other_lines_says_nothing: "User-agent: *\nDisallow: /a\nSitemap: https://h.example/\n" says [];
}

// RSL 1.0, robots.txt.
robots_txt! {
    license_is_for_everyone: "License: https://h.example/l.xml\nUser-agent: *\nAllow: /\n" says ["license:https://h.example/l.xml u"];
    own_license_replaces_it: "License: https://h.example/l.xml\nUser-agent: *\nLicense: https://h.example/own.xml\n" says ["license:https://h.example/own.xml u"];
    several_licenses_are_listed: "License: https://h.example/b\nLicense: https://h.example/a\nLicense: https://h.example/b\n" says ["license:https://h.example/a u", "license:https://h.example/b u"];
    license_of_another_group_does_not_count: "License: https://h.example/l.xml\nUser-agent: A\nLicense: https://h.example/a.xml\nAllow: /\n" says ["license:https://h.example/l.xml u"];
    relative_license_does_not_count: "License: /l.xml\nLicense: h.example/l.xml\nLicense: https:///l.xml\n" says [];
    invalid_own_license_replaces_nothing: "License: https://h.example/l.xml\nUser-agent: *\nLicense: /own.xml\n" says ["license:https://h.example/l.xml u"];
    license_needs_no_escaping: "License: https://h.example/\u{e9} a.xml\n" says ["license:https://h.example/%C3%A9%20a.xml u"];
    british_spelling_is_accepted: "Licence: HTTPS://h.example/l.xml\n" says ["license:HTTPS://h.example/l.xml u"];
}

// RSL 1.0, Link; RFC 8288, section 3 and appendix B.
response! {
    link_names_a_license: ["Link: <https://h.example/l.xml>; rel=\"license\"; type=\"application/rsl+xml\""] says ["license:https://h.example/l.xml h"];
    link_needs_no_quotes: ["Link: <https://h.example/l.xml>;type=application/rsl+xml;rel=license"] says ["license:https://h.example/l.xml h"];
    link_parameters_are_case_insensitive: ["Link: <https://h.example/l.xml> ; REL = License ; Type=\"Application/RSL+XML; charset=utf-8\""] says ["license:https://h.example/l.xml h"];
    one_of_several_relations_is_enough: ["Link: </l.xml>; rel=\"describedby license\"; type=\"application/rsl+xml\""] says ["license:/l.xml h"];
    license_of_another_type_is_not_of_rsl: ["Link: <https://cc.example/by>; rel=license", "Link: </l>; rel=license; type=text/html"] says [];
    other_relations_are_ignored: ["Link: </l>; rel=\"license-x\"; type=\"application/rsl+xml\"", "Link: </l>; type=\"application/rsl+xml\""] says [];
    first_relation_counts: ["Link: </l>; rel=next; rel=license; type=\"application/rsl+xml\""] says [];
    links_share_a_line: ["Link: </a>; rel=next, </b>; rel=license; type=\"application/rsl+xml\", </c>; rel=\"license\"; type=application/rsl+xml"] says ["license:/b h", "license:/c h"];
    comma_in_a_target_separates_nothing: ["Link: </a,b;c>; rel=license; type=application/rsl+xml"] says ["license:/a,b;c h"];
    comma_in_quotes_separates_nothing: ["Link: </l>; title=\"a, <b>; \\\" c\"; rel=license; type=application/rsl+xml"] says ["license:/l h"];
    escapes_in_quotes_are_undone: ["Link: </l>; rel=\"lic\\ense\"; type=\"application/rsl+xml\""] says ["license:/l h"];
    link_about_another_resource_is_ignored: ["Link: </l>; rel=license; type=application/rsl+xml; anchor=\"/other\""] says [];
    anchor_within_the_response_is_accepted: ["Link: </l>; rel=license; type=application/rsl+xml; anchor=\"#part\""] says ["license:/l h"];
    text_that_is_not_a_link_is_skipped: ["Link: junk \", <\", </l>; rel=license; type=application/rsl+xml"] says ["license:/l h"];
    unclosed_target_is_ignored: ["Link: </l; rel=license; type=application/rsl+xml"] says [];
    empty_target_is_ignored: ["Link: <>; rel=license; type=application/rsl+xml"] says [];
    unclosed_quotes_extend_to_the_end: ["Link: </l>; rel=license; type=\"application/rsl+xml"] says ["license:/l h"];
}

// TDMRep, "TDM Header Field in HTTP Responses" and "tdm-reservation".
response! {
    mining_is_reserved: ["tdm-reservation: 1"] says ["tdm-reservation:1 h"];
    mining_is_not_reserved: ["tdm-reservation: 0"] says ["tdm-reservation:0 h"];
    other_values_are_unset: ["tdm-reservation: 2"] says [];
    words_are_unset: ["tdm-reservation: true"] says [];
    policy_goes_with_a_reservation: ["tdm-reservation: 1", "tdm-policy: https://h.example/p.json"] says ["tdm-policy:https://h.example/p.json h", "tdm-reservation:1 h"];
    policy_without_reservation_is_ignored: ["tdm-reservation: 0", "tdm-policy: https://h.example/p.json"] says [ "tdm-reservation:0 h"];
    policy_alone_is_ignored: ["tdm-policy: https://h.example/p.json"] says [];
    relative_policy_is_ignored: ["tdm-reservation: 1", "tdm-policy: /p.json"] says ["tdm-reservation:1 h"];
    first_policy_counts: ["tdm-reservation: 1", "tdm-policy: x", "tdm-policy: https://h.example/a,b", "tdm-policy: https://h.example/c"] says ["tdm-policy:https://h.example/a,b h", "tdm-reservation:1 h"];
    strictest_of_several_counts: ["tdm-reservation: 1", "tdm-reservation: 0"] says ["tdm-reservation:1 h"];
    joined_values_are_several: ["tdm-reservation: 0, 1"] says ["tdm-reservation:1 h"];
}

// TDMRep, "Processing priority": a later declaration supersedes, absence does not
// reset.
page! {
    page_reserves: [], page [add_tdm_reservation "1"] says ["tdm-reservation:1 m"];
    page_supersedes_a_field: ["tdm-reservation: 1"], page [add_tdm_reservation "0"] says ["tdm-reservation:0 m"];
    page_supersedes_a_field_that_allows: ["tdm-reservation: 0"], page [add_tdm_reservation " 1 "] says ["tdm-reservation:1 m"];
    page_agrees: ["tdm-reservation: 1"], page [add_tdm_reservation "1"] says ["tdm-reservation:1 h m"];
    absence_does_not_reset: ["tdm-reservation: 1"], page [add_tdm_policy "https://h.example/p"] says ["tdm-policy:https://h.example/p m", "tdm-reservation:1 h"];
    invalid_value_does_not_reset: ["tdm-reservation: 1"], page [add_tdm_reservation "none"] says ["tdm-reservation:1 h"];
    policy_of_the_page_supersedes: ["tdm-reservation: 1", "tdm-policy: https://h.example/a"], page [add_tdm_policy "https://h.example/b"] says ["tdm-policy:https://h.example/b m", "tdm-reservation:1 h"];
    policy_of_the_field_stays: ["tdm-policy: https://h.example/a"], page [add_tdm_reservation "1"] says ["tdm-policy:https://h.example/a h", "tdm-reservation:1 m"];
}

/// Returns the preferences if the TDM file declares `file`.
fn with_file(file: &str, fields_of: &[&str], meta: &str) -> Vec<String> {
    let mut preferences = said(fields_of, "", "/");
    let text = format!(r#"[{{"location": "/", {file}}}]"#);
    let file = TdmFile::parse(text.as_bytes());
    preferences.add_tdm_rule(file.binding("/").unwrap());
    preferences.add_tdm_reservation(meta);
    shown(preferences)
}

/// One test per row: `"file", [field lines], "meta" says [preferences];`
macro_rules! tdm_file {
    ($($name:ident: $file:literal, [$($line:expr),*], $meta:literal
        says [$($said:expr),*];)*) => {$(
        #[test]
        fn $name() {
            let expected: &[&str] = &[$($said),*];
            assert_eq!(with_file($file, &[$($line),*], $meta), expected);
        }
    )*};
}

// TDMRep, "Processing priority": every other declaration supersedes the file.
tdm_file! {
    file_reserves: r#""tdm-reservation": 1"#, [], "" says ["tdm-reservation:1 f"];
    field_supersedes_the_file: r#""tdm-reservation": 1"#, ["tdm-reservation: 0"], "" says ["tdm-reservation:0 h"];
    page_supersedes_the_file: r#""tdm-reservation": 0"#, [], "1" says ["tdm-reservation:1 m"];
    page_supersedes_field_and_file: r#""tdm-reservation": 1"#, ["tdm-reservation: 0"], "1" says ["tdm-reservation:1 f m"];
    absent_field_does_not_reset_the_file: r#""tdm-reservation": 1"#, ["tdm-policy: https://h.example/p"], "" says ["tdm-policy:https://h.example/p h", "tdm-reservation:1 f"];
    invalid_field_does_not_reset_the_file: r#""tdm-reservation": 1"#, ["tdm-reservation: no"], "no" says ["tdm-reservation:1 f"];
    unset_file_says_nothing: r#""tdm-reservation": 2"#, [], "" says [];
}

// RSL 1.0, HTML; the escaping of URLs is ours.
page! {
    page_names_a_license: [], page [add_license "https://h.example/l.xml"] says ["license:https://h.example/l.xml m"];
    relative_link_stays_as_written: [], page [add_license " l.xml "] says ["license:l.xml m"];
    same_license_is_listed_once: ["Link: </l>; rel=license; type=application/rsl+xml"], page [add_license "/l"] says ["license:/l h m"];
    licenses_that_differ_are_all_listed: ["Link: </l>; rel=license; type=application/rsl+xml"], page [add_license "/m"] says ["license:/l h", "license:/m m"];
    control_character_is_no_url: [], page [add_license "/a\nb", add_license "/a\u{7f}", add_license ""] says [];
    url_is_escaped_to_ascii: [], page [add_license "/\u{e9} \"\\"] says ["license:/%C3%A9%20\"\\ m"];
}

// draft-ietf-aipref-vocab-08, section 5.1: any statement that disallows wins.
#[test]
fn strictest_of_field_and_robots_txt_counts() {
    let robots = "User-agent: *\nContent-Usage: train-ai=n, search=y\n";
    let strict = said(&["Content-Usage: train-ai=y, search=y"], robots, "/");
    assert_eq!(shown(strict), ["search:y u h", "train-ai:n u"]);
    let robots = "User-agent: *\nContent-Usage: train-ai=y\n";
    let strict = said(&["Content-Usage: train-ai=n"], robots, "/");
    assert_eq!(shown(strict), ["train-ai:n h"]);
}

// Ours: a refusal cites the line.
#[test]
fn the_first_of_the_strictest_lines_is_cited() {
    let line = |fields_of: &[&str], lines: &str| {
        let robots = format!("User-agent: *\nAllow: /\n{lines}");
        let settled = said(fields_of, &robots, "/a").settle();
        settled.iter().map(|it| it.line).collect::<Vec<_>>()
    };
    let usage = "Content-Usage: search=y\nContent-Signal: search=no\nContent-Usage: /a search=n\n";
    assert_eq!(line(&[], usage), [Some(4)]);
    assert_eq!(line(&["Content-Usage: search=y"], usage), [Some(4)]);
    assert_eq!(line(&["Content-Usage: search=n"], usage), [Some(4)]);
    assert_eq!(
        line(&["Content-Usage: search=n"], "Content-Signal: search=yes\n"),
        [None]
    );
    assert_eq!(
        line(&["tdm-reservation: 1"], "License: https://h.example/\n"),
        [None; 2]
    );
}

// Ours: the length of the annotation is bounded.
#[test]
fn licenses_are_bounded() {
    let mut preferences = Preferences::default();
    for number in 0..100 {
        preferences.add_license(&format!("/{number}"));
    }
    preferences.add_license("/3");
    assert_eq!(preferences.settle().len(), license::LICENSES_MAX);
}

#[test]
fn urls_are_bounded() {
    let long = |bytes: usize| format!("/{}", "a".repeat(bytes - 1));
    let mut preferences = Preferences::default();
    preferences.add_license(&long(preference::URL_BYTES_MAX));
    preferences.add_license(&long(preference::URL_BYTES_MAX + 1));
    preferences.add_license(&" ".repeat(preference::URL_BYTES_MAX / 2));
    preferences.add_license(&"\u{e9}".repeat(preference::URL_BYTES_MAX / 4));
    assert_eq!(preferences.settle().len(), 1);
}

// Ours: most responses state nothing, and the proxy reads preferences for each.
#[test]
fn response_without_statements_allocates_nothing() {
    let fields = fields(&["Content-Type: text/html", "X-Robots-Tag: noindex"]);
    let robots = RobotsTxt::parse(b"User-agent: *\nDisallow: /a\n");
    let crawler = Crawler::parse("ExampleBot/1.0");
    let settle = || {
        let mut preferences = Preferences::default();
        preferences.add_fields(&fields);
        preferences.add_robots(&robots, &crawler, "/");
        assert!(preferences.settle().is_empty());
    };
    settle();
    assert_eq!(allocation_counter::measure(settle).count_total, 0);
}

// Ours: a file made to be slow takes linear time.
#[test]
fn hostile_rules_are_read_in_linear_time() {
    let rule = format!("Content-Usage: /{} train-ai=n\n", "*a".repeat(400));
    let robots = format!("User-agent: *\n{}", rule.repeat(600));
    let path = format!("/{}", "a".repeat(399).repeat(10));
    assert_eq!(shown(said(&[], &robots, &path)), ["train-ai:n u"]);
    assert_eq!(shown(said(&[], &robots, "/b")), [] as [&str; 0]);
}

// draft-ietf-aipref-attach-05, section 3.1: RFC 9309 applies, in whichever dialect the
// file is read.
#[test]
fn paths_match_the_same_in_every_dialect() {
    for dialect in [Dialect::Consensus1994, Dialect::Conner, Dialect::Google] {
        let file = "User-agent: *\nContent-Usage: train-ai=n\nContent-Usage: /*b search=n\n";
        let robots = RobotsTxt::in_dialect(file, dialect);
        for (path, expected) in [("/a", ["train-ai:n u"]), ("/ab", ["search:n u"])] {
            let mut preferences = Preferences::default();
            preferences.add_robots(&robots, &Crawler::parse("ExampleBot"), path);
            assert_eq!(shown(preferences), expected, "{dialect}");
        }
    }
}

/// Returns texts in which significant bytes are frequent.
fn likely() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "train-ai",
        "search",
        "ai-train",
        "use",
        "license",
        "rel",
        "type",
        "anchor",
        "yes",
        "no",
        "n",
        "y",
        "full",
        "application/rsl+xml",
        "https://h",
        "<",
        ">",
        ";",
        "=",
        ",",
        "\"",
        "\\",
        " ",
        "\t",
        "/",
        "*",
        "$",
        "%2",
        "1",
        "0",
        "\u{e9}",
        "#",
        "(",
        ")",
        "?",
    ]);
    vec(piece, 0..24).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    // Ours: for any input, the settled preferences can be written as RFC 9651 requires.
    #[test]
    fn any_input_settles_to_valid_text(values in vec(likely(), 5), page in ".{0,40}") {
        let mut fields = HeaderMap::new();
        let names = [&CONTENT_USAGE, &CONTENT_SIGNAL, &TDM_RESERVATION, &TDM_POLICY, &LINK];
        let mut robots = b"User-agent: *\n".to_vec();
        for (name, value) in names.into_iter().zip(&values) {
            fields.append(name, HeaderValue::from_bytes(value).unwrap());
            robots.extend_from_slice([name.as_str().as_bytes(), b":", value, b"\nLicense:", value, b"\n"].concat().as_slice());
        }
        let mut preferences = Preferences::default();
        preferences.add_fields(&fields);
        preferences.add_robots(&RobotsTxt::parse(&robots), &Crawler::parse("A"), &page);
        preferences.add_license(&page);
        preferences.add_tdm_policy(&page);
        preferences.add_tdm_reservation(&page);
        let settled = preferences.settle();
        prop_assert!(settled.is_sorted_by_key(|preference| preference.name));
        for preference in settled {
            prop_assert!(!preference.carriers.is_empty());
            if let PreferenceValue::Text(url) = preference.value {
                prop_assert!(url.len() <= preference::URL_BYTES_MAX);
                prop_assert!(sfv::StringRef::from_str(&url).is_ok());
            }
        }
    }
}
