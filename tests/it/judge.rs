//! `politesse judge`: checks the requests of past crawls against the robots.txt files in
//! their archives.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use politesse_decision::digest::Digest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::check::{VERDICT_MEMBERS, check_batch};
use crate::kit::codings::coded;
use crate::kit::program::{Outcome, finish, politesse, run_in};
use crate::kit::warc::{FOO, Warc, ok};
use crate::kit::{assert_contains, assert_contains_each, assert_members, run};

/// Times of archived exchanges.
const START: &str = "2026-01-02T00:00:00Z";
const LATER: &str = "2026-01-02T00:01:00Z";

const NONE: &str = "User-agent: *\nDisallow: /\n";
const ALL: &str = "User-agent: *\nDisallow:\n";

/// Returns a folder with the archive `a.warc`.
pub(crate) fn folder(warc: &Warc) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("a.warc"), &warc.bytes).unwrap();
    folder
}

/// Runs `judge --warc a.warc` with further arguments.
pub(crate) async fn run_judge(warc: &Warc, arguments: &[&str]) -> Outcome {
    let folder = folder(warc);
    let arguments = [&["judge", "--warc", "a.warc"], arguments].concat();
    run_in(folder.path(), &arguments).await
}

/// Returns the report that `judge --json` prints.
pub(crate) async fn report(warc: &Warc, arguments: &[&str]) -> Value {
    let outcome = run_judge(warc, &[&["--json"], arguments].concat()).await;
    outcome.json_lines().remove(0)
}

/// Returns path, verdict and reason of each request other than for robots.txt.
async fn verdicts(warc: &Warc, arguments: &[&str]) -> Vec<String> {
    let arguments = [&["--requests", "--json"], arguments].concat();
    let outcome = run_judge(warc, &arguments).await;
    let rows = outcome.json_lines().into_iter();
    let rows = rows.filter(|row| row["reason"] != "robots_txt");
    rows.map(|row| {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        let path = text("url");
        let path = path.split_once(".test").unwrap().1;
        format!("{path} {} {}", text("verdict"), text("reason"))
    })
    .collect()
}

/// Returns an archive of 1,000 requests for 40 hosts, and a line of `check --batch` for
/// each request.
fn thousand_requests(mut warc: Warc) -> (Warc, Vec<Value>) {
    let mut questions = Vec::new();
    for host in 0..40 {
        let origin = format!("https://h{host}.test");
        let status = [200, 200, 404, 503, 403, 200, 429][host % 7];
        let robots = format!(
            "User-agent: *\nDisallow: /private\nDisallow: /*.pdf$\nCrawl-delay: 2\n\n\
             User-agent: FooBot\nDisallow: /p{}\nAllow: /p{}/ok\n",
            host % 5,
            host % 5
        );
        let head = format!("HTTP/1.1 {status} Some Words\r\nContent-Type: text/plain\r\n\r\n");
        let at = |second: usize| format!("2026-01-02T{:02}:00:{second:02}Z", host % 24);
        warc.exchange(&at(0), &format!("{origin}/robots.txt"), head + &robots);
        for page in 0..25 {
            let kind = ["ok", "x.pdf", "private", "ok%2Fa", "\u{e9}?q=a b"][page % 5];
            let url = format!("{origin}/p{}/{kind}", page % 6);
            let agent = [Some(FOO), Some("BarBot/2"), None][page % 3];
            warc.request(&at(page + 1), &url, agent);
            warc.response(&at(page + 1), &url, ok("page"));
            questions.push(json!({
                "id": questions.len(), "robots": robots, "status": status,
                "agent": agent.unwrap_or_default(), "url": url,
            }));
        }
    }
    (warc, questions)
}

// Ours: both commands use the same engine.
#[tokio::test]
async fn judge_agrees_with_check_on_a_thousand_requests() {
    let (warc, questions) = thousand_requests(Warc::gzip(6));
    assert_eq!(questions.len(), 1000);
    let outcome = run_judge(&warc, &["--requests", "--json"]).await;
    let mut rows = outcome.assert_code(1).json_lines();
    rows.retain(|row| row["reason"] != "robots_txt");
    let answers = check_batch(&questions).await.json_lines();
    assert_eq!(rows.len(), answers.len());
    for (row, answer) in rows.iter().zip(&answers) {
        for member in VERDICT_MEMBERS {
            assert_eq!(row[member], answer[member], "{member} of {row}");
        }
    }
}

// Ours: the robots.txt that applies is chosen after all archives are read.
#[tokio::test]
async fn order_and_compression_of_archives_do_not_matter() {
    let (plain, _) = thousand_requests(Warc::plain());
    let (gzip, _) = thousand_requests(Warc::gzip(1));
    let folder = TempDir::new().unwrap();
    let half = plain.places[plain.places.len() / 2];
    for (name, bytes) in [
        ("all.warc", &plain.bytes[..]),
        ("all.warc.gz", &gzip.bytes),
        ("one-member.gz", &coded("gzip", plain.bytes.clone())),
        ("one.warc", &plain.bytes[..half]),
        ("two.warc", &plain.bytes[half..]),
    ] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let mut reports = Vec::new();
    for files in [
        &["all.warc"][..],
        &["all.warc.gz"],
        &["one-member.gz"],
        &["one.warc", "two.warc"],
        &["two.warc", "one.warc"],
    ] {
        let arguments = [&["judge", "--json", "--warc"], files].concat();
        reports.push(run_in(folder.path(), &arguments).await);
    }
    let mut command = politesse(folder.path());
    command.args(["judge", "--json", "--warc", "-"]);
    reports.push(finish(command, &gzip.bytes).await);
    let mut reports = reports.iter().map(|outcome| {
        let mut report = outcome.json_lines().remove(0);
        for member in ["files", "samples"] {
            report[member] = Value::Null;
        }
        report
    });
    let first = reports.next().unwrap();
    assert_eq!(first["requests"], 1040);
    for report in reports {
        assert_eq!(report, first);
    }
}

// Ours: a later robots.txt applies only with `--nearest-after`.
#[tokio::test]
async fn the_latest_robots_txt_before_a_request_applies() {
    let mut warc = Warc::plain();
    warc.page(START, "https://h.test/early")
        .robots("2026-01-02T02:00:00Z", NONE)
        .robots("2026-01-02T01:00:00Z", ALL)
        .page("2026-01-02T01:30:00Z", "https://h.test/between")
        .page("2026-01-02T02:00:00Z", "https://h.test/same")
        .page("2026-01-05T02:00:00Z", "https://h.test/late")
        .page("2026-01-02T03:00:00Z", "https://other.test/");
    let mut wanted = [
        "/early unknown robots_later",
        "/between allow no_rule",
        "/same disallow rule",
        "/late disallow rule",
        "/ unknown no_robots",
    ];
    assert_eq!(verdicts(&warc, &[]).await, wanted);
    wanted[0] = "/early allow no_rule";
    assert_eq!(verdicts(&warc, &["--nearest-after"]).await, wanted);
    let report = report(&warc, &[]).await;
    assert_members(&report, &json!({"old_robots": 1, "unknown": 2}));
}

/// Generates a test per row: the verdict on a request after these answers to requests for
/// robots.txt. The answers are one second apart.
macro_rules! answers {
    ($($name:ident: $answers:expr => $wanted:literal;)*) => {$(
        #[test]
        fn $name() {
            run(async {
                let mut warc = Warc::gzip(6);
                for (second, (url, message)) in (1..).zip($answers) {
                    let at = format!("2026-01-02T00:00:{second:02}Z");
                    warc.exchange(&at, url, message);
                }
                warc.page(LATER, "https://h.test/a");
                let rows = verdicts(&warc, &[]).await;
                assert_eq!(rows.last().unwrap(), concat!("/a ", $wanted));
            });
        }
    )*};
}

const ROBOTS: &str = "https://h.test/robots.txt";
const WWW: &str = "https://www.h.test/robots.txt";
const PAGE: &str = "https://h.test/rules.php";

fn redirect(to: &str) -> Vec<u8> {
    format!("HTTP/1.1 301 Moved\r\nLocation: {to}\r\n\r\n").into()
}

fn status(line: &str) -> Vec<u8> {
    format!("HTTP/1.1 {line}\r\n\r\n{ALL}").into()
}

fn robots(text: &str) -> Vec<u8> {
    ok(text).into()
}

/// Returns a response with status 200, this field line and this body.
fn with_field(field: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n");
    [head.as_bytes(), body.as_ref()].concat()
}

fn chunked(text: &str) -> Vec<u8> {
    let (one, two) = text.split_at(5);
    let body = format!("5\r\n{one}\r\n{:x};a=b\r\n{two}\r\n0\r\n\r\n", two.len());
    with_field("Transfer-Encoding: chunked", body)
}

pub(crate) fn gzip(text: &str) -> Vec<u8> {
    coded("gzip", text.into())
}

// RFC 9309, section 2.3.1; RFC 9112, sections 6 and 7, for the framing.
answers! {
    a_404_allows: [(ROBOTS, status("404 Not Found"))] => "allow unavailable";
    a_403_allows: [(ROBOTS, status("403 Forbidden"))] => "allow unavailable";
    a_503_disallows: [(ROBOTS, status("503 No"))] => "disallow unreachable";
    a_429_disallows: [(ROBOTS, status("429 No"))] => "disallow unreachable";
    a_redirect_to_a_later_response_is_followed: [(ROBOTS, redirect(WWW)), (WWW, robots(NONE))] => "disallow rule";
    a_redirect_to_an_earlier_response_is_followed: [(WWW, robots(NONE)), (ROBOTS, redirect(WWW))] => "disallow rule";
    a_redirect_to_another_path_is_followed: [(ROBOTS, redirect(PAGE)), (PAGE, robots(NONE))] => "disallow rule";
    a_relative_redirect_to_an_earlier_page_is_followed: [(PAGE, robots(NONE)), (ROBOTS, redirect("/rules.php#a"))] => "disallow rule";
    a_redirect_to_a_404_allows: [(ROBOTS, redirect(WWW)), (WWW, status("404 No"))] => "allow unavailable";
    a_redirect_to_an_unarchived_url_is_unknown: [(ROBOTS, redirect(WWW))] => "unknown no_redirect_target";
    a_redirect_to_another_scheme_disallows: [(ROBOTS, redirect("ftp://h.test/"))] => "disallow unreachable";
    a_redirect_to_itself_disallows: [(ROBOTS, redirect(ROBOTS))] => "disallow unreachable";
    five_redirects_are_followed: [
        (ROBOTS, redirect("/1")), ("https://h.test/1", redirect("/2")), ("https://h.test/2", redirect("/3")),
        ("https://h.test/3", redirect("/4")), ("https://h.test/4", redirect("/5")), ("https://h.test/5", robots(ALL)),
    ] => "allow no_rule";
    six_redirects_are_too_many: [
        (ROBOTS, redirect("/1")), ("https://h.test/1", redirect("/2")), ("https://h.test/2", redirect("/3")),
        ("https://h.test/3", redirect("/4")), ("https://h.test/4", redirect("/5")), ("https://h.test/5", redirect("/6")),
        ("https://h.test/6", robots(ALL)),
    ] => "disallow unreachable";
    a_304_confirms_the_file_before: [(ROBOTS, robots(NONE)), (ROBOTS, status("304 Not Modified"))] => "disallow rule";
    a_304_without_an_earlier_file_is_unknown: [(ROBOTS, status("304 Not Modified"))] => "unknown no_body";
    chunks_are_joined: [(ROBOTS, chunked(NONE))] => "disallow rule";
    already_joined_chunks_are_read: [(ROBOTS, with_field("Transfer-Encoding: chunked", NONE))] => "disallow rule";
    an_incomplete_chunked_file_disallows: [(ROBOTS, chunked(NONE)[..70].to_vec())] => "disallow unreachable";
    a_file_shorter_than_its_content_length_disallows: [(ROBOTS, with_field("Content-Length: 99", ALL))] => "disallow unreachable";
    content_codings_are_decoded: [(ROBOTS, with_field("Content-Encoding: gzip", gzip(NONE)))] => "disallow rule";
    an_already_decoded_file_is_read: [(ROBOTS, with_field("Content-Encoding: gzip", NONE))] => "disallow rule";
    a_binary_file_disallows: [(ROBOTS, robots("PK\u{3}\u{4}\nAllow: /\n"))] => "disallow unreachable";
    a_challenge_disallows: [(ROBOTS, with_field("Cf-Mitigated: challenge", ALL))] => "disallow unreachable";
    undeclared_gzip_is_decoded: [(ROBOTS, with_field("X: y", gzip(NONE)))] => "disallow rule";
    an_unknown_content_coding_disallows: [(ROBOTS, with_field("Content-Encoding: x-own", ALL))] => "disallow unreachable";
}

// ISO 28500, sections 6.4 and 6.7.
#[tokio::test]
async fn resource_and_revisit_records_supply_robots_txt() {
    let url = ("WARC-Target-URI", "<https://h.test/robots.txt>");
    let resource = [("WARC-Type", "resource"), ("WARC-Date", START), url];
    let at = "2026-01-02T00:02:00Z";
    let revisit = [("WARC-Type", "revisit"), ("WARC-Date", at), url];
    let (last, agent) = ("2026-01-02T00:03:00Z", ["--agent", "X"]);
    let mut warc = Warc::plain();
    warc.record(&resource, NONE)
        .page(LATER, "https://h.test/resource")
        .record(&revisit, ok(""))
        .page(last, "https://h.test/revisit");
    let wanted = ["/resource disallow rule", "/revisit disallow rule"];
    assert_eq!(verdicts(&warc, &agent).await, wanted);

    let mut alone = Warc::plain();
    alone
        .record(&revisit, ok(""))
        .page(last, "https://h.test/revisit");
    let wanted = ["/revisit unknown no_body"];
    assert_eq!(verdicts(&alone, &agent).await, wanted);
}

// ISO 28500, section 5.13; RFC 9309, section 2.5. The last line may be incomplete.
#[tokio::test]
async fn a_truncated_file_is_judged_by_the_reason_in_the_archive() {
    let robots = "User-agent: *\nDisallow: /a\nAllow: /a/b";
    for (why, first, second) in [
        ("length", "disallow rule", "allow no_rule"),
        ("disconnect", "disallow unreachable", "disallow unreachable"),
    ] {
        let mut warc = Warc::plain();
        let fields = [
            ("WARC-Type", "response"),
            ("WARC-Date", START),
            ("WARC-Target-URI", ROBOTS),
            ("WARC-Truncated", why),
        ];
        warc.record(&fields, format!("HTTP/1.1 200 OK\r\n\r\n{robots}"))
            .page(LATER, "https://h.test/a/bc")
            .page(LATER, "https://h.test/x");
        let wanted = [format!("/a/bc {first}"), format!("/x {second}")];
        assert_eq!(verdicts(&warc, &["--agent", "X"]).await, wanted, "{why}");
    }
}

// Ours: the name is taken from the request, else from `warcinfo`, else from `--agent`.
#[tokio::test]
async fn the_crawler_name_comes_from_request_warcinfo_or_option() {
    let rules = "User-agent: FooBot\nDisallow: /foo\n\nUser-agent: InfoBot\nDisallow: /info\n\n\
                 User-agent: ArgBot\nDisallow: /arg\n\nUser-agent: *\nDisallow: /star\n";
    let mut warc = Warc::plain();
    warc.robots(START, rules)
        .page(LATER, "https://h.test/foo")
        .request(LATER, "https://h.test/star", None)
        .response(LATER, "https://h.test/arg", ok(""));
    let mut wanted = [
        "/foo disallow rule",
        "/star disallow rule",
        "/arg unknown no_agent",
    ];
    assert_eq!(verdicts(&warc, &[]).await, wanted);
    wanted[2] = "/arg disallow rule";
    assert_eq!(verdicts(&warc, &["--agent", "ArgBot/1"]).await, wanted);

    let mut info = Warc::plain();
    let text = "software: x\r\nhttp-header-user-agent: InfoBot/1\r\n";
    info.robots(START, rules)
        .record(&[("WARC-Type", "warcinfo")], text)
        .response(LATER, "https://h.test/info", ok(""));
    let wanted = ["/info disallow rule"];
    assert_eq!(verdicts(&info, &["--agent", "ArgBot"]).await, wanted);
}

// Ours: a team can check a crawl against several crawler names at once.
#[tokio::test]
async fn with_several_crawlers_a_request_is_disallowed_if_any_is() {
    let rules = "User-agent: GPTBot\nDisallow: /a\n\nUser-agent: CCBot\nDisallow: /b\nDisallow: /c\n\n\
                 User-agent: GPTBot\nDisallow: /c\n";
    let mut warc = Warc::plain();
    warc.robots(START, rules);
    for path in ["a", "b", "c", "d"] {
        let url = format!("https://h.test/{path}");
        warc.page(LATER, &url);
    }
    warc.page(LATER, "https://other.test/");
    let agents = ["--agents", "CCBot, GPTBot"];
    let outcome = run_judge(&warc, &[&["--csv"], &agents[..]].concat()).await;
    let outcome = outcome.assert_code(1);
    let mut rows: Vec<_> = outcome.stdout.lines().skip(1).collect();
    rows.sort_unstable();
    let wanted = [
        r#"h.test,"CCBot, GPTBot",allow,no_rule,,,1"#,
        r#"h.test,"CCBot, GPTBot",allow,robots_txt,,,1"#,
        r#"h.test,"CCBot, GPTBot",disallow,rule,6,Disallow: /c,1"#,
        "h.test,CCBot,disallow,rule,5,Disallow: /b,1",
        "h.test,GPTBot,disallow,rule,2,Disallow: /a,1",
        r#"other.test,"CCBot, GPTBot",unknown,no_robots,,,1"#,
    ];
    assert_eq!(rows, wanted);

    let report = report(&warc, &agents).await;
    let expected = json!({"agents": ["CCBot", "GPTBot"], "requests": 6, "disallowed": 3});
    assert_members(&report, &expected);
    for crawler in report["crawlers"].as_array().unwrap() {
        let counts = ["disallowed", "unknown", "allowed"].map(|name| &crawler[name]);
        assert_eq!(counts, [2, 1, 3], "{crawler}");
    }
    let requests = ["--requests", "--json", "--verdict", "disallow"];
    let outcome = run_judge(&warc, &[&requests, &agents[..]].concat()).await;
    let rows = outcome.json_lines();
    let crawlers: Vec<_> = rows.iter().map(|row| &row["crawler"]).collect();
    assert_eq!(crawlers, ["GPTBot", "CCBot", "CCBot, GPTBot"]);

    let text = run_judge(&warc, &agents).await.stdout;
    let lines = [
        "  3 disallowed for any of CCBot, GPTBot\n",
        "h.test  1           line 6: Disallow: /c (CCBot, GPTBot)\n",
    ];
    assert_contains_each(&text, &lines);
    for wrong in [&["--agents", "*"][..], &["--agents", "A", "--agent", "B"]] {
        assert_eq!(run_judge(&warc, wrong).await.code, Some(2), "{wrong:?}");
    }
}

// Ours: the worst known verdict sets the exit code.
#[tokio::test]
async fn exit_codes_distinguish_disallowed_from_unknown() {
    for (pages, code) in [
        (&["https://h.test/b"][..], 0),
        (&["https://h.test/a"], 1),
        (&["https://other.test/"], 3),
        (&["https://h.test/a", "https://other.test/"], 1),
    ] {
        let mut warc = Warc::plain();
        warc.robots(START, "User-agent: *\nDisallow: /a\n");
        for page in pages {
            warc.page(LATER, page);
        }
        assert_eq!(run_judge(&warc, &[]).await.code, Some(code), "{pages:?}");
    }
    // An archive without requests must not look like a crawl that kept to the rules.
    let nothing = run_judge(&Warc::plain(), &[]).await.assert_code(3);
    assert_contains(&nothing.stderr, "there is no request to judge");
    let folder = folder(&Warc::plain());
    std::fs::write(folder.path().join("page.html"), "<html>").unwrap();
    for arguments in [
        &["judge"][..],
        &["judge", "--warc", "nowhere.warc"],
        &["judge", "--warc", "page.html"],
        &["judge", "--warc", "a.warc", "--log", "a.log"],
        &["judge", "--log", "a.log"],
    ] {
        run_in(folder.path(), arguments).await.assert_code(2);
    }
}

// Ours: the report gives the offset of each damaged record.
#[tokio::test]
async fn a_damaged_record_is_reported_and_the_rest_is_judged() {
    for mut warc in [Warc::plain(), Warc::gzip(6)] {
        warc.robots(START, NONE);
        for page in 0..10 {
            let url = format!("https://h.test/{page}");
            warc.request(LATER, &url, Some(FOO));
        }
        let (begin, end) = (warc.places[6], warc.places[7]);
        for byte in &mut warc.bytes[begin + 10..end - 4] {
            *byte ^= 0x55;
        }
        let report = report(&warc, &[]).await;
        assert_members(&report, &json!({"disallowed": 9, "unread": 1}));
        assert_eq!(report["unread_parts"][0]["place"], begin, "{report}");
    }
}

// Ours: even if a thread starts to read in the middle of the inner archive.
#[tokio::test]
async fn an_archive_within_an_archive_is_not_read() {
    let mut inner = Warc::gzip(0);
    inner.robots("2026-01-01T00:00:00Z", ALL);
    let filler = "x".repeat(60_000);
    for page in 0..120 {
        let url = format!("https://h.test/inner/{page}");
        inner.exchange("2026-01-01T00:00:01Z", &url, ok(&filler));
    }
    let mut outer = Warc::gzip(0);
    outer.robots(START, NONE);
    let body = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &inner.bytes].concat();
    // Stored uncompressed, the inner archive looks like members of the outer one.
    let url = "https://h.test/inner.warc.gz";
    outer
        .exchange("2026-01-02T00:00:01Z", url, &body)
        .page("2026-01-02T00:00:02Z", "https://h.test/after");
    assert!(outer.bytes.len() > 6 * 1024 * 1024);
    let wanted = ["/inner.warc.gz disallow rule", "/after disallow rule"];
    assert_eq!(verdicts(&outer, &[]).await, wanted);
}

// RFC 1952 allows members of any length, as in a file compressed in blocks.
#[tokio::test]
async fn gzip_members_need_not_align_with_records() {
    let mut plain = Warc::plain();
    plain.robots(START, NONE);
    let filler = "x".repeat(50_000);
    for page in 0..200 {
        let url = format!("https://h.test/{page}");
        plain.exchange("2026-01-02T00:00:01Z", &url, ok(&filler));
    }
    let blocks = plain.bytes.chunks(100_000).flat_map(|block| {
        let mut member = GzEncoder::new(Vec::new(), Compression::none());
        member.write_all(block).unwrap();
        member.finish().unwrap()
    });
    let mut in_blocks = Warc::plain();
    in_blocks.bytes = blocks.collect();
    assert!(in_blocks.bytes.len() > 8 * 1024 * 1024);
    let report = report(&in_blocks, &[]).await;
    assert_members(&report, &json!({"disallowed": 200, "unread": 0}));
}

// Ours: archived text must not control a terminal or become a formula in a spreadsheet.
#[tokio::test]
async fn reports_escape_hostile_text_from_archives() {
    let mut warc = Warc::plain();
    let agent = "=cmd()\u{1b}[2J\u{202e}";
    let rules = "User-agent: *\nDisallow: /\u{1b}[2J\u{202e}\n";
    warc.robots(START, rules);
    for url in [
        "https://h.test/\u{1b}[2J\u{202e}",
        "https://\u{1b}[2J\u{202e}/",
    ] {
        warc.request(LATER, url, Some(agent));
    }
    let fields = [("WARC-Type", "request"), ("WARC-Target-URI", "=1")];
    warc.record(&fields, "\u{1b}[2J");
    for arguments in [
        &[][..],
        &["--json"],
        &["--csv"],
        &["--requests"],
        &["--requests", "--json"],
        &["--requests", "--csv"],
    ] {
        let outcome = run_judge(&warc, arguments).await;
        let text = outcome.stdout + &outcome.stderr;
        assert!(text.contains("disallow"), "{arguments:?} {text}");
        let is_hostile = text.contains(['\u{1b}', '\u{202e}']);
        assert!(!is_hostile, "{arguments:?} {text}");
        for field in text.split([',', '\n']) {
            let is_formula = arguments.contains(&"--csv") && field.starts_with('=');
            assert!(!is_formula, "{field}");
        }
    }
}

// Ours: the HTML report escapes archived text, and never overwrites a file.
#[tokio::test]
async fn the_html_report_names_disallowed_rules_and_input_files() {
    let mut warc = Warc::plain();
    let rule = "User-agent: *\nDisallow: /<script>\u{202e}\nDisallow: /b\n";
    warc.robots(START, rule);
    for path in ["b", "b", "c", "<script>\u{202e}"] {
        let url = format!("https://h.test/{path}");
        warc.request("2026-01-02T01:01:00Z", &url, Some("<b>Bot\u{1b}/1"));
    }
    let folder = folder(&warc);
    let arguments = ["judge", "--warc", "a.warc", "--html", "page.html"];
    run_in(folder.path(), &arguments).await.assert_code(1);
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    let sha256 = Digest::of(&warc.bytes).to_string();
    let told = [
        "disallowed by robots.txt</span>",
        "<td data-label=\"Line of its robots.txt\">3: <code><bdi>Disallow: /b</bdi></code></td>\
             <td class=\"n\" data-label=\"Disallowed\">2</td>",
        &*sha256,
        "politesse <bdi>judge --warc a.warc --html page.html</bdi>",
    ];
    assert_contains_each(&page, &told);
    for hostile in ["\u{1b}", "\u{202e}", "<script", "<b>Bot"] {
        assert!(!page.contains(hostile), "{hostile:?} is in {page}");
    }
    run_in(folder.path(), &arguments).await.assert_code(2);
}

// Ours: the page can be passed on without secrets; and a path need not be UTF-8.
#[tokio::test]
async fn the_html_report_shows_its_command_without_secrets() {
    let mut warc = Warc::plain();
    warc.robots(START, NONE);
    let folder = folder(&warc);
    let name = OsStr::from_bytes(b"page-\xe4.html");
    let mut command = politesse(folder.path());
    command.args(["judge", "--warc", "a.warc", "--set"]);
    let digest = "0a".repeat(32);
    let crawler = format!("{{ token = \"FooBot\", credential = \"sha256:{digest}\" }}");
    command.arg(format!("crawler=[{crawler}]"));
    command.args(["--set", "audit.seal_to=[\"https://hooks.test/t0b0\"]"]);
    command.arg("--html").arg(name);
    finish(command, b"").await.assert_code(0);
    let page = std::fs::read_to_string(folder.path().join(name)).unwrap();
    let told = ["sha256:…", "page-\u{fffd}.html", "audit.seal_to=…"];
    assert_contains_each(&page, &told);
    assert!(!page.contains(&digest) && !page.contains("t0b0"), "{page}");
}

// Ours: with `--robots`, the robots.txt files of the archive are ignored.
#[tokio::test]
async fn saved_robots_txt_files_replace_those_in_the_archive() {
    let mut warc = Warc::plain();
    warc.robots(START, NONE)
        .page(LATER, "https://h.test/a")
        .page(LATER, "https://other.test/a");
    let folder = folder(&warc);
    std::fs::write(folder.path().join("h.test.txt"), ALL).unwrap();
    let arguments = ["judge", "--warc", "a.warc", "--robots", ".", "--csv"];
    let outcome = run_in(folder.path(), &arguments).await;
    let rows = "host,crawler,verdict,reason,line,rule,requests\r\n\
                    h.test,FooBot,allow,no_rule,,,1\r\n\
                    h.test,FooBot,allow,robots_txt,,,1\r\n\
                    other.test,FooBot,unknown,no_robots,,,1\r\n";
    assert_eq!(outcome.stdout, rows);
}
