//! Chromium: it accepts the CA by the hash of its key, which `tests/clients/spki.mjs`
//! passes to it, and the requisites of a page are loaded with it.

use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::kit::checkout::root;
use crate::kit::origin::{Script, site};
use crate::kit::paced::{pages, span, standard};
use crate::kit::page::Page;
use crate::kit::program::{Outcome, ended};
use crate::kit::proxy::Proxy;
use crate::requisites::FOLLOW;

/// Time for a browser to start and open two pages on a busy machine.
const BROWSER: Duration = Duration::from_secs(100);

/// Returns the hash of the CA's key, as `ca show` prints it.
async fn spki(proxy: &Proxy) -> String {
    let shown = proxy.place().run(&["ca", "show"]).await;
    let mut lines = shown.stdout.lines();
    let spki = lines.find_map(|line| line.strip_prefix("spki "));
    spki.unwrap().to_owned()
}

/// Opens `pages` through `proxy` in a browser that accepts the key with the hash `spki`.
async fn open_pages(proxy: &Proxy, spki: &str, pages: &[&str]) -> Outcome {
    let mut command = Command::new("node");
    command
        // Node resolves imports from the folder that it runs in.
        .current_dir(root().join("target/node"))
        .args(["--input-type=module", "-"])
        .arg(format!("http://{}", proxy.address()))
        .arg(spki)
        .args(pages)
        .kill_on_drop(true);
    let script = std::fs::read(root().join("tests/clients/spki.mjs")).unwrap();
    let outcome = timeout(BROWSER, ended(command, &script)).await;
    outcome.expect("the browser took too long")
}

// Ours: `ca show`, and docs/clients.md.
#[tokio::test]
async fn chromium_accepts_the_key_hash_that_ca_show_prints() {
    let script = Script::robots("User-agent: *\nDisallow: /private\n");
    let script = script.page("/lamp", Page::html("A lamp.")).tls();
    // Chromium sends background requests to its own hosts; a dead parent keeps them local.
    let (_origin, proxy) = site(script, &["upstream.parent = \"http://127.0.0.1:1\""]).await;
    let pages = ["https://o.test/lamp", "https://o.test/private"];
    let outcome = open_pages(&proxy, &spki(&proxy).await, &pages).await;
    let lines: Vec<_> = outcome.stdout.lines().collect();
    assert_eq!(lines[0], "200 A lamp.", "{outcome:?}");
    assert!(outcome.stdout.contains("\n403 "), "{outcome:?}");
    assert!(outcome.stdout.contains("Disallow: /private"), "{outcome:?}");
    // With the hash of another key, Chromium rejects the certificates.
    let outcome = open_pages(&proxy, &"A".repeat(43), &pages).await;
    let refused = "000 ERR_CERT_AUTHORITY_INVALID\n";
    assert_eq!(outcome.stdout, refused.repeat(2), "{outcome:?}");
}

/// Returns a page that shows how many of its images have loaded. It has 15 allowed
/// images, a style sheet with 14 more, and a disallowed image.
fn album() -> Page {
    let shown = (0..15).map(|number| format!("<img src=/files/{number}>"));
    let styled = (15..29).map(|number| format!("<p class=c{number}>."));
    let count = "document.body.textContent = \
                 [...document.images].filter((image) => image.naturalWidth).length";
    let body = format!(
        "<link rel=stylesheet href=/style>{}{}<img src=/private/1>\
         <script>addEventListener('load', () => {{ {count} }})</script>",
        shown.collect::<String>(),
        styled.collect::<String>()
    );
    Page::html(&body)
}

fn album_origin() -> Script {
    let image = "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>";
    let styles =
        (15..29).map(|number| format!(".c{number} {{ background: url(/files/{number}) }}"));
    let style = Page::typed("text/css", styles.collect::<String>().as_bytes());
    let script = Script::robots("User-agent: *\nDisallow: /private\n");
    let script = script.page("/album", album()).page("/style", style);
    (0..29).fold(script, |script, number| {
        let image = Page::typed("image/svg+xml", image.as_bytes());
        script.page(&format!("/files/{number}"), image)
    })
}

// Ours: `requisites = "follow"`, docs/pace.md. Over HTTPS a browser states the purpose of
// a request; over HTTP only the Referer shows the page or style sheet.
#[tokio::test]
async fn a_browser_loads_thirty_files_at_one_request_a_second() {
    for scheme in ["http", "https"] {
        let script = album_origin();
        let origin = match scheme {
            "http" => script.start().await,
            _ => script.tls().start().await,
        };
        let config = standard(&origin)
            .set("pace.origin = { rate = \"1/s\" }")
            .set("upstream.parent = \"http://127.0.0.1:1\"")
            .set(FOLLOW);
        let proxy = config.start().await;
        let album = format!("{scheme}://o.test/album");
        let outcome = open_pages(&proxy, &spki(&proxy).await, &[&album]).await;
        assert_eq!(outcome.stdout.trim(), "200 15", "{outcome:?}");
        let mut seen = pages(&[&origin]);
        seen.retain(|seen| seen.target != "/favicon.ico");
        assert_eq!(seen.len(), 31, "{seen:?}");
        assert!(span(&seen) < Duration::from_secs(20), "{seen:?}");
        assert!(!seen.iter().any(|seen| seen.target.starts_with("/private")));
    }
}
