//! The dashboard in a browser: `tests/clients/dashboard.mjs` walks every page as a
//! person would, in Chromium. All of it is ours; WCAG 2.2 where axe-core says so.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::kit::client::{get, get_as};
use crate::kit::origin::{Origin, Script};
use crate::kit::page::Page;
use crate::kit::program::ended;
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::run;

/// Rules of the shop, with what a browser would act on if it were let.
const ROBOTS: &str = "# <script>alert(1)</script> \u{202e}\u{1b}[2J\n\
                      User-agent: *\n\
                      Crawl-delay: 0.01\n\
                      Disallow: /basket\n\
                      Allow: /basket/help\n\
                      Disallow: /\"><img src=x onerror=alert(1)>\n\
                      \n\
                      User-agent: HungryBot\n\
                      Disallow: /\n\
                      Sitemap: javascript:alert(1)\n";

/// Overrides of other sites: one that is over, and one that would act if it were let.
const OVERRIDES: &str = "robots.override = [\n\
    { origin = \"http://other.test\", action = \"allow\", reason = \"contract 114\", \
      until = 2001-01-01T00:00:00Z },\n\
    { origin = \"*.other.test\", path = \"/<script>alert(1)</script>\", action = \"deny\", \
      reason = \"\\\"><img src=x onerror=alert(1)>\" },\n\
]";

/// Time for the whole walk: a page takes a second, most of it axe-core's.
const WALK: Duration = Duration::from_secs(240);

/// Returns where pictures of the pages are put, to be looked at.
fn pictures() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Starts a proxy that has something to show.
async fn crawled() -> (Origin, Proxy) {
    let lamp = Page::html("<meta name=robots content='noarchive, max-snippet:50'>A lamp.");
    let origin = Script::robots(ROBOTS).page("/lamp", lamp).start().await;
    let config = resolve("shop.test", origin.address()).set(OVERRIDES);
    let proxy = config.start().await;
    for number in 0..30 {
        get_as(
            &proxy,
            "FooBot/1.0",
            &format!("http://shop.test/lamp?{number}"),
        )
        .await;
        get_as(&proxy, "HungryBot/2", &format!("http://shop.test/{number}")).await;
    }
    get_as(&proxy, "FooBot/1.0", "http://shop.test/lamp").await;
    let hostile = "\"><script>alert(1)</script> <img src=x onerror=alert(1)>";
    get_as(
        &proxy,
        hostile,
        "http://shop.test/basket?\"><script>alert(1)</script>",
    )
    .await;
    get(
        &proxy,
        "http://shop.test/basket/%3Csvg%20onload=alert(1)%3E",
    )
    .await;
    get(&proxy, "http://nowhere.test/").await;
    (origin, proxy)
}

#[test]
fn a_browser_walks_every_page() {
    run(async {
        let (_origin, proxy) = crawled().await;
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let token = std::fs::read_to_string(proxy.place().path("data/admin-token")).unwrap();
        let pictures = pictures();
        let mut command = Command::new("node");
        command
            // What is imported is looked for beside the script.
            .current_dir(root.join("target/node"))
            .args(["--input-type=module", "-"])
            .arg(format!("http://{}", proxy.admin()))
            .arg(token.trim())
            .arg(format!("http://{}", proxy.address()))
            .arg(&pictures);
        let script = std::fs::read(root.join("tests/clients/dashboard.mjs")).unwrap();
        let outcome = timeout(WALK, ended(command, &script)).await.unwrap();
        assert_eq!(
            outcome.code,
            Some(0),
            "{}\n{}\nPictures: {}",
            outcome.stderr,
            outcome.stdout,
            pictures.display()
        );
    });
}
