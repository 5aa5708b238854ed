//! Commands that the proxy prints: each works when pasted into a shell in another folder.
//! The rule is ours.

use tempfile::TempDir;

use crate::kit::client::{Reply, ask, get_admin};
use crate::kit::demo::shell;
use crate::kit::origin::{Script, site};
use crate::kit::program::{finish, politesse};
use crate::kit::proxy::{Config, Place, Proxy, resolve};

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

/// Returns the text between `start` and `end`.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("{text}"));
    rest.split_once(end).unwrap_or_else(|| panic!("{text}")).0
}

/// Returns the first `code` element of a page, as a browser shows it.
fn in_html(page: &str) -> String {
    between(page, "<code>", "</code>").replace("&quot;", "\"")
}

/// Runs `line` in an empty folder, and returns its output.
async fn pasted(line: &str) -> String {
    let elsewhere = TempDir::new().unwrap();
    let outcome = finish(shell(elsewhere.path(), line), b"").await;
    assert_eq!(outcome.code, Some(0), "{line}: {outcome:?}");
    outcome.stdout
}

/// Requests a page of the admin listener with `token`, which may be empty.
async fn page(proxy: &Proxy, path: &str, token: &str) -> Reply {
    let bearer = format!("Authorization: Bearer {token}");
    get_admin(proxy.admin(), path, &[&bearer]).await
}

/// Runs every command of the banner, the pages and the refusals, and asserts that it
/// works.
async fn assert_commands_work(proxy: &Proxy) {
    let banner = proxy.banner().join("\n") + "\n";
    let link = pasted(between(&banner, "for another link: ", "\n")).await;
    assert!(link.starts_with(&format!("http://{}/login?once=", proxy.admin())));
    let sign_in = page(proxy, "/login", "").await.text();
    assert!(pasted(&in_html(&sign_in)).await.contains("/login?once="));
    let (_, second) = sign_in.split_once("</code>").unwrap();
    let token = pasted(&in_html(second)).await;
    let wanted = page(proxy, "/api/v1/pace", "").await.text();
    assert_eq!(pasted(between(&wanted, "`", "`")).await, token);
    for (path, count) in [("/configuration", 3), ("/reports", 1)] {
        let page = page(proxy, path, token.trim()).await.text();
        let codes = page.split("<code>").skip(1);
        let ours = codes.filter(|code| code.contains(env!("CARGO_BIN_EXE_politesse")));
        let commands: Vec<_> = ours.map(|code| in_html(&format!("<code>{code}"))).collect();
        assert_eq!(commands.len(), count, "{path}: {commands:?}");
        for command in commands {
            pasted(&command).await;
        }
    }
    let url = "http://o.test/private";
    let html = ask(proxy, "GET", url, &["Accept: text/html"]).await.text();
    let text = ask(proxy, "GET", url, &["Accept: text/plain"]).await.text();
    for command in [in_html(&html), between(&text, ": `", "`").to_owned()] {
        assert!(pasted(&command).await.contains(url), "{command}");
    }
    // The JSON for programs has the decision's number instead of a command.
    let refused = ask(proxy, "GET", url, &[]).await.json();
    assert!(refused["decision"].is_string());
    assert!(!refused.to_string().contains("audit show"), "{refused}");
}

// Without the variables of the environment a command would read another record.
#[tokio::test]
async fn printed_commands_carry_the_environment_variables_of_paths() {
    let origin = Script::robots(ROBOTS).start().await;
    let place = Place::with(&resolve("o.test", origin.address()));
    let mut command = politesse(place.folder());
    command
        .arg("serve")
        .env("POLITESSE_AUDIT__STORE", "sqlite:other/audit.db")
        .env("POLITESSE_ADMIN__TOKEN_FILE", "other/token");
    let proxy = Proxy::start(place, command).await;
    assert_commands_work(&proxy).await;
}

#[tokio::test]
async fn printed_commands_name_the_configuration_file() {
    let (_origin, proxy) = site(Script::robots(ROBOTS), &[]).await;
    assert_commands_work(&proxy).await;
}

#[tokio::test]
async fn printed_commands_name_the_folder_of_here() {
    let origin = Script::robots(ROBOTS).start().await;
    let place = Place::with(&Config::default());
    std::fs::remove_file(place.path("politesse.toml")).unwrap();
    let mut command = politesse(place.folder());
    command.args(["--here", "--set", "proxy.listen=[\"127.0.0.1:0\"]"]);
    command.args(["--set", "admin.listen=\"127.0.0.1:0\"", "--set"]);
    let address = origin.address();
    command.arg(format!("upstream.resolve={{ \"o.test\" = \"{address}\" }}"));
    let proxy = Proxy::start(place, command).await;
    assert_commands_work(&proxy).await;
}
