//! Tests of the meta scanner against `tests/reference/html.rs`: every HTML case and
//! many generated pages, cut at every byte and pushed in chunks of several sizes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

#[path = "../reference/html.rs"]
mod html;

#[path = "../reference/scanned.rs"]
mod scanned;

use scanned::{restricts, scanned};

const CASES: [&str; 2] = [
    include_str!("../../cases/directives.jsonl"),
    include_str!("../../cases/directives-ours.jsonl"),
];

/// Returns how a page differs from the reference, cut at any position.
fn difference(page: &str) -> Option<String> {
    let (first, page_bytes) = (scanned(page.as_bytes(), 1), page.len().max(1));
    for chunk_bytes in [2, 7, page_bytes] {
        let other = scanned(page.as_bytes(), chunk_bytes);
        if format!("{first:?}") != format!("{other:?}") {
            return Some(format!(
                "chunks of {chunk_bytes}: {page:?}\n{first:?}\n{other:?}"
            ));
        }
    }
    let ends = (0..=page.len()).filter(|&end| page.is_char_boundary(end));
    let mut differences = ends.filter_map(|end| {
        let beginning = &page[..end];
        let scanned = scanned(beginning.as_bytes(), page_bytes);
        let difference = html::difference(beginning, &scanned, restricts)?;
        Some(format!("{beginning:?}: {difference}"))
    });
    differences.next()
}

// Ours: every case that is HTML in UTF-8.
#[test]
fn every_case_reads_as_in_a_browser() {
    let mut read = 0;
    for line in CASES.into_iter().flat_map(str::lines) {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let Some(page) = case["body"].as_str().filter(|page| page.len() < 4096) else {
            continue;
        };
        assert_eq!(difference(page), None, "{}", case["id"]);
        read += 1;
    }
    assert!(150 < read, "the cases were not found");
}

/// A meta that may count, and one that is outside the head unless an earlier element
/// hides it.
const METAS: &str = "<meta name=a content=noindex><p><meta name=b content=noindex>";

/// Reports whether the scanner is certain how the page reads after this markup, and
/// checks that it agrees with a browser.
fn is_known_behind(markup: &str) -> bool {
    let page = format!("{markup}{METAS}");
    assert_eq!(difference(&page), None);
    !scanned(page.as_bytes(), 7).is_doubtful
}

macro_rules! pages {
    ($($name:ident: $known:literal $markup:expr;)*) => {$(
        #[test]
        fn $name() {
            assert_eq!(is_known_behind($markup), $known);
        }
    )*};
}

// HTML standard, 13.2.5 and 13.2.6; the reading of noscript is ours.
pages! {
    a_template_in_svg_is_not_a_template: true "<template><svg><template></svg></template>";
    a_template_closes_svg: true "<template><svg><path></template><style></style>";
    svg_that_closes_itself_is_empty: true "<template><svg/><style></template></style></template>";
    a_style_in_svg_is_markup: true "<template><svg><style></svg></template>";
    a_title_in_svg_is_markup: true "<template><svg><title>x</title></svg></template>";
    html_in_svg_leaves_a_doubt: false "<template><svg><title><b></title></svg></template>";
    math_in_svg_is_svg: true "<template><svg><math></svg><title></template></title></template>";
    cdata_in_svg_leaves_a_doubt: false "<template><svg><![CDATA[></template>]]></svg></template>";
    a_paragraph_leaves_svg: true "<template><svg><p><style></template></style></template>";
    an_html_end_tag_in_svg_leaves_a_doubt: false "<template><b><svg></b><style></template>";
    columns_ignore_a_style: true "<template><col><style></template>";
    columns_ignore_svg: true "<template><col><svg><template></template></template>";
    rows_hold_a_style: true "<template><tr><style></template></style></template>";
    a_select_holds_a_style: true "<template><select><style></template></style></select></template>";
    plaintext_in_a_template_hides_all: true "<template><plaintext></template>";
    a_frameset_in_a_template_is_ignored: true "<template><frameset></template>";
    a_frameset_ends_the_head: true "<frameset>";
    a_missing_value_ends_a_tag: true "<script src=></script>";
    a_missing_value_ends_a_title: true "<title a= ></br></title>";
    a_missing_value_ends_a_noscript: true "<noscript a=></br></noscript>";
    a_missing_value_is_not_an_equals_sign: true "<title a=b =></br></title>";
    a_missing_value_in_an_end_tag: true "<title></br></title a=>";
    a_blank_reference_is_blank: true "<head>&#32;&Tab;&#x20";
    a_reference_in_two_halves_is_not_blank: true "<head>&#3<!-- -->2;";
    an_ampersand_is_text: true "<head>&";
    an_unknown_reference_is_text: true "<head>&Tabx;";
    a_named_reference_is_text_at_once: true "<head>&comma;";
    a_nul_is_text: true "<head>\0";
    a_noscript_may_hold_a_style: true "<noscript><style>p{}</style></noscript>";
    a_style_across_a_noscript_leaves_a_doubt: false "<noscript><style></noscript><p></style>";
    a_comment_across_a_noscript_leaves_a_doubt: false "<noscript><!-- </noscript> -->";
    a_meta_across_a_noscript_leaves_a_doubt: false "<noscript><meta name=c a='</noscript>' content=noai>";
    a_template_across_a_noscript_leaves_a_doubt: false "<noscript><template></noscript></template>";
    a_noscript_in_a_template: true "<template><noscript><p></noscript></template>";
    a_template_end_in_a_noscript_leaves_a_doubt: false "<template><noscript></template></noscript>";
    a_noscript_in_a_noscript: true "<noscript><noscript><meta name=c content=noai></noscript>";
    a_noscript_after_the_head_ends_it: true "</head><noscript></noscript>";
    svg_in_a_noscript: true "<noscript><svg><style></svg></noscript>";
    an_end_tag_may_have_attributes: true "<head></p a='</body>'>";
    end_tags_that_open_a_body: true "<head></br/>";
    a_script_with_a_script_in_a_comment: true "<script><!--<script></script>--></script>";
    a_script_whose_comment_ends: true "<script><!--<script>--></script>";
    a_script_in_capitals: true "<SCRIPT><!--<sCript></SCRIPT >--></ScRiPt/>";
    a_comment_may_end_oddly: true "<!--><!---><!-- --!><!-- <!-- --><!-->";
    a_bogus_comment: true "<?php > <!x></ x><![CDATA[>";
    a_doctype_may_hold_much: true "<!doctype html public '<p>";
    a_title_is_ended_by_its_own_tag: true "<title></titlex></title";
    a_tag_may_end_without_a_name: true "<head></></head></>";
    an_attribute_may_hold_a_tag: true "<link a='<p>' b=\"</br>\" c=<p";
    a_second_head_and_html_are_ignored: true "<html><head><html a><head></head><head>";
    a_meta_may_follow_the_head_element: true "</head> <!-- --> ";
    noframes_are_text: true "<noframes><p></noframes>";
}

/// Parts that can be combined into nearly any page.
const PARTS: [&str; 85] = [
    "<head>",
    "</head>",
    "<html>",
    "</html>",
    "<body>",
    "</body>",
    "<p>",
    "</p>",
    "<br/>",
    "</br>",
    "<meta name=c content=noai>",
    "<META NAME='d' x CONTENT=\"none\"/>",
    "<meta name=robot content=nofollow>",
    "<meta name=e",
    " content=nofollow>",
    "<meta content=noindex name=f name=g>",
    "<link>",
    "<base>",
    "<title>",
    "</title>",
    "<title a=>",
    "<style>",
    "</style>",
    "<script>",
    "</script>",
    "<script a=>",
    "<!--",
    "-->",
    "--!>",
    "--",
    "<noscript>",
    "</noscript>",
    "<noscript a=>",
    "<template>",
    "</template>",
    "<svg>",
    "</svg>",
    "<svg/>",
    "<math>",
    "</math>",
    "<mi>",
    "</mi>",
    "<desc>",
    "</desc>",
    "<annotation-xml encoding=text/html>",
    "<table>",
    "<tr>",
    "<td>",
    "<col>",
    "<colgroup>",
    "</table>",
    "</colgroup>",
    "<select>",
    "</select>",
    "<option>",
    "<textarea>",
    "</textarea>",
    "<plaintext>",
    "<frameset>",
    "<noframes>",
    "</noframes>",
    "<iframe>",
    "</iframe>",
    "<b>",
    "</b>",
    "<font size=1>",
    "<font>",
    "<div>",
    "</div>",
    "<![CDATA[",
    "]]>",
    "<?x",
    ">",
    "<",
    "/",
    "=",
    "\"",
    "'",
    "&",
    "&#32;",
    "&Tab;",
    "&#3",
    "2;",
    " ",
    "\0",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, rng_seed: RngSeed::Fixed(9309), ..ProptestConfig::default() })]

    // HTML standard, 13.2.
    #[test]
    fn any_page_reads_as_in_a_browser(parts in vec(prop::sample::select(PARTS.to_vec()), 0..14)) {
        let page = format!("{}{METAS}", parts.concat());
        prop_assert_eq!(difference(&page), None);
    }

    #[test]
    fn any_template_reads_as_in_a_browser(parts in vec(prop::sample::select(PARTS.to_vec()), 0..10)) {
        let page = format!("<template>{}</template>{METAS}", parts.concat());
        prop_assert_eq!(difference(&page), None);
    }

    #[test]
    fn any_noscript_reads_as_in_a_browser(parts in vec(prop::sample::select(PARTS.to_vec()), 0..10)) {
        let page = format!("<noscript>{}</noscript>{METAS}", parts.concat());
        prop_assert_eq!(difference(&page), None);
    }
}
