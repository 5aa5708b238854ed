//! `politesse directives`: its plain and JSON output about a page, and its batch
//! mode.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::client::get_as;
use crate::kit::origin::{Script, site};
use crate::kit::page::Page;
use crate::kit::program::{Outcome, finish, isolated, politesse, run_in};
use crate::kit::proxy::{Config, Place};
use crate::kit::{assert_contains, assert_members};

const AGENT: &str = "Mozilla/5.0 (compatible; FooBot/2.1; +https://foo.test/) Foo/1";
const HEAD: &str = "<!doctype html><title>x</title>\
    <meta name=robots content='noarchive, max-snippet:20'>\
    <meta name=foobot content='noai, unavailable_after: 2020-01-01'><body>";

/// Runs `directives` with `arguments` and `page` on standard input.
async fn explain_page(page: impl AsRef<[u8]>, arguments: &[&str]) -> Outcome {
    let mut command = politesse(&std::env::temp_dir());
    command.arg("directives").args(arguments).arg("-");
    finish(command, page.as_ref()).await
}

/// Runs `directives --batch` in `folder` with `lines` on standard input.
async fn batch_in(folder: &std::path::Path, lines: impl AsRef<[u8]>) -> Outcome {
    let mut command = politesse(folder);
    command.args(["directives", "--batch", "-"]);
    finish(command, lines.as_ref()).await
}

async fn batch(questions: &[Value]) -> Outcome {
    let lines = questions.iter().map(|line| format!("{line}\n"));
    batch_in(&std::env::temp_dir(), lines.collect::<String>()).await
}

#[track_caller]
fn assert_prints(outcome: &Outcome, lines: &[&str]) {
    for line in lines {
        let is_told = outcome.stdout.lines().any(|told| told.trim() == *line);
        assert!(is_told, "{line:?} is not in {}", outcome.stdout);
    }
}

// Ours: each bad line yields an error object; the other lines are answered.
#[tokio::test]
async fn a_batch_reports_bad_lines_and_continues() {
    let lines = concat!(
        "{\"id\":[1,{\"a\":null}],\"headers\":[[\"X-Robots-Tag\",\"noindex\"]],\"what\":1}\n",
        "nonsense\n",
        " \r\n",
        "{\"headers\":[[\"X-Robots-Tag\",\"\u{394}\"]]}\n",
        "{\"headers\":[[\"a b\",\"x\"]]}\n",
        "{\"headers\":[[\"a\",\"x\\ny\"]]}\n",
        "{\"now\":\"yesterday\"}\n",
        "{\"status\":99}\n",
        "{\"method\":\"\"}\n",
        "{\"body_b64\":\"%\"}\n",
        "{\"id\":\"last\",\"headers\":null,\"body\":null,\"content_type\":null,\"agent\":null}",
    );
    let outcome = batch_in(&std::env::temp_dir(), lines).await.assert_code(1);
    let told = outcome.json_lines();
    let first = json!({
        "id": [1, {"a": null}],
        "directives": ["noindex"],
        "state": "complete",
        "why": null,
        "header": "*=(noindex;src=x);state=complete",
    });
    assert_eq!(told[0], first);
    for (line, told) in [2, 4, 5, 6, 7, 8, 9, 10].into_iter().zip(&told[1..9]) {
        assert_eq!(told["line"], line, "{told}");
        assert!(told["error"].is_string(), "{told}");
    }
    assert_eq!((&told[9]["id"], told.len()), (&json!("last"), 10));
}

// Ours: without a limit, a single line could exhaust memory.
#[tokio::test]
async fn an_oversized_line_fails_alone() {
    let line = vec![b'x'; 64 * 1024 * 1024 + 1];
    let lines = [&line[..], b"\n{\"id\":2}\n"].concat();
    let told = batch_in(&std::env::temp_dir(), lines).await.json_lines();
    assert_eq!(told[0]["line"], 1);
    assert_contains(told[0]["error"].as_str().unwrap(), "longer than");
    assert_eq!(told[1]["id"], 2);
}

// Ours: each key of a batch line changes the answer. An agent is a token or a whole
// User-Agent value.
#[tokio::test]
async fn every_key_of_a_batch_line_is_honoured() {
    let meta = "<meta name=robots content=noindex>";
    let html = json!({"content_type": "text/html", "body": meta});
    let dated = json!([["X-Robots-Tag", "unavailable_after: 2026-01-02T00:00:00Z"]]);
    let dated = json!({"headers": dated});
    let long = format!("noai,{}, noindex", "a".repeat(9000));
    let long = json!({"headers": [["X-Robots-Tag", long]]});
    let quoted = json!({"headers": [["X-Robots-Tag", "\u{93}noindex\u{94}"]]});
    let until = "unavailable_after:2026-01-02T00:00:00Z";
    let image = json!({"headers": [["content-type", "image/png"]]});
    let untyped = json!({"body": format!("<p>{meta}")});
    let before = json!({"now": "2026-01-01T00:00:00Z"});
    let aimed = json!({"headers": [["X-Robots-Tag", "foobot: noindex"]]});
    let (noindex, noai) = (&["noindex"][..], &["noai"][..]);
    let (partial, complete) = ("partial", "complete");
    // A question, the keys that are set in addition, and the answer.
    let rows = [
        (&html, json!({}), noindex, complete),
        // Base64 of `<title>`: it takes precedence over `body`.
        (&html, json!({"body_b64": "PHRpdGxlPg=="}), &[], complete),
        (&html, json!({"body": null}), &[], complete),
        (&html, json!({"method": "HEAD"}), &[], partial),
        (&html, json!({"status": 404}), &[], complete),
        (&html, json!({"status": 304}), &[], partial),
        (&html, json!({"scan_limit": 9}), &[], partial),
        (&html, json!({"content_type": "text/plain"}), &[], complete),
        (&html, image, noindex, complete),
        (&json!({}), untyped, &[], complete),
        (&dated, before, &[until], complete),
        (&dated, json!({}), &["noindex", until], complete),
        (&long, json!({}), &["noai", "noindex"], complete),
        (&long, json!({"field_limit": 8192}), noai, partial),
        (&quoted, json!({}), noindex, complete),
        (&aimed, json!({"agent": "FooBot"}), noindex, complete),
        (&aimed, json!({"agent": AGENT}), noindex, complete),
        (&aimed, json!({"agent": "OtherBot"}), &[], complete),
        (&aimed, json!({"agent": null}), &[], complete),
        (&aimed, json!({"agent": "*"}), &[], complete),
    ];
    let questions = rows.iter().map(|(question, more, ..)| {
        let mut question = (*question).clone();
        let more = more.as_object().unwrap().clone();
        question.as_object_mut().unwrap().extend(more);
        question
    });
    let questions: Vec<Value> = questions.collect();
    let told = batch(&questions).await.json_lines();
    for ((question, row), told) in questions.iter().zip(rows).zip(told) {
        let (_, _, directives, state) = row;
        let found = (&told["directives"], &told["state"]);
        assert_eq!(found, (&json!(directives), &json!(state)), "{question}");
    }
}

// Ours: the answer is that of a proxy with the same configuration.
#[tokio::test]
async fn directives_follow_the_configuration() {
    let config = Config::default()
        .set("directives.scan_limit = \"64B\"")
        .set("directives.header = \"X-Said\"")
        .set("crawler = [{ token = \"Known\", user_agent = \"libfoo\" }]");
    let place = Place::with(&config);
    let page = format!("<!-- {} --><meta name=robots content=noai>", "-".repeat(99));
    let question = json!({"content_type": "text/html", "body": page, "agent": "libfoo/1"});
    let told = batch_in(place.folder(), question.to_string()).await;
    let header = "known=();state=partial;why=head-limit";
    assert_eq!(told.json_lines()[0]["header"], header);
    std::fs::write(place.path("page.html"), page).unwrap();
    let command = ["directives", "--agent", "libfoo/1", "page.html"];
    let told = place.run(&command).await;
    let field = format!("x-said: {header}");
    let lines = ["for Known: nothing is known to be in force", &field];
    assert_prints(&told, &lines);
}

// Ours: each directive in force is listed with its sources.
#[tokio::test]
async fn plain_output_explains_each_directive_of_a_page() {
    let field = "X-Robots-Tag: noarchive, otherbot: noindex";
    let outcome = explain_page(HEAD, &["--agent", AGENT, "--header", field]).await;
    let lines = [
        "for FooBot: 5 directives are in force",
        "max-snippet:20, said in <meta>",
        "noai, said in <meta>",
        "noarchive, said in X-Robots-Tag and <meta>",
        "noindex, said in <meta>",
        "unavailable_after:2020-01-01T00:00:00Z, which has come: noindex, said in <meta>",
        "complete: what is not listed is not in force",
        "names: FooBot, Foo",
        &format!("body: {} bytes of it were looked at", HEAD.len()),
        "robots-directives: foobot=(max-snippet;value=20;src=m noai;src=m \
         noarchive;src=\"x m\" noindex;src=m unavailable_after;value=@1577836800;src=m)\
         ;state=complete",
    ];
    assert_prints(&outcome.assert_code(0), &lines);
}

// Ours: a `Content-Usage` preference is not a directive.
#[tokio::test]
async fn preferences_are_listed_apart_from_directives() {
    let config = Config::default().set("directives.preferences = true");
    let place = Place::with(&config);
    let command = [
        "directives",
        "--header=Content-Usage: train-ai=n",
        "--content-type=text/plain",
    ];
    let lines = [
        "for everyone: nothing is in force",
        "preferred: train-ai:n, said in a field",
        "robots-directives: *=(train-ai;value=n;src=h);state=complete",
    ];
    assert_prints(&place.run(&command).await, &lines);
    let told = place.run(&[&command[..], &["--json"]].concat()).await;
    let object = &told.json_lines()[0];
    let expected = json!({"sources": [], "preferences": ["train-ai:n"]});
    assert_members(object, &expected);
}

// Ours: `--json` has the members of the batch answer, and further ones.
#[tokio::test]
async fn json_output_agrees_with_the_batch_answer() {
    let arguments = [
        "--json",
        "--agent",
        AGENT,
        "--header=Robots-Tag: *;noarchive",
    ];
    let outcome = explain_page(HEAD, &arguments).await;
    let object = outcome.json_lines().remove(0);
    let expected = json!({
        "state": "complete",
        "why": null,
        "field": "robots-directives",
        "token": "FooBot",
        "candidates": ["FooBot", "Foo"],
        "user_agent": AGENT,
        "body": HEAD.len(),
    });
    assert_members(&object, &expected);
    let sources = object["sources"].as_array().unwrap();
    let listed: Vec<&Value> = sources.iter().map(|said| &said["directive"]).collect();
    assert_eq!(json!(listed), object["directives"]);
    let noarchive = json!({"directive": "noarchive", "src": ["r", "m"]});
    assert_eq!(sources[2], noarchive);
    let question = json!({
        "agent": AGENT, "headers": [["Robots-Tag", "*;noarchive"]], "body": HEAD,
    });
    let line = batch(&[question]).await.json_lines().remove(0);
    for member in ["directives", "state", "why", "header"] {
        assert_eq!(object[member], line[member], "{member}");
    }
}

// Ours: the command prints the header that the proxy would add to the response.
#[tokio::test]
async fn the_printed_header_equals_that_of_the_proxy() {
    let field = ("X-Robots-Tag", "max-image-preview:none, foobot: noai");
    let page = Page::html(HEAD).field(field.0, field.1);
    let (_origin, proxy) = site(Script::robots("").page("/a", page), &[]).await;
    let reply = get_as(&proxy, AGENT, "http://o.test/a").await;
    let sent = reply.head.value("robots-directives");
    let field = format!("{}: {}", field.0, field.1);
    let told = explain_page(HEAD, &["--agent", AGENT, "--header", &field]).await;
    assert_prints(&told, &[&format!("robots-directives: {sent}")]);
}

// Ours: without the page the answer is partial, because the page could have
// `<meta>` directives, unless its type or status rules them out.
#[tokio::test]
async fn fields_alone_are_complete_only_if_the_page_can_have_no_meta() {
    let field = ["--header", "X-Robots-Tag: noindex"];
    for (more, end) in [
        (&[][..], "state=partial;why=method"),
        (&["--content-type", "text/html"], "state=partial;why=method"),
        (&["--content-type", "image/png"], "state=complete"),
        (&["--status", "404"], "state=complete"),
        (&["--status", "304"], "state=partial;why=not-modified"),
    ] {
        let command = [&["directives"], &field[..], more].concat();
        let outcome = run_in(&std::env::temp_dir(), &command).await;
        let lines = [
            "noindex, said in X-Robots-Tag",
            "body: none given, so that only the fields were read",
            &format!("robots-directives: *=(noindex;src=x);{end}"),
        ];
        assert_prints(&outcome.assert_code(0), &lines);
    }
}

// Ours: a page without a content type is read only if it begins as HTML.
#[tokio::test]
async fn a_page_that_does_not_start_as_html_is_read_only_on_request() {
    let page = "words <meta name=robots content=noindex>";
    let told = explain_page(page, &[]).await;
    assert_prints(&told, &["for everyone: nothing is in force"]);
    assert_contains(&told.stdout, "--content-type text/html");
    let told = explain_page(page, &["--content-type", "text/html"]).await;
    assert_contains(&told.stdout, "of it were looked at");
    let told = explain_page(HEAD, &["--method", "HEAD"]).await;
    assert_prints(&told, &["body: nothing of it was looked at"]);
}

// Ours: exit code 2 is wrong usage, 3 an input that cannot be read.
#[tokio::test]
async fn wrong_usage_exits_with_2_and_an_unreadable_page_with_3() {
    let field = "--header=X-Robots-Tag: noindex";
    for (arguments, code, said) in [
        (&[][..], 2, "required"),
        (&["nowhere.html"], 3, "cannot read nowhere.html"),
        (&["."], 3, "cannot read ."),
        (&["--batch", "nowhere"], 2, "cannot read nowhere"),
        (&["--batch", "-", "--json"], 2, "cannot be used with"),
        (&["--header", "noindex"], 2, "NAME: VALUE"),
        (&["--header", "X Robots: noindex"], 2, "NAME: VALUE"),
        (&["--header", ": noindex"], 2, "NAME: VALUE"),
        (&[field, "--method", "HEAD"], 2, "<FILE>"),
        (&[field, "--status", "20"], 2, "--status"),
        (&[field, "--content-type", "\n"], 2, "--content-type"),
    ] {
        let folder = TempDir::new().unwrap();
        let arguments = [&["directives"], arguments].concat();
        let outcome = run_in(folder.path(), &arguments).await;
        outcome.assert_output(code, "");
        assert!(outcome.stderr.contains(said), "{outcome:?}");
    }
    // The options are many, and an example in the help text shows the usual ones.
    let help = run_in(&std::env::temp_dir(), &["directives", "--help"]).await;
    assert_contains(&help.stdout, "Example: politesse directives");
}

// Ours: piping into `head` must not be an error.
#[tokio::test]
async fn a_closed_output_pipe_is_no_failure() {
    let script = "yes '{}' | head -n 2000 | \"$0\" directives --batch - | head -n 1; \
                  exit ${PIPESTATUS[2]}";
    let mut bash = isolated("bash", &std::env::temp_dir());
    bash.args(["-c", script, env!("CARGO_BIN_EXE_politesse")]);
    let outcome = finish(bash, b"").await.assert_code(0);
    assert_eq!(outcome.stderr, "");
}

// Ours: control characters from an agent or a page are never printed raw; a
// terminal would act on them.
#[tokio::test]
async fn output_contains_no_terminal_control_characters() {
    let is_control = |letter: char| letter.is_control() || letter == '\u{202e}';
    let agent = "\u{1b}[2J\u{202e}";
    let page = "<meta name=robots content='noindex\u{1b}[2J, \u{202e}nofollow'>";
    let typed = ["--content-type", "text/html", "--agent", agent];
    let people = explain_page(page, &typed).await;
    let programs = explain_page(page, &[&typed[..], &["--json"]].concat()).await;
    let question = json!({"id": agent, "agent": agent, "body": page});
    let batch = batch(&[question]).await;
    for outcome in [&people, &programs, &batch] {
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let text = outcome.stdout.replace('\n', "");
        assert!(!text.contains(is_control), "{outcome:?}");
    }
    assert_eq!(batch.json_lines()[0]["id"], agent);
}
