//! The npm package in `contrib/npm`: its options in a real Playwright, and its contents.
//!
//! `tests/run` installs Playwright in `target/node`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use crate::kit::origin::Script;
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

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

async fn start_shop() -> (crate::kit::origin::Origin, Config) {
    let origin = Script::robots("User-agent: *\nDisallow: /private\n")
        .page("/lamp", Page::html("A lamp."))
        .page("/own", Page::html("No.").with_status(403))
        .tls()
        .start()
        .await;
    // Chromium also contacts hosts of its vendor. A parent proxy that refuses connections
    // keeps those requests on this machine.
    let config = resolve("o.test", origin.address());
    (
        origin,
        config.set("upstream.parent = \"http://127.0.0.1:1\""),
    )
}

/// Adds the Node arguments that open [`PAGES`] with `options`.
fn add_page_arguments(command: &mut Command, options: &str) {
    command
        .args(["--input-type=module", "-"])
        .arg(root().join("contrib/npm"))
        .arg(options)
        .args(PAGES);
}

async fn open_pages(command: Command) -> Outcome {
    let script = std::fs::read(root().join("tests/clients/playwright.mjs")).unwrap();
    let outcome = timeout(BROWSER, ended(command, &script)).await;
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

fn node() -> Command {
    let mut command = Command::new("node");
    // Node resolves imports relative to the folder of the script.
    command
        .current_dir(root().join("target/node"))
        .kill_on_drop(true);
    command
}

#[tokio::test]
async fn playwright_opens_pages_with_the_options_of_the_package() {
    let (_origin, config) = start_shop().await;
    let proxy: Proxy = config.start().await;
    let address = format!("http://{}", proxy.address());
    let ca = proxy.place().path("certs/ca.pem");
    let options = serde_json::json!({ "proxy": address, "ca": ca }).to_string();
    let mut command = node();
    add_page_arguments(&mut command, &options);
    assert_polite(&open_pages(command).await);
    // With another CA no page can be opened.
    let options = serde_json::json!({ "proxy": address, "ca": proxy.place().path("roots.pem") });
    let mut command = node();
    add_page_arguments(&mut command, &options.to_string());
    let outcome = open_pages(command).await;
    let refused = "000 ERR_CERT_AUTHORITY_INVALID\n".repeat(3);
    assert_eq!(outcome.stdout, refused, "{outcome:?}");
}

#[tokio::test]
async fn under_run_playwright_options_come_from_the_environment() {
    let (_origin, config) = start_shop().await;
    let place = Place::with(&config);
    let mut command = politesse(place.folder());
    command.current_dir(root().join("target/node"));
    command.args(["run", "--", "node"]);
    add_page_arguments(&mut command, "{}");
    let outcome = open_pages(command).await;
    assert_polite(&outcome);
    let refused = "refused 1 × Disallow: /private (line 2 of https://o.test/robots.txt)";
    assert!(outcome.stderr.contains(refused), "{outcome:?}");
}

#[tokio::test]
async fn a_missing_proxy_or_ca_is_reported_with_a_remedy() {
    let place = Place::with(&Config::default());
    let system = "/etc/ssl/certs/ca-certificates.crt";
    for (options, told) in [
        (
            "{}".to_owned(),
            "no proxy: start this program with `politesse run",
        ),
        (
            r#"{"proxy":"socks5://h:1"}"#.to_owned(),
            "http://HOST:PORT is wanted",
        ),
        (
            r#"{"proxy":"http://h:1"}"#.to_owned(),
            "no CA: start this program with",
        ),
        (
            r#"{"proxy":"http://h:1","ca":"none.pem"}"#.to_owned(),
            "cannot read the CA's",
        ),
        (
            format!(r#"{{"proxy":"http://h:1","ca":"{system}"}}"#),
            "that of politesse alone",
        ),
    ] {
        let mut command = isolated("node", place.folder());
        command
            .env_remove("NODE_EXTRA_CA_CERTS")
            .current_dir(root().join("target/node"));
        add_page_arguments(&mut command, &options);
        let outcome = open_pages(command).await;
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
    assert_eq!(
        std::fs::read(&program).unwrap(),
        std::fs::read(binary).unwrap()
    );
    assert!(Command::new(program).status().await.unwrap().success());
    let mut require = isolated("node", folder.path());
    require.args(["--input-type=module", "-e"]);
    require.arg("import * as all from 'politesse'; console.log(Object.keys(all).join(' '))");
    let outcome = finish(require, b"").await;
    assert_eq!(
        outcome.stdout, "crawlerOptions launchOptions refusal\n",
        "{outcome:?}"
    );
}
