use super::*;

fn scan(page: &[u8], chunk_bytes: usize) -> (ScanStatus, Vec<String>) {
    let mut scanner = MetaScanner::new(512 * 1024, None);
    for chunk in page.chunks(chunk_bytes) {
        scanner.push(chunk);
    }
    let outcome = scanner.finish();
    let metas = scanner.metas().iter();
    (outcome, metas.map(|meta| meta.content.clone()).collect())
}

const META: &str = "<meta name=robots content=noindex>";

/// Reports whether the meta after this markup counts, and checks that pushing the page
/// byte by byte gives the same result.
fn counts_behind(markup: &str) -> bool {
    let page = format!("{markup}{META}<p>");
    let whole = scan(page.as_bytes(), page.len());
    assert_eq!(whole, scan(page.as_bytes(), 1), "{page}");
    !whole.1.is_empty()
}

macro_rules! heads {
    ($($name:ident: $markup:literal is $counts:literal;)*) => {$(
        #[test]
        fn $name() {
            assert_eq!(counts_behind($markup), $counts);
        }
    )*};
}

// HTML standard, 13.2.6.4; the reading of noscript is ours.
heads! {
    a_meta_may_follow_the_head: "<html><head></head> " is true;
    html_ending_ends_the_head: "<html><head></head></html>" is false;
    a_stray_body_end_tag_ends_the_head: "<head></body>" is false;
    a_br_end_tag_in_a_comment_does_not_end_the_head: "<!-- </br> --><title></br></title>" is true;
    a_br_end_tag_in_a_template_does_not_end_the_head: "<template></br><p>x</template>" is true;
    an_open_template_hides_its_content: "<template>" is false;
    an_image_in_a_noscript_does_not_end_the_head: "<noscript><img></noscript>" is true;
    a_byte_order_mark_ends_the_head_unless_it_is_first: "<head>\u{FEFF}" is false;
    a_byte_order_mark_at_the_start_does_not_end_the_head: "\u{FEFF}<head>" is true;
    a_nul_ends_the_head: "<head>\0" is false;
    a_doctype_does_not_end_the_head: "<head><!doctype x>" is true;
    an_end_tag_without_a_name_does_not_end_the_head: "<head></>" is true;
    a_frameset_ends_the_open_head: "<frameset>" is false;
    a_style_holds_no_tags: "<style></br></style>" is true;
    an_open_style_hides_the_rest: "<style>" is false;
    an_attribute_holds_no_tags: "<link title='</br><p>'>" is true;
}

#[test]
fn metas_of_a_noscript_count() {
    let page = "<noscript><!-- <meta name=robots content=noai> --><p>x\
                <meta name=robots content=noindex><template><meta name=robots content=spc>\
                </template></noscript><noscript><meta name=a content=nofollow></noscript>";
    for chunk in [1, 7, page.len()] {
        let (outcome, metas) = scan(page.as_bytes(), chunk);
        assert_eq!((outcome, metas.len()), (ScanStatus::Done, 2), "{metas:?}");
    }
}

#[test]
fn a_noscript_cut_by_the_limit_counts_as_far_as_it_goes() {
    let page = format!("<noscript>{META}<img></noscript>");
    let mut scanner = MetaScanner::new(page.len() - 8, None);
    assert_eq!(scanner.push(page.as_bytes()), ScanStatus::Limit);
    assert_eq!(scanner.metas().len(), 1);
}

#[test]
fn only_bytes_beyond_the_limit_reach_it() {
    let page = format!("<head>{META}");
    let mut scanner = MetaScanner::new(page.len(), None);
    assert_eq!(scanner.push(page.as_bytes()), ScanStatus::More);
    assert_eq!(scanner.push(b""), ScanStatus::More);
    assert_eq!(scanner.push(b"<"), ScanStatus::Limit);
    assert_eq!(scanner.finish(), ScanStatus::Limit);
    assert_eq!(scanner.metas().len(), 1);
    let mut exact = MetaScanner::new(page.len(), None);
    exact.push(page.as_bytes());
    assert_eq!(exact.finish(), ScanStatus::Done);
}

#[test]
fn bytes_after_the_end_of_the_scan_are_ignored() {
    let mut scanner = MetaScanner::new(1000, None);
    assert_eq!(scanner.push(b"<body>"), ScanStatus::Done);
    assert_eq!(scanner.push(META.as_bytes()), ScanStatus::Done);
    assert_eq!(scanner.push(&[b'x'; 2000]), ScanStatus::Done);
    assert!(scanner.metas().is_empty());
}

#[test]
fn too_many_metas_are_a_limit() {
    let metas = (0..300).map(|at| format!("<meta name=a{at} content=noindex>"));
    let (outcome, metas) = scan(metas.collect::<String>().as_bytes(), 100);
    assert_eq!(
        (outcome, metas.len()),
        (ScanStatus::Limit, HeadFindings::METAS_MAX)
    );
}

#[test]
fn a_nest_that_takes_too_much_memory_is_a_limit() {
    let page = "<template>".repeat(200_000);
    let mut scanner = MetaScanner::new(16 * 1024, None);
    let outcome = page
        .as_bytes()
        .chunks(4096)
        .map(|chunk| scanner.push(chunk));
    assert_eq!(outcome.last(), Some(ScanStatus::Limit));
}

// WHATWG Encoding standard.
#[test]
fn utf_16_is_read_with_a_label_or_a_mark() {
    let page = format!("<head><title>é</title>{META}<p>");
    let bytes: Vec<u8> = page.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for chunk in [1, 3, bytes.len()] {
        let mut labelled = MetaScanner::new(bytes.len(), Some("UTF-16"));
        let mut marked = MetaScanner::new(bytes.len() + 2, Some("utf-8"));
        marked.push(b"\xFF\xFE");
        for chunk in bytes.chunks(chunk) {
            labelled.push(chunk);
            marked.push(chunk);
        }
        assert_eq!(labelled.status(), ScanStatus::Done);
        assert_eq!((labelled.metas().len(), marked.metas().len()), (1, 1));
    }
}

#[test]
fn an_unknown_label_is_ignored() {
    let mut scanner = MetaScanner::new(1000, Some("no-such-charset"));
    scanner.push(META.as_bytes());
    scanner.finish();
    assert_eq!(scanner.metas().len(), 1);
}

#[test]
fn a_type_decides_what_is_scanned() {
    let scanned = |content_type: &str| {
        let content_type = Some(content_type.as_bytes());
        MetaScanner::for_type(content_type, 1).is_some()
    };
    assert!(scanned("Text/HTML ; charset=x") && scanned("application/xhtml+xml"));
    assert!(!scanned("text/plain") && !scanned("image/svg+xml") && !scanned("text/html2"));
    assert!(MetaScanner::for_type(None, 1).is_some() && scanned(""));
}

#[test]
fn a_body_without_a_type_is_scanned_by_its_start() {
    for (page, found) in [(format!("<head>{META}"), 1), (format!("words {META}"), 0)] {
        let mut scanner = MetaScanner::for_type(None, 1 << 20).unwrap();
        for byte in page.as_bytes() {
            scanner.push(&[*byte]);
        }
        assert_eq!(scanner.finish(), ScanStatus::Done);
        assert_eq!(scanner.metas().len(), found);
    }
}

#[test]
fn a_scanner_can_be_sent() {
    fn is_send<T: Send>() {}
    is_send::<MetaScanner>();
}

#[test]
fn a_tag_of_300_kilobytes_is_read() {
    let page = format!("<link a='{}'>{META}<p>", "x".repeat(300_000));
    for chunk in [1000, 16 * 1024, page.len()] {
        let (outcome, metas) = scan(page.as_bytes(), chunk);
        assert_eq!((outcome, metas.len()), (ScanStatus::Done, 1), "{chunk}");
    }
}

// Ours: metas after the head are reported separately.
#[test]
fn metas_after_the_head_are_kept_separately() {
    let page = format!(
        "{META}<body>{META}<meta name=robots content=noai><template><meta name=robots \
         content=spc></template><svg><title>x</title><style><meta name=robots content=noml>\
         </style></svg><noscript><meta name=robots content=noodp></noscript>"
    );
    let limit = page.len();
    for chunk in [1, 5, page.len()] {
        let scope = MetaScope::Prefix;
        let mut scanner = MetaScanner::new(ScanOptions { limit, scope }, None);
        for chunk in page.as_bytes().chunks(chunk) {
            assert_eq!(scanner.push(chunk), ScanStatus::More);
        }
        assert!(scanner.has_head_ended());
        assert_eq!(scanner.push(b"x"), ScanStatus::Done);
        assert!(scanner.has_head_ended());
        // The `<style>` of SVG holds markup, and its meta ends the SVG (HTML
        // standard, 13.2.6.5).
        assert_eq!((scanner.metas().len(), scanner.outside().len()), (1, 4));
    }
}

#[test]
fn a_head_that_reaches_the_limit_has_not_ended() {
    let scope = MetaScope::Prefix;
    let mut scanner = MetaScanner::new(ScanOptions { limit: 6, scope }, None);
    assert_eq!(scanner.push(b"<head> "), ScanStatus::Limit);
    assert!(!scanner.has_head_ended());
}

#[test]
fn notices_are_found_in_the_head_alone() {
    let page = "<meta name=tdm-reservation content=1><noscript><link rel=license href=/a \
                type=application/rsl+xml></noscript><body><meta name=tdm-policy content=/b>";
    for scope in [MetaScope::Head, MetaScope::Prefix] {
        let mut scanner = MetaScanner::new(ScanOptions { limit: 9999, scope }, None);
        scanner.push(page.as_bytes());
        scanner.finish();
        let wanted = [
            Notice::TdmReservation("1".into()),
            Notice::License("/a".into()),
        ];
        assert_eq!(scanner.notices(), wanted);
    }
}

// Ours.
#[test]
fn a_tag_of_more_than_a_mebibyte_is_a_limit() {
    let page = format!("{META}<link a='{}'>", "x".repeat(1 << 21));
    let mut scanner = MetaScanner::new(1 << 22, None);
    for chunk in page.as_bytes().chunks(16 * 1024) {
        scanner.push(chunk);
    }
    assert_eq!(
        (scanner.status(), scanner.metas().len()),
        (ScanStatus::Limit, 1)
    );
}

/// Returns the outcome, the number of metas and whether the page is readable, after
/// checking that none of them depends on the chunks.
fn labelled(page: &[u8], label: Option<&str>) -> (ScanStatus, usize, bool) {
    let scans = [1, 3, page.len()].map(|chunk| {
        let mut scanner = MetaScanner::new(1 << 20, label);
        for chunk in page.chunks(chunk) {
            scanner.push(chunk);
        }
        (
            scanner.finish(),
            scanner.metas().len(),
            scanner.is_readable(),
        )
    });
    assert!(scans.iter().all(|scan| *scan == scans[0]), "{scans:?}");
    scans[0]
}

// HTML standard, 13.2.3.2: a quote and an angle bracket inside two-byte characters.
#[test]
fn iso_2022_jp_is_read_where_it_is_declared() {
    let title = "<title>\x1B$B</title><body>\x1B(B</title>";
    for declaration in [
        "<meta charset=iso-2022-jp>",
        "<?xml version='1.0' encoding='ISO-2022-JP'?>",
        "<meta http-equiv=content-type content='text/html;charset=csiso2022jp'>",
    ] {
        for filler in ["", &" ".repeat(2000)] {
            let page = format!("{declaration}{filler}{title}{META}<p>");
            assert_eq!(labelled(page.as_bytes(), None), (ScanStatus::Done, 1, true));
            let page = format!("{declaration}{filler}{title}{META}");
            let other = labelled(page.as_bytes(), Some("utf-8"));
            assert_eq!(other, (ScanStatus::Done, 0, true), "{declaration}");
        }
    }
}

#[test]
fn utf_16_without_a_mark_is_read_by_its_xml_declaration() {
    let page = format!("<?xml version='1.0'?>{META}<p>");
    let little = page.encode_utf16().flat_map(u16::to_le_bytes);
    let big = page.encode_utf16().flat_map(u16::to_be_bytes);
    for bytes in [little.collect::<Vec<_>>(), big.collect()] {
        assert_eq!(labelled(&bytes, None), (ScanStatus::Done, 1, true));
    }
}

// Ours: a page in an unreadable encoding is still searched, but is never complete.
#[test]
fn a_page_in_an_unsupported_encoding_is_not_readable() {
    let page = format!("{META}<body>");
    for label in ["utf-7", "iso-2022-kr", "ibm037", "utf-32"] {
        let scanned = labelled(page.as_bytes(), Some(label));
        assert_eq!(scanned, (ScanStatus::Done, 1, false), "{label}");
        let marked = format!("\u{FEFF}{page}");
        assert!(labelled(marked.as_bytes(), Some(label)).2);
    }
}

#[test]
fn an_unknown_label_makes_only_non_ascii_pages_unreadable() {
    let page = format!(" \n{META}<body>");
    let unknown = Some("no-such-charset");
    assert_eq!(
        labelled(page.as_bytes(), unknown),
        (ScanStatus::Done, 1, true)
    );
    // EBCDIC: `<html>`.
    assert!(!labelled(b"\x4C\x88\xA3\x94\x93\x6E", unknown).2);
    assert!(!labelled(b"<\0\0\0h\0\0\0", unknown).2);
}

// Ours; found by the fuzz target `metas`. The head ends with the first byte.
#[test]
fn a_zero_as_second_byte_is_seen_in_any_chunks() {
    for label in [None, Some("utf-8"), Some("shift_jis"), Some("unknown")] {
        let scanned = labelled(b"0\0<p>", label);
        assert_eq!(scanned, (ScanStatus::Done, 0, false), "{label:?}");
    }
}

#[test]
fn text_before_a_meta_puts_it_outside() {
    let page = format!("0{META}");
    for label in [None, Some("utf-8"), Some("iso-2022-jp"), Some("shift_jis")] {
        for (chunk, (scope, outside)) in [
            (1, (MetaScope::Head, 0)),
            (99, (MetaScope::Head, 0)),
            (1, (MetaScope::Prefix, 1)),
            (99, (MetaScope::Prefix, 1)),
        ] {
            let mut scanner = MetaScanner::new(ScanOptions { limit: 99, scope }, label);
            for chunk in page.as_bytes().chunks(chunk) {
                scanner.push(chunk);
            }
            scanner.finish();
            assert_eq!(scanner.outside().len(), outside, "{label:?} {chunk}");
        }
    }
}

// Ours: the content of a comment or a script is not kept and takes no memory.
#[test]
fn an_endless_comment_takes_no_memory() {
    for markup in ["<!-- ", "<script><!--", "<?", "<title>", "<textarea>"] {
        let mut scanner = MetaScanner::new(usize::MAX, None);
        scanner.push(markup.as_bytes());
        let before = scanner.memory();
        for _ in 0..100 {
            scanner.push(&[b'-'; 16 * 1024]);
        }
        assert!(scanner.memory() < before + 100, "{markup}");
        assert_eq!(scanner.status() == ScanStatus::More, markup != "<textarea>");
    }
}

// Ours: a tag that arrives byte by byte is not read again for each byte.
#[test]
fn a_long_tag_byte_by_byte_takes_linear_time() {
    let page = format!("<link a='{}'>{META}<p>", "> ".repeat(250_000));
    let (outcome, metas) = scan(page.as_bytes(), 1);
    assert_eq!((outcome, metas.len()), (ScanStatus::Done, 1));
}
