//! The dashboard: sign-in and sessions, the restrictions on pages in a browser, and
//! agreement of the pages with the record. All tests without another source are ours.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::kit::certificates::TestCa;
use crate::kit::client::{Crawler, Reply, assert_metric, get, get_admin, get_as};
use crate::kit::origin::{Origin, Script};
use crate::kit::proxy::{Config, Place, Proxy};
use crate::kit::{assert_contains, assert_contains_each, assert_members};

/// Pages that require a session.
const PAGES: [&str; 17] = [
    "/",
    "/?hours=720",
    "/decisions",
    "/decisions?host=o.test&verdict=disallow",
    "/decisions/99999",
    "/hosts",
    "/hosts?host=o.test",
    "/hosts/changes",
    "/hosts/changes/99999",
    "/crawlers?hours=1",
    "/queues",
    "/fleet",
    "/reports?host=%3Cscript%3E",
    "/test",
    "/test?agent=%3Cscript%3E&url=http://o.test/%3Cscript%3E",
    "/configuration",
    "/configuration?keys=set",
];

const ROBOTS: &str = "User-agent: *\nDisallow: /private\nDisallow: /<script>alert(1)</script>\n";

/// Markup that a hostile crawler or site could send.
const HOSTILE: &str = "<img/src=x/onerror=alert(1)>\"'&amp;";

/// A proxy with some decisions on record, and a browser that has signed in.
pub(crate) struct Browser {
    pub(crate) proxy: Proxy,
    _origin: Option<Origin>,
    pub(crate) cookie: String,
    /// Number of the decision about a hostile URL.
    hostile: u64,
}

/// Returns the admin token of a running proxy.
pub(crate) fn token(proxy: &Proxy) -> String {
    let path = proxy.place().path("data/admin-token");
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

/// Returns a request that posts a form to the admin listener, with the field lines
/// `fields`.
fn form_request(admin: SocketAddr, path: &str, fields: &[&str], form: &str) -> String {
    let (line, host) = (format!("POST {path} HTTP/1.1"), format!("Host: {admin}"));
    let length = format!("Content-Length: {}", form.len());
    let kind = "Content-Type: application/x-www-form-urlencoded";
    let lines = [&[&*line, &*host, &*length, kind][..], fields].concat();
    format!("{}\r\n\r\n{form}", lines.join("\r\n"))
}

/// Posts a form to the admin listener, with the field lines `fields`.
pub(crate) async fn post(admin: SocketAddr, path: &str, fields: &[&str], form: &str) -> Reply {
    let request = form_request(admin, path, fields, form);
    let mut client = Crawler::to(admin).await;
    client.send(request.as_bytes()).await;
    client.reply_to("POST").await
}

async fn sign_in(admin: SocketAddr, token: &str) -> Reply {
    let origin = format!("Origin: http://{admin}");
    let form = format!("token={token}&to=%2Fdecisions%3Fhost%3Da");
    let fields = [&*origin, "Sec-Fetch-Site: same-origin"];
    post(admin, "/login", &fields, &form).await
}

/// Returns the `Cookie` line that a browser sends after `reply`.
pub(crate) fn cookie(reply: &Reply) -> String {
    let field = reply.head.value("set-cookie");
    let (pair, _) = field.split_once(';').unwrap();
    format!("Cookie: {pair}")
}

impl Browser {
    pub(crate) async fn new(config: Config) -> Self {
        Self::with(config, |_| ()).await
    }

    /// Starts a proxy, makes some decisions and signs in. `prepare` adds files to
    /// the folder of the proxy before it starts.
    pub(crate) async fn with(config: Config, prepare: impl FnOnce(&Place)) -> Self {
        let origin = Script::robots(ROBOTS).start().await;
        let place = Place::with(&config.resolve("o.test", origin.address()));
        prepare(&place);
        let browser = Self::idle(place).await;
        let proxy = &browser.proxy;
        for path in ["open", "private", "private/2"] {
            get(proxy, &format!("http://o.test/{path}")).await;
        }
        let hostile = "http://o.test/%3Cscript%3Ealert(1)%3C/script%3E";
        get_as(proxy, &format!("Foo{HOSTILE}"), hostile).await;
        let rows = proxy.place().completed(4).await;
        let is_hostile = |row: &&Value| row["url"].as_str().unwrap().contains("script");
        let hostile = rows.iter().find(is_hostile).unwrap()["seq"].as_u64();
        Self {
            _origin: Some(origin),
            hostile: hostile.unwrap(),
            ..browser
        }
    }

    /// Starts an origin as `o.test` and a proxy without any requests, and signs in.
    /// `lines` are added to the configuration.
    pub(crate) async fn at_site(script: Script, lines: &[&str]) -> (Origin, Self) {
        let origin = script.start().await;
        let named = Config::default().resolve("o.test", origin.address());
        let config = lines.iter().fold(named, |config, line| config.set(line));
        (origin, Self::idle(Place::with(&config)).await)
    }

    /// Starts a proxy without any requests, and signs in.
    pub(crate) async fn idle(place: Place) -> Self {
        let proxy = place.start().await;
        let reply = sign_in(proxy.admin(), &token(&proxy)).await;
        assert_eq!(reply.status(), 303, "{}", reply.text());
        Self {
            cookie: cookie(&reply),
            hostile: 0,
            proxy,
            _origin: None,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        get_admin(self.proxy.admin(), path, &[&self.cookie]).await
    }

    /// Returns all pages that require a session.
    fn pages(&self) -> Vec<String> {
        let story = format!("/decisions/{}", self.hostile);
        let pages = PAGES.into_iter().map(str::to_owned);
        pages.chain([story]).collect()
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        let reply = self.get(path).await;
        assert_eq!(reply.status(), 200, "{path}: {}", reply.text());
        reply.json()
    }

    /// Returns the CSRF token that forms of this session carry.
    pub(crate) async fn form_token(&self) -> String {
        let page = self.get("/").await.text();
        let (_, rest) = page.split_once("name=\"form_token\" value=\"").unwrap();
        rest[..64].to_owned()
    }
}

#[tokio::test]
async fn a_browser_without_a_session_is_redirected_to_the_login_page() {
    let proxy = Config::default().start().await;
    let admin = proxy.admin();
    for page in PAGES {
        let reply = get_admin(admin, page, &[]).await;
        assert_eq!(reply.status(), 303, "{page}");
        let to = reply.head.value("location").to_owned();
        assert!(to.starts_with("/login?to=%2F"), "{to}");
        // A made-up session id is redirected too; a wrong bearer token gets 401.
        let made_up = format!("Cookie: politesse_session={}", "0".repeat(64));
        assert_eq!(get_admin(admin, page, &[&made_up]).await.status(), 303);
        let wrong = "Authorization: Bearer 0";
        assert_eq!(get_admin(admin, page, &[wrong]).await.status(), 401);
    }
    for page in [
        "/api/v1/overview",
        "/api/v1/decisions",
        "/api/v1/decisions/stream",
        "/api/v1/configuration",
    ] {
        let reply = get_admin(admin, page, &[]).await;
        assert_eq!(reply.status(), 401, "{page}");
    }
    let page = get_admin(admin, "/login", &[]).await;
    assert_eq!(page.status(), 200);
    assert!(page.text().contains("type=\"password\""), "{}", page.text());
}

// RFC 6265, section 4.1.2.
#[tokio::test]
async fn the_token_starts_a_session_and_signing_out_ends_it() {
    let browser = Browser::new(Config::default()).await;
    let admin = browser.proxy.admin();
    let wrong = sign_in(admin, &"0".repeat(64)).await;
    assert_eq!(wrong.status(), 403);
    assert!(wrong.head.values("set-cookie").is_empty());
    let right = sign_in(admin, &token(&browser.proxy)).await;
    assert_eq!(right.head.value("location"), "/decisions?host=a");
    let field = right.head.value("set-cookie");
    let parts = ["Path=/;", "HttpOnly", "SameSite=Strict", "Max-Age=43200"];
    assert_contains_each(field, &parts);
    assert!(!field.contains("Secure"), "{field}");
    assert_ne!(cookie(&right), browser.cookie);
    assert_eq!(browser.get("/").await.status(), 200);
    // No page contains the session id, and no cookie contains the token.
    let id = &browser.cookie["Cookie: politesse_session=".len()..];
    assert!(!browser.get("/").await.text().contains(id));
    assert!(!field.contains(&token(&browser.proxy)));

    let form = format!("form_token={}", browser.form_token().await);
    let origin = format!("Origin: http://{admin}");
    let out = post(admin, "/logout", &[&origin, &browser.cookie], &form).await;
    assert_eq!(out.status(), 303, "{}", out.text());
    assert!(out.head.value("set-cookie").contains("Max-Age=0"));
    assert_eq!(browser.get("/").await.status(), 303);
    assert_metric(&browser.proxy, "politesse_admin_sessions 1\n").await;
}

// Ours: pages of other sites cannot change anything (CSRF).
#[tokio::test]
async fn a_form_from_another_site_is_refused() {
    let browser = Browser::new(Config::default()).await;
    let admin = browser.proxy.admin();
    let form = format!("form_token={}", browser.form_token().await);
    let own = format!("Origin: http://{admin}");
    let cookie = browser.cookie.as_str();
    for (fields, form) in [
        (vec![], &*form),
        (vec!["Origin: http://evil.test"], &form),
        (vec!["Origin: null"], &form),
        (vec!["Sec-Fetch-Site: cross-site"], &form),
        (vec!["Sec-Fetch-Site: same-site", &own], &form),
        (vec![&*own], ""),
        (vec![&*own], "form_token=0"),
    ] {
        let fields: Vec<_> = fields.into_iter().chain([cookie]).collect();
        let reply = post(admin, "/logout", &fields, form).await;
        assert_eq!(reply.status(), 403, "{fields:?} {form}");
    }
    assert_eq!(browser.get("/").await.status(), 200);
    // A browser attaches stored credentials by itself, so an `Authorization` field does
    // not exempt a request from the check of its origin.
    let bearer = format!("Authorization: Bearer {}", token(&browser.proxy));
    let fields = [bearer.as_str(), "Origin: http://evil.test"];
    let prune = "/api/v1/audit/prune?request=\
                     %7B%22before%22:%222000-01-01T00:00:00Z%22,%22why%22:%22test%22%7D";
    assert_eq!(post(admin, prune, &fields, "").await.status(), 403);
    assert_eq!(post(admin, prune, &[&bearer], "").await.status(), 200);
    // Nor can another site sign a browser in (login CSRF).
    let form = format!("token={}", token(&browser.proxy));
    let fields = ["Origin: http://evil.test"];
    assert_eq!(post(admin, "/login", &fields, &form).await.status(), 403);
}

/// Asserts that a page has a strict content security policy, and nothing inline that the
/// policy would block.
fn assert_only_own_files(path: &str, reply: &Reply) {
    let policy = reply.head.value("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(reply.head.value(name), value, "{path}");
    }
    let page = reply.text();
    let lower = page.to_ascii_lowercase();
    for inline in [
        "<style",
        " style=",
        " onclick",
        "javascript:",
        "<script>",
        " onerror=",
    ] {
        assert!(!lower.contains(inline), "{path}: {inline}");
    }
    assert!(page.contains("<html lang=\"en\""), "{path}");
    assert!(page.contains("href=\"#content\"") && page.contains("<main id=\"content\""));
}

// Ours: text from sites and crawlers is always escaped.
#[tokio::test]
async fn pages_load_only_our_own_files_and_hostile_text_is_inert() {
    let browser = Browser::new(Config::default()).await;
    let search = "/decisions?crawler=%3Cscript%3Ealert(1)%3C/script%3E%22%27";
    let more = ["/login", search, "/login?to=%22%3E%3Cscript%3E"].map(str::to_owned);
    for path in browser.pages().into_iter().chain(more) {
        let reply = browser.get(&path).await;
        assert_only_own_files(&path, &reply);
        for markup in ["<script>", "<img", "\"'&amp;"] {
            assert!(!reply.text().contains(markup), "{path}: {markup}");
        }
    }
    let page = browser.get("/").await.text();
    for name in [".css", ".js", ".svg"] {
        let end = page.find(&format!("{name}\"")).unwrap() + name.len();
        let path = page[..end].rsplit('"').next().unwrap();
        let asset = browser.get(path).await;
        assert_eq!(asset.status(), 200, "{path}");
        assert!(asset.head.value("cache-control").contains("immutable"));
    }
    assert_eq!(browser.get("/assets/app.css").await.status(), 404);
    let page = browser.get("/decisions").await.text();
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    let story = format!("/decisions/{}", browser.hostile);
    let story = browser.get(&story).await.text();
    assert_contains(&story, "<tr id=\"L3\" class=\"decided\">");
}

// Ours: no operator should take report mode for enforcement.
#[tokio::test]
async fn every_page_shows_report_mode() {
    let config = Config::default().set("enforcement.mode = \"report\"");
    let browser = Browser::new(config).await;
    for path in browser.pages() {
        let page = browser.get(&path).await.text();
        assert!(page.contains("Report mode"), "{path}");
    }
}

#[tokio::test]
async fn decisions_can_be_filtered_and_downloaded_and_each_has_a_page() {
    let browser = Browser::new(Config::default()).await;
    let allowed = browser.json("/api/v1/decisions?verdict=allow").await;
    assert_eq!(allowed["decisions"][0]["url"], "http://o.test/open");
    let wrong = browser.get("/decisions?verdict=no").await;
    assert_eq!(wrong.status(), 400);
    assert!(wrong.text().contains("allow, disallow, later"));

    let target = "/api/v1/decisions?rule=/private&limit=1";
    let refused = browser.json(target).await;
    let seq = refused["decisions"][0]["seq"].as_u64().unwrap();
    let page = browser.get("/decisions?rule=/private").await.text();
    assert!(page.contains(&format!("/decisions/{seq}#L2")), "{page}");
    let story = browser.get(&format!("/decisions/{seq}")).await.text();
    assert_contains(&story, "<tr id=\"L2\" class=\"decided\">");
    assert_contains(&story, "refused for ExampleBot: line 2, Disallow: /private");
    let json = browser.json(&format!("/api/v1/decisions/{seq}")).await;
    assert_eq!(json["decided_again"], "same");

    let download = "/decisions/export?verdict=disallow&form=";
    let csv = browser.get(&format!("{download}csv")).await;
    assert_contains(csv.head.value("content-disposition"), "decisions.csv");
    assert_eq!(csv.text().lines().count(), 1 + 3, "{}", csv.text());
    let jsonl = browser.get(&format!("{download}jsonl")).await;
    let place = browser.proxy.place();
    let command = ["audit", "export", "--as", "jsonl", "--verdict", "disallow"];
    let outcome = place.run(&command).await;
    assert_eq!(jsonl.text(), outcome.stdout);
}

/// Fetches all pages of `/api/v1/decisions` for a filter; returns the row numbers. Makes
/// another request after each page.
async fn walk(browser: &Browser, filter: &str, limit: usize) -> Vec<u64> {
    let (mut found, mut before) = (Vec::new(), String::new());
    loop {
        let target = format!("/api/v1/decisions?limit={limit}{filter}{before}");
        let page = browser.json(&target).await;
        get(&browser.proxy, "http://o.test/open").await;
        let rows = page["decisions"].as_array().unwrap();
        assert!(rows.len() <= limit, "{page}");
        found.extend(rows.iter().map(|row| row["seq"].as_u64().unwrap()));
        match page["next"].as_u64() {
            Some(next) => before = format!("&before={next}"),
            None => return found,
        }
    }
}

#[tokio::test]
async fn paging_returns_each_decision_once_while_rows_are_written() {
    let browser = Browser::new(Config::default()).await;
    for number in 0..30 {
        get(&browser.proxy, &format!("http://o.test/private/{number}")).await;
    }
    let mut there = walk(&browser, "", 1000).await;
    assert_eq!(there.len(), 34);
    for limit in [1, 2, 7, 1000] {
        let all = browser.proxy.place().rows().await.len();
        let found = walk(&browser, "", limit).await;
        assert!(found.is_sorted_by(|one, other| other < one), "{found:?}");
        // Rows written after the first page are on none of the others.
        assert_eq!(found.len(), all, "{limit}");
        assert_eq!(found[all - there.len()..], there, "{limit}");
        there = found;
    }
    for limit in [1, 3, 32] {
        let found = walk(&browser, "&verdict=disallow&url=http://o.test/p*", limit).await;
        assert_eq!(found.len(), 32, "{limit}: {found:?}");
    }
}

// Ours: invalid bounds are an error. If they were ignored, a client with a broken
// `before` would get the first page forever.
#[tokio::test]
async fn invalid_page_bounds_are_rejected_and_valid_ones_limit_the_rows() {
    let browser = Browser::new(Config::default()).await;
    let path = "/api/v1/decisions";
    for query in ["limit=0", "limit=1001", "limit=-1", "limit=all"] {
        let reply = browser.get(&format!("{path}?{query}")).await;
        assert_eq!(reply.status(), 400, "{query}");
        let wanted = "limit: a number from 1 to 1000 is wanted\n";
        assert_eq!(reply.text(), wanted, "{query}");
    }
    for query in ["before=last", "before=-1", "before=1.5"] {
        for path in [path, "/decisions"] {
            let reply = browser.get(&format!("{path}?{query}")).await;
            assert_eq!(reply.status(), 400, "{path}?{query}");
        }
    }
    for (query, count) in [
        ("", 4),
        ("?limit=1000", 4),
        ("?limit=4", 4),
        ("?limit=1", 1),
        ("?before=0", 0),
        ("?before=1", 0),
        ("?host=never.test", 0),
        ("?url=http://o.test/never*", 0),
    ] {
        let page = browser.json(&format!("{path}{query}")).await;
        let rows = page["decisions"].as_array().unwrap();
        assert_eq!(rows.len(), count, "{query}");
        assert_eq!(page["next"].is_null(), query != "?limit=1", "{query}");
        assert_eq!(page["cut"], false, "{query}");
    }
}

#[tokio::test]
async fn the_host_page_marks_deciding_lines_with_their_counts() {
    let browser = Browser::new(Config::default()).await;
    let host = browser.json("/api/v1/hosts?host=O.TEST.").await;
    assert_members(&host, &json!({"requests": 4, "refusals": 3}));
    let rule = &host["rules"][0];
    let expected = json!({"rule": "Disallow: /private", "line": 2, "requests": 2});
    assert_members(rule, &expected);
    let sha256 = host["versions"][0]["sha256"].as_str().unwrap();
    let page = browser.get("/hosts?host=o.test").await.text();
    assert!(page.contains("<tr id=\"L2\" class=\"decided\">"), "{page}");
    assert!(page.contains("◀ decided 2 requests"), "{page}");
    assert_contains(&page, sha256);
    assert_contains(&page, "<tr id=\"L1\">");
    // Two different versions are compared in `dashboard_past`.
    let same = format!("/hosts?host=o.test&sha256={sha256}&previous={sha256}");
    let page = browser.get(&same).await.text();
    assert!(page.contains("0 lines added, 0 removed"), "{page}");
    // A version is shown only on the page of its own host, and the host must be valid.
    let other = format!("/hosts?host=p.test&sha256={sha256}");
    assert!(!browser.get(&other).await.text().contains("/private"));
    assert_eq!(browser.get("/hosts?host=a/b").await.status(), 400);
}

#[tokio::test]
async fn testing_a_url_never_requests_it() {
    let origin = Script::robots("User-agent: *\nDisallow: /\n").start().await;
    let config = Config::default().resolve("p.test", origin.address());
    let browser = Browser::new(config).await;
    let admin = browser.proxy.admin();
    let own = format!("Origin: http://{admin}");
    let form = format!("form_token={}&agent=FooBot", browser.form_token().await);
    let ask = async |more: &str| {
        let form = format!("{form}&{more}");
        post(admin, "/test", &[&own, &browser.cookie], &form)
            .await
            .text()
    };
    let cached = ask("url=http://p.test/private").await;
    assert!(cached.contains("Not known"), "{cached}");
    // A GET never fetches: otherwise a foreign link could make a signed-in browser
    // trigger requests.
    let link = "/test?agent=FooBot&url=http://p.test/&fetch=on";
    browser.get(link).await;
    assert!(origin.targets().is_empty());
    let fetched = ask("url=http://p.test/private&fetch=on").await;
    assert!(fetched.contains("answer disallow"), "{fetched}");
    assert_contains(&fetched, "<tr id=\"L2\" class=\"decided\">");
    assert!(origin.targets().is_empty(), "{:?}", origin.targets());
    let text = "robots=User-agent:+*%0ADisallow:+/a%0AAllow:+/a/b%0A&url=http://p.test/a/b";
    let pasted = ask(text).await;
    assert!(pasted.contains("answer allow"), "{pasted}");
    assert!(pasted.contains("has no effect: shorter"), "{pasted}");
    assert!(ask("url=p.test").await.contains("role=\"alert\""));
}

#[tokio::test]
async fn only_a_trusted_reverse_proxy_sets_scheme_and_host() {
    let config = Config::default()
        .set("admin.base_path = \"/polite\"")
        .set("admin.hosts = [\"dash.test\"]")
        .set("admin.trusted_proxies = [\"127.0.0.1\"]");
    let proxy = config.start().await;
    let admin = proxy.admin();
    let front = ["X-Forwarded-Host: dash.test", "X-Forwarded-Proto: https"];
    let form = format!("token={}", token(&proxy));
    let fields = [front[0], front[1], "Origin: https://dash.test"];
    let reply = post(admin, "/polite/login", &fields, &form).await;
    assert_eq!(reply.status(), 303, "{}", reply.text());
    assert_eq!(reply.head.value("location"), "/polite/");
    let field = reply.head.value("set-cookie");
    assert_contains(field, "Path=/polite/;");
    assert!(field.ends_with("; Secure"), "{field}");
    let cookie = cookie(&reply);
    // The reverse proxy may send the default port.
    let with_port = ["X-Forwarded-Host: dash.test:443", front[1], fields[2]];
    let reply = post(admin, "/polite/login", &with_port, &form).await;
    assert_eq!(reply.status(), 303, "{}", reply.text());
    // It may strip the base path.
    for path in ["/polite/", "/polite", "/", "/polite?hours=1"] {
        let page = get_admin(admin, path, &[front[0], front[1], &cookie]).await;
        assert_eq!(page.status(), 200, "{path}");
        assert!(page.text().contains("href=\"/polite/decisions\""));
    }
    for (path, status) in [
        ("/politeness", 404),
        ("/polite/decisions", 303),
        ("/polite/readyz", 200),
    ] {
        let reply = get_admin(admin, path, &[]).await;
        assert_eq!(reply.status(), status, "{path}");
    }
    let foreign = ["X-Forwarded-Host: evil.test"];
    assert_eq!(get_admin(admin, "/polite/", &foreign).await.status(), 421);
    let named = ["GET /healthz HTTP/1.1", "Host: dash.test"];
    assert_eq!(Crawler::to(admin).await.ask(&named).await.status(), 200);
    // There the `http` origin belongs to another site.
    let fields = [front[0], front[1], "Origin: http://dash.test"];
    let refused = post(admin, "/polite/login", &fields, &form).await;
    assert_eq!(refused.status(), 403);
    // From other addresses than those of the reverse proxy, the fields are ignored.
    let other = Crawler::between([127, 0, 0, 2].into(), admin).await;
    let mut other = other.unwrap();
    let origin = format!("Origin: http://{admin}");
    let fields = [foreign[0], front[1], &origin];
    let request = form_request(admin, "/polite/login", &fields, &form);
    other.send(request.as_bytes()).await;
    let ignored = other.reply_to("POST").await;
    assert_eq!(ignored.status(), 303, "{}", ignored.text());
    assert!(!ignored.head.value("set-cookie").contains("Secure"));
}

// Ours: cookies store the choices, and choosing a theme needs no script.
#[tokio::test]
async fn forms_set_the_theme_and_the_time_zone() {
    let mut browser = Browser::new(Config::default()).await;
    let page = browser.get("/decisions").await.text();
    // Only a script knows the time zone of the browser, so the form stays hidden
    // without one.
    let hidden = "action=\"/zone\" class=\"theme\" data-scripted hidden>";
    assert_contains_each(&page, &["data-zone=\"UTC\"", hidden]);
    let admin = browser.proxy.admin();
    let origin = format!("Origin: http://{admin}");
    let lasting = "politesse_zone=local; Path=/; Max-Age=31536000;";
    for (path, form, cookie) in [
        ("/theme", "theme=dark", "politesse_theme=dark;"),
        ("/zone", "zone=local", lasting),
    ] {
        let form = format!("{form}&to=%2Fdecisions");
        let chosen = post(admin, path, &[&origin], &form).await;
        assert_eq!(chosen.head.value("location"), "/decisions", "{path}");
        let field = chosen.head.value("set-cookie");
        assert!(field.starts_with(cookie), "{field}");
    }
    browser.cookie += "; politesse_theme=dark; politesse_zone=local";
    let page = browser.get("/decisions").await.text();
    assert_contains_each(&page, &["data-theme=\"dark\"", "data-zone=\"local\""]);
}

/// Creates a place whose admin listener has a certificate.
pub(crate) fn place_with_admin_tls() -> Place {
    let config = Config::default()
        .set("admin.tls_cert = \"admin.pem\"")
        .set("admin.tls_key = \"admin.key\"");
    let place = Place::with(&config);
    let [cert, key] = TestCa::get().pair(&["127.0.0.1"]);
    std::fs::write(place.path("admin.pem"), cert).unwrap();
    std::fs::write(place.path("admin.key"), key).unwrap();
    let mode = Permissions::from_mode(0o600);
    std::fs::set_permissions(place.path("admin.key"), mode).unwrap();
    place
}

// RFC 9110, section 4.2.2; ours: programs on this machine may use plain HTTP.
#[tokio::test]
async fn the_admin_listener_serves_both_tls_and_plain_http() {
    let proxy = place_with_admin_tls().start().await;
    let admin = proxy.admin();
    let host = format!("Host: {admin}");
    let mut client = Crawler::over_tls(admin).await.unwrap();
    let page = client.ask(&["GET /login HTTP/1.1", &host]).await;
    assert_eq!(page.status(), 200);
    // Plain HTTP still works from this machine; its cookie is not marked `Secure`.
    let plain = sign_in(admin, &token(&proxy)).await;
    assert!(!plain.head.value("set-cookie").contains("Secure"));
    let form = format!("token={}", token(&proxy));
    let request = form_request(admin, "/login", &[], &form);
    let mut client = Crawler::over_tls(admin).await.unwrap();
    client.send(request.as_bytes()).await;
    let signed_in = client.reply_to("POST").await;
    assert!(signed_in.head.value("set-cookie").ends_with("; Secure"));
}
