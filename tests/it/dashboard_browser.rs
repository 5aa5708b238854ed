//! The dashboard in Chromium: `tests/clients/dashboard.mjs` visits every page as a
//! person would, and takes the pictures for the README and the book. Every test here
//! is ours; axe-core checks WCAG 2.2.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;

use crate::dashboard::token;
use crate::kit::checkout::{root, text};
use crate::kit::client::get_as;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::page::Page;
use crate::kit::program::ended;
use crate::kit::proxy::{Config, Proxy};
use crate::kit::run_within;

/// Rules of the shop, with markup that must not take effect in the browser.
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

/// Overrides for other sites: one that has expired, and one with hostile markup.
const OVERRIDES: &str = "robots.override = [\n\
    { origin = \"http://other.test\", action = \"allow\", reason = \"contract 114\", \
      until = 2001-01-01T00:00:00Z },\n\
    { origin = \"*.other.test\", path = \"/<script>alert(1)</script>\", action = \"deny\", \
      reason = \"\\\"><img src=x onerror=alert(1)>\" },\n\
]";

/// Time limit of the whole walk. Alone it takes a minute and a half, most of it in
/// axe-core; on a busy machine it takes far longer.
const WALK: Duration = Duration::from_secs(600);

/// Environment variable. If set, the walk overwrites the pictures in `docs/images`.
const PICTURES: &str = "POLITESSE_PICTURES";

/// Creates an empty folder for pictures of the pages, for a person to inspect.
fn new_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Starts a proxy whose record holds decisions, many of them about hostile URLs.
async fn start_with_hostile_record() -> (Origin, Proxy) {
    let lamp = Page::html("<meta name=robots content='noarchive, max-snippet:50'>A lamp.");
    let script = Script::robots(ROBOTS).page("/lamp", lamp);
    let (origin, proxy) = site(script.name("shop.test"), &[OVERRIDES]).await;
    for number in 0..30 {
        let url = format!("http://shop.test/lamp?{number}");
        get_as(&proxy, "FooBot/1.0", &url).await;
        get_as(&proxy, "HungryBot/2", &format!("http://shop.test/{number}")).await;
    }
    let markup = "\"><script>alert(1)</script>";
    let hostile = format!("{markup} <img src=x onerror=alert(1)>");
    for (agent, url) in [
        ("FooBot/1.0", "http://shop.test/lamp"),
        (&hostile, &format!("http://shop.test/basket?{markup}")),
        (
            "ExampleBot/1.0",
            "http://shop.test/basket/%3Csvg%20onload=alert(1)%3E",
        ),
        ("ExampleBot/1.0", "http://nowhere.test/"),
    ] {
        get_as(&proxy, agent, url).await;
    }
    (origin, proxy)
}

/// Starts the proxy shown in the pictures: a small shop, two crawlers that keep to its
/// rules, and one that does not.
async fn start_pictured_shop() -> (Origin, Proxy) {
    let robots = "User-agent: *\nCrawl-delay: 0.01\nDisallow: /basket\nDisallow: /account\n\
                  Allow: /account/help\n\nUser-agent: HungryBot\nDisallow: /\n";
    let lamp = Page::html("<meta name=robots content=noarchive>A lamp.");
    let origin = Script::robots(robots).page("/lamp", lamp).start().await;
    let mut config = Config::default();
    for host in ["shop.test", "docs.shop.test", "news.test"] {
        config = config.resolve(host, origin.address());
    }
    let proxy = config.start().await;
    for number in 0..8 {
        for (agent, url) in [
            ("FooBot/1.0", "http://shop.test/lamp"),
            ("FooBot/1.0", "http://docs.shop.test/account/help"),
            ("OtherBot/2", "http://news.test/lamp"),
            ("HungryBot/2", "http://shop.test/lamp"),
        ] {
            get_as(&proxy, agent, &format!("{url}?{number}")).await;
        }
    }
    get_as(&proxy, "OtherBot/2", "http://nowhere.test/").await;
    for path in ["account/orders", "basket/lamp?add=1"] {
        get_as(&proxy, "FooBot/1.0", &format!("http://shop.test/{path}")).await;
    }
    (origin, proxy)
}

/// Returns the addresses and token of a proxy as JSON, for the script.
fn to_json(proxy: &Proxy) -> String {
    let described = json!({
        "admin": format!("http://{}", proxy.admin()),
        "proxy": format!("http://{}", proxy.address()),
        "token": token(proxy),
    });
    described.to_string()
}

#[test]
fn a_browser_walks_every_page() {
    run_within(WALK, async {
        let (_attacker, attacked) = start_with_hostile_record().await;
        let (_shop, pictured) = start_pictured_shop().await;
        let fresh = Config::default().start().await;
        let pictures = new_folder("dashboard");
        let documentation = match std::env::var_os(PICTURES) {
            Some(_) => root().join("docs/images"),
            None => new_folder("dashboard-documentation"),
        };
        let mut command = Command::new("node");
        command
            // Node resolves imports relative to the folder of the script.
            .current_dir(root().join("target/node"))
            .args(["--input-type=module", "-"])
            .args([&pictures, &documentation])
            .args([&attacked, &fresh, &pictured].map(to_json));
        let script = std::fs::read(root().join("tests/clients/dashboard.mjs")).unwrap();
        let outcome = ended(command, &script).await;
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

// `POLITESSE_PICTURES=1 cargo test --test it a_browser_walks` retakes the pictures.
#[test]
fn every_documentation_picture_is_shown_in_the_docs() {
    let shown = text("README.md") + &text("docs/dashboard.md");
    let mut taken = 0;
    for entry in std::fs::read_dir(root().join("docs/images")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(shown.contains(&format!("images/{name})")), "{name}");
        taken += usize::from(name.starts_with("dashboard-"));
    }
    assert_eq!(taken, 3, "overview, decision and phone");
}
