//! Readings: each test passes paths in and checks the readings.

use super::{WAYS, of_servers, taken, without_dot_segments};

// RFC 3986, section 5.2.4; ours for the other spellings that servers accept.
#[test]
fn dot_segments_are_removed_in_every_spelling() {
    for (path, reading) in [
        ("/a/../private", "/private"),
        ("/a/%2e%2E/private", "/private"),
        ("/a/.%2e/private/x?q=../y", "/private/x?q=../y"),
        ("/./private", "/private"),
        ("/../private", "/private"),
        ("/a/b/c/./../../g", "/a/g"),
        ("/private/.", "/private/"),
        ("/private/x/..", "/private/"),
        ("/..", "/"),
        ("/a//../b", "/a/b"),
    ] {
        assert_eq!(
            without_dot_segments(path).as_deref(),
            Some(reading),
            "{path}"
        );
    }
}

#[test]
fn a_path_without_dot_segments_is_unchanged() {
    for path in [
        "/",
        "/a",
        "/a/...",
        "/a/.b/c..",
        "/a?/../b",
        "/é/%2",
        "/%2e%",
    ] {
        assert_eq!(without_dot_segments(path), None, "{path}");
    }
}

/// One test per row: a path, and one of its readings by common servers.
macro_rules! reads {
    ($($name:ident: $path:literal as $reading:literal;)*) => {$(
        #[test]
        fn $name() {
            let readings = of_servers($path);
            assert!(readings.iter().any(|reading| reading == $reading), "{readings:?}");
        }
    )*};
}

// Ours; `tests/it/real_servers.rs` compares with real servers.
reads! {
    slashes_are_merged: "//private" as "/private";
    runs_of_slashes_are_merged: "///private///x" as "/private/x";
    an_escaped_slash_separates: "/%2Fprivate" as "/private";
    escaped_slashes_are_decoded_before_dots: "/a/..%2fprivate" as "/private";
    dots_between_escaped_slashes_are_resolved: "/a%2F..%2Fprivate" as "/private";
    slashes_are_merged_before_dots: "/a//../private" as "/private";
    slashes_are_merged_after_dots: "/x//..//private" as "/x/private";
    slashes_may_stay_unmerged: "/a//..%2fprivate" as "/a/private";
    a_backslash_separates: r"/a/..\private" as "/private";
    an_escaped_backslash_separates: "/a/..%5cprivate" as "/private";
    a_backslash_may_be_part_of_a_name: r"/a\b/..%2fprivate" as "/private";
    parameters_are_cut: "/;v=1/private" as "/private";
    parameters_hide_dots: "/a/..;/private" as "/private";
    parameters_are_cut_before_decoding: "/;a%2F../private" as "/private";
    escaped_parameters_hide_dots: "/a/..%3Bx/private" as "/private";
    parameters_are_cut_after_a_server_in_front: "/x/;/../private" as "/x/private";
    parameters_may_contain_a_backslash: r"/a/..;\private" as "/";
    a_host_is_dropped: "//x/private/y" as "/private/y";
    a_host_after_more_slashes_is_dropped: "///x/private" as "/private";
    a_host_after_a_backslash_is_dropped: r"/\x/private" as "/private";
    an_empty_host_is_dropped: "///private" as "/private";
    a_host_alone_leaves_the_root: "//private" as "/";
    the_path_after_a_dropped_host_is_decoded: "//x/a/..%2fprivate" as "/private";
    an_escaped_backslash_begins_a_host_after_a_server_in_front: "/%5Cx/private" as "/private";
    a_host_may_contain_a_backslash_that_is_no_separator: r"//x\y/private" as "/private";
    an_escaped_backslash_is_part_of_a_name_on_unix: r"/a\..%2fprivate%5C.." as "/private%5C..";
    parameters_end_at_a_backslash_after_a_server_in_front: r"/;a\private" as "/private";
    reserved_bytes_are_decoded: "/a%3Db%26c%40d%3A" as "/a=b&c@d:";
    a_stray_percent_sign_is_part_of_a_name: "/private%/.." as "/";
    a_stray_percent_sign_is_escaped: "/100%zz" as "/100%25zz";
    the_query_is_kept: "/a/..%2fprivate?x=/../y" as "/private?x=/../y";
    an_empty_query_is_dropped: "/private?" as "/private";
    an_empty_query_is_dropped_from_every_reading: "/a/..%2fprivate?" as "/private";
    an_empty_query_is_also_kept: "/a/..%2fprivate?" as "/private?";
}

// Ours: no way is redundant. One row for each way, in order.
#[test]
fn every_way_has_a_reading_that_no_other_way_yields() {
    let rows = [
        (r"/\%3b;//..", r"/\%3b;/"),
        (r"//;%2f\//..", "/;/"),
        ("//%2f", "/%2f"),
        ("/%2f", "//"),
        (r"/\///..", r"/\/"),
        (r"/\;", "/;"),
        ("//;", "//"),
        (r"/\%3b;", r"/\;"),
        ("/%5c;//", "/"),
        ("/h/%3b/..", "/"),
        (r"/\;//;/..", r"/\/"),
        (r"/\%5c;", "/%5c"),
        ("///%5c//", "//"),
        (r"///\", "//"),
        (r"//\/\", r"/\"),
        ("//%3b/%5c", "/"),
        ("/%2fb", "/"),
        (r"//x/\%5c", "/%5c"),
    ];
    assert_eq!(rows.len(), WAYS.len());
    for (at, (path, reading)) in rows.into_iter().enumerate() {
        let leads = WAYS.iter().map(|(_, steps)| taken(steps, path) == reading);
        let leading: Vec<usize> = leads
            .enumerate()
            .filter_map(|(at, leads)| leads.then_some(at))
            .collect();
        assert_eq!(leading, [at], "{path}");
        assert!(
            of_servers(path).iter().any(|found| found == reading),
            "{path}"
        );
    }
}

// Ours: skipping a way for content that a path does not have loses no reading.
#[test]
fn skipped_ways_yield_no_new_readings() {
    let parts = ["/", "//", "a", "..", "%2f", "%2e", r"\", "%5c", ";", "%3B"];
    for number in 0..10_000_usize {
        let digits = [1, 10, 100, 1000].map(|unit| parts[number / unit % 10]);
        let path = format!("/{}", digits.concat());
        let readings = of_servers(&path);
        for (_, steps) in WAYS {
            let reading = taken(steps, &path);
            assert!(
                reading == path || readings.iter().any(|known| *known == reading),
                "{path} is {reading}"
            );
        }
    }
}

// Ours: the canonical form covers the escapes in these paths.
#[test]
fn a_plain_path_has_no_other_reading() {
    for path in [
        "/",
        "/a/b.html?q=//x/../y;z",
        "/caf%C3%A9/%20/%7Eme/%41-%2D",
        "/é",
        "/a...b",
        "/100%25",
        "/a%3Fb%23c",
    ] {
        assert_eq!(of_servers(path), [""; 0], "{path}");
    }
}

// Ours: invalid UTF-8 never becomes other bytes, and a NUL ends no path either.
#[test]
fn no_reading_decodes_twice() {
    for path in [
        "/%2570rivate/..;/%252e%252e/x",
        "/a/%252e%252e%252fprivate/;",
        "/a/..%c0%afprivate//",
        "/%u002e%u002e/private",
        "//x/%2570rivate",
        "/%%32%65%%32%65/private",
        "/a%00/..%00/private",
    ] {
        for reading in of_servers(path) {
            assert!(!reading.starts_with("/private"), "{path}: {reading}");
        }
    }
}

#[test]
fn readings_have_no_duplicates_and_exclude_the_path_as_sent() {
    for path in [
        "/a/..;/b//c%2fd\\e?q",
        "//",
        "/;",
        "/%2F?",
        "/a;b?",
        "/\\",
        "///?",
    ] {
        let mut readings = of_servers(path);
        readings.push(path.to_owned());
        assert!(
            readings.iter().all(|reading| reading.starts_with('/')),
            "{readings:?}"
        );
        let count = readings.len();
        readings.sort();
        readings.dedup();
        assert_eq!(readings.len(), count, "{path}");
    }
}

// Ours: for a target of 16 KiB.
#[test]
fn the_work_for_a_hostile_path_is_bounded() {
    for part in [
        "/..;",
        "/..;/",
        "//..%2f",
        r"/\..%5c;",
        "/%2e%2e",
        "/a%3B/..",
        "%",
    ] {
        let path = format!("/{}?", part.repeat(16 * 1024 / part.len()));
        let readings = of_servers(&path);
        assert!(readings.len() <= 2 * WAYS.len() + 1, "{part}");
        let bytes: usize = readings.iter().map(String::len).sum();
        assert!(bytes <= 6 * WAYS.len() * path.len(), "{part}: {bytes}");
    }
}
