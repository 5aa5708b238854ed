//! The npm package in `contrib/npm`: its options in a real Playwright, and its contents.
//!
//! `tests/run` installs Playwright in `target/node`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use crate::kit::assert_contains;
use crate::kit::checkout::{root, text};
use crate::kit::origin::{Origin, Script};
use crate::kit::page::Page;
use crate::kit::program::{Outcome, ended, finish, isolated, politesse};
use crate::kit::proxy::{Config, Place, Proxy, resolve};

/// Time limit for a browser to start and open three pages on a busy machine.
const BROWSER: Duration = Duration::from_secs(100);

const PAGES: [&str; 3] = [
    "https://o.test/lamp",
    "https://o.test/private",
    "https://o.test/own",
];

async fn start_shop() -> (Origin, Config) {
    let script = Script::robots("User-agent: *\nDisallow: /private\n")
        .page("/lamp", Page::html("A lamp."))
        .page("/own", Page::html("No.").with_status(403));
    let origin = script.tls().start().await;
    // Chromium also contacts hosts of its vendor. A parent proxy that refuses connections
    // keeps those requests on this machine.
    let config = resolve("o.test", origin.address());
    let config = config.set("upstream.parent = \"http://127.0.0.1:1\"");
    (origin, config)
}

/// Has `command`, which starts Node, open [`PAGES`] with `options`.
async fn open_pages(mut command: Command, options: &str) -> Outcome {
    command
        // Node resolves imports relative to the folder of the script.
        .current_dir(root().join("target/node"))
        .args(["--input-type=module", "-"])
        .arg(root().join("contrib/npm"))
        .arg(options)
        .args(PAGES)
        .kill_on_drop(true);
    let script = text("tests/clients/playwright.mjs");
    let outcome = timeout(BROWSER, ended(command, script.as_bytes())).await;
    outcome.expect("the browser took too long")
}

/// Asserts that the allowed page was loaded, that the disallowed one was refused with its
/// rule, and that a 403 of the site itself is not reported as a refusal by robots.txt.
fn assert_polite(outcome: &Outcome) {
    let rule = "Line 2 of https://o.test/robots.txt, \"Disallow: /private\" in the group of *, \
                disallows this URL.";
    let wanted = format!("200 undefined\n403 {rule}\n403 undefined\n");
    assert_eq!(outcome.stdout, wanted, "{outcome:?}");
}

#[tokio::test]
async fn playwright_opens_pages_with_the_options_of_the_package() {
    let (_origin, config) = start_shop().await;
    let proxy: Proxy = config.start().await;
    let options = |ca: &str| {
        let address = format!("http://{}", proxy.address());
        json!({ "proxy": address, "ca": proxy.place().path(ca) }).to_string()
    };
    let node = || Command::new("node");
    assert_polite(&open_pages(node(), &options("certs/ca.pem")).await);
    // With another CA no page can be opened.
    let outcome = open_pages(node(), &options("roots.pem")).await;
    let refused = "000 ERR_CERT_AUTHORITY_INVALID\n".repeat(3);
    assert_eq!(outcome.stdout, refused, "{outcome:?}");
}

#[tokio::test]
async fn under_run_playwright_options_come_from_the_environment() {
    let (_origin, config) = start_shop().await;
    let place = Place::with(&config);
    let mut command = politesse(place.folder());
    command.args(["run", "--", "node"]);
    let outcome = open_pages(command, "{}").await;
    assert_polite(&outcome);
    let refused = "refused 1 × Disallow: /private (line 2 of https://o.test/robots.txt)";
    assert_contains(&outcome.stderr, refused);
}

#[tokio::test]
async fn a_missing_proxy_or_ca_is_reported_with_a_remedy() {
    let place = Place::with(&Config::default());
    let system = "/etc/ssl/certs/ca-certificates.crt";
    let no_proxy = "no proxy: start this program with `politesse run";
    for (options, told) in [
        (json!({}), no_proxy),
        (
            json!({"proxy": "socks5://h:1"}),
            "http://HOST:PORT is wanted",
        ),
        (
            json!({"proxy": "http://h:1"}),
            "no CA: start this program with",
        ),
        (
            json!({"proxy": "http://h:1", "ca": "none.pem"}),
            "cannot read the CA's",
        ),
        (
            json!({"proxy": "http://h:1", "ca": system}),
            "that of politesse alone",
        ),
    ] {
        let mut command = isolated("node", place.folder());
        command.env_remove("NODE_EXTRA_CA_CERTS");
        let outcome = open_pages(command, &options.to_string()).await;
        assert!(outcome.stderr.contains(told), "{options}: {outcome:?}");
    }
}

/// Packs `binary`, installs the package into `folder` without network access, and returns
/// the path of the installed program.
async fn install_package(binary: &Path, folder: &Path) -> PathBuf {
    let mut build = Command::new(root().join("contrib/npm/build"));
    build.args([binary, folder]);
    let outcome = finish(build, b"").await.assert_code(0);
    let package = outcome.stdout.trim();
    let name = format!("politesse-{}.tgz", env!("CARGO_PKG_VERSION"));
    assert!(package.ends_with(&name), "{package}");
    let mut npm = isolated("npm", folder);
    npm.args(["install", "--offline", "--no-audit", "--no-fund", package]);
    finish(npm, b"").await.assert_code(0);
    folder.join("node_modules/.bin/politesse")
}

// Ours: `tests/full.sh` packs the real binary; here another program replaces it.
#[tokio::test]
async fn npm_installs_the_given_binary_unchanged() {
    let folder = TempDir::new().unwrap();
    let binary = Path::new("/bin/true");
    let program = install_package(binary, folder.path()).await;
    let [installed, given] = [&*program, binary].map(|path| std::fs::read(path).unwrap());
    assert!(installed == given, "the program was changed");
    assert!(Command::new(program).status().await.unwrap().success());
    let mut require = isolated("node", folder.path());
    require.args(["--input-type=module", "-e"]);
    require.arg("import * as all from 'politesse'; console.log(Object.keys(all).join(' '))");
    let outcome = finish(require, b"").await;
    outcome.assert_output(0, "crawlerOptions launchOptions refusal\n");
}
