//! Damaged lists, generated from the words that their author meant: the reader must
//! find each of them. Ours; see docs/annotation.md.

use jiff::Timestamp;
use politesse_directives::{AnnotationContext, DirectiveCollector, DirectiveLimits, Meta};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Restrictions as they should be written, and as people write them.
const WORDS: [(&str, &[&str]); 6] = [
    (
        "noindex",
        &["noindex", "no-index", "NO_INDEX", "no\u{200B}index"],
    ),
    (
        "nofollow",
        &["NoFollow", "no\u{2011}follow", "\u{FEFF}nofollow"],
    ),
    (
        "noimageindex",
        &["no-image-index", "noimage_index", "no\u{AD}imageindex"],
    ),
    ("noarchive", &["noarchive\u{200D}", "n\u{2060}oarchive"]),
    ("max-snippet:20", &["max_snippet:20", "max-snippet=20"]),
    (
        "unavailable_after:2100-12-03T13:09:53Z",
        &[
            "unavailable-after: Wed, 03 Dec 2100 13:09:53 GMT ",
            "unavailable_after: 2100-12-03T14:09:53.25+01:00 ",
            "unavailable_after\u{FF1A} Wed\u{60C} 03 Dec 2100 13:09:53 GMT ",
        ],
    ),
];

const SEPARATORS: [&str; 13] = [
    ",",
    ";",
    "|",
    "&",
    "/",
    ".",
    "+",
    " + ",
    "\u{FF0C}",
    "\u{3001}",
    "\u{60C}",
    "!",
    ",no archive,",
];

/// Returns the restrictions of a list for `token`, in a meta and in a field.
fn restricted(token: &str, name: &str, list: &str) -> [Vec<String>; 2] {
    let tokens = [token];
    let collector = || {
        DirectiveCollector::new(AnnotationContext {
            tokens: &tokens,
            now: Timestamp::UNIX_EPOCH,
            robots: None,
            limits: DirectiveLimits::default(),
        })
    };
    let mut meta = collector();
    meta.add_meta(&Meta {
        name: name.to_owned(),
        content: list.to_owned(),
    });
    let mut field = collector();
    field.add_field("X-Robots-Tag", format!("{name}: {list}").as_bytes());
    [meta, field].map(|collector| collector.annotation().directives())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_word_of_a_damaged_list_counts(
        parts in vec((select(WORDS.to_vec()), 0_usize..12, select(SEPARATORS.to_vec())), 1..6),
        names in select(vec!["robots", "a,ExampleBot", "ExampleBot,b/1", "a|ExampleBot&b"]),
    ) {
        let texts = parts.iter().map(|((_, damaged), at, separator)| {
            format!("{}{separator}", damaged[at % damaged.len()])
        });
        let list: String = texts.collect();
        for found in restricted("ExampleBot", names, &list) {
            for ((wanted, _), ..) in &parts {
                prop_assert!(found.iter().any(|it| it == wanted), "{list:?}: {found:?}");
            }
        }
        if names != "robots" {
            let others = restricted("OtherBot", names, &list);
            prop_assert_eq!(others, [const { Vec::<String>::new() }; 2], "{}: {:?}", names, list);
        }
    }
}
