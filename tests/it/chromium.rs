//! Chromium, which takes the hash of the authority's key in place of its certificate:
//! `tests/clients/spki.mjs` opens pages in it.

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::kit::origin::Script;
use crate::kit::page::Page;
use crate::kit::program::{Outcome, ended};
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::run;

/// Time for a browser to start and to open two pages, on a busy machine.
const BROWSER: Duration = Duration::from_secs(100);

/// Opens pages through `proxy` in a browser that knows the key with the hash `spki`.
async fn opened(proxy: &Proxy, spki: &str) -> Outcome {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("node");
    command
        // What is imported is looked for beside the script.
        .current_dir(root.join("target/node"))
        .args(["--input-type=module", "-"])
        .arg(format!("http://{}", proxy.address()))
        .arg(spki)
        .args(["https://o.test/lamp", "https://o.test/private"])
        .kill_on_drop(true);
    let script = std::fs::read(root.join("tests/clients/spki.mjs")).unwrap();
    let outcome = timeout(BROWSER, ended(command, &script)).await;
    outcome.expect("the browser took too long")
}

// Ours: `ca show` and docs/clients.md.
#[test]
fn chromium_accepts_certificates_of_the_key_that_ca_show_names() {
    run(async {
        let origin = Script::robots("User-agent: *\nDisallow: /private\n")
            .page("/lamp", Page::html("A lamp."))
            .start_tls()
            .await;
        // Chromium asks for hosts of its own: a parent that refuses them keeps them here.
        let config = resolve("o.test", origin.address());
        let proxy = config
            .set("upstream.parent = \"http://127.0.0.1:1\"")
            .start()
            .await;
        let shown = proxy.place().run(&["ca", "show"]).await;
        let mut lines = shown.stdout.lines();
        let spki = lines.find_map(|line| line.strip_prefix("spki ")).unwrap();
        let outcome = opened(&proxy, spki).await;
        let lines: Vec<_> = outcome.stdout.lines().collect();
        assert_eq!(lines[0], "200 A lamp.", "{outcome:?}");
        assert!(outcome.stdout.contains("\n403 "), "{outcome:?}");
        assert!(outcome.stdout.contains("Disallow: /private"), "{outcome:?}");
        // The hash of another key opens nothing.
        let outcome = opened(&proxy, &"A".repeat(43)).await;
        let refused = "000 ERR_CERT_AUTHORITY_INVALID\n";
        assert_eq!(outcome.stdout, refused.repeat(2), "{outcome:?}");
    });
}
