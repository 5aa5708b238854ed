//! The OpenAPI document of the API, `crates/politesse-admin/src/openapi.json`: it lists
//! every route, and every answer matches it. Every test here is ours.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::kit::checkout::{root, rust_sources, text};
use crate::kit::client::{Crawler, Reply, get, get_as};
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::asking_for_less;
use crate::kit::page::Page;
use crate::kit::program::finish;
use crate::kit::proxy::{Proxy, resolve};
use crate::kit::redis::Redis;
use crate::kit::{soon, until};

/// Instruction printed if the document and the API differ.
const MEND: &str = "\ncrates/politesse-admin/src/openapi.json describes every route under /api/v1. A new route is \
                    added to its `paths`, and requested in tests/it/openapi.rs; a new member of an \
                    answer is added to its schema. Then run this test again.\n";

const ROBOTS: &str = "User-agent: *\nDisallow: /private\nDisallow: /open/not\n";

/// An operation: method and path, as written in the document.
type Operation = (String, String);

fn documented() -> BTreeSet<Operation> {
    let document = text("crates/politesse-admin/src/openapi.json");
    let document: Value = serde_json::from_str(&document).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let operations = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.map(|method| (method.to_uppercase(), path.clone()))
    });
    operations.collect()
}

/// Adds the API routes in a source text to `found`.
fn add_routes(text: &str, found: &mut BTreeSet<Operation>) {
    for route in text.split(".route(").skip(1) {
        // The arguments of a route end at the next call of the chain.
        let call = route.split(".with_state(").next().unwrap();
        let parts: Vec<_> = call.trim_start().splitn(3, '"').collect();
        let &[_, path, handlers] = &parts[..] else {
            continue;
        };
        if !path.starts_with("/api/") {
            continue;
        }
        for method in ["get", "post", "put", "patch", "delete"] {
            let handles = |before: &str| handlers.contains(&format!("{before}{method}("));
            if handles(" ") || handles(".") {
                found.insert((method.to_uppercase(), path.to_owned()));
            }
        }
    }
}

#[test]
fn the_openapi_document_lists_exactly_the_routes() {
    let mut routes = BTreeSet::new();
    for (_, text) in rust_sources(&root().join("crates/politesse-admin")) {
        add_routes(&text, &mut routes);
    }
    assert!(10 < routes.len(), "the routes were not found: {routes:?}");
    let documented = documented();
    let missing: Vec<_> = routes.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&routes).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "not in the document: {missing:?}; no longer a route: {gone:?}{MEND}"
    );
}

/// A proxy with many kinds of decisions, and the answers collected from its API.
struct Api {
    proxy: Proxy,
    _origins: [Origin; 3],
    _store: Redis,
    token: String,
    /// Collected answers, one JSON line each, as `tests/clients/openapi.py` reads them.
    lines: Vec<String>,
}

impl Api {
    async fn new() -> Self {
        let page = Page::html("<meta name=robots content=noarchive>").field("X-Robots-Tag", "noai");
        let origin = Script::robots(ROBOTS).page("/lamp", page).start().await;
        let store = Redis::start(&[]).await;
        let busy = asking_for_less(503, Some("600"));
        let busy = Script::robots("").page("/", busy).start().await;
        let changing = "User-agent: *\nDisallow: /lamp\n";
        let changing = Page::text(changing).field("Cache-Control", "max-age=0");
        let before = Page::text("").field("Cache-Control", "max-age=0");
        let changing = Script::robots_page(changing).at_first("/robots.txt", 1, before);
        let changing = changing.start().await;
        let overrides = "robots.override = [\
            { origin = \"http://o.test\", path = \"/open\", action = \"allow\", reason = \"ours\", \
              until = 2099-01-01T00:00:00Z }, \
            { origin = \"http://o.test\", path = \"/closed\", action = \"deny\", reason = \"asked\" }]";
        let config = resolve("o.test", origin.address())
            .resolve("busy.test", busy.address())
            .resolve("changing.test", changing.address())
            .set("robots.ttl_min = \"1ms\"")
            .set("pace.backoff = { first = \"60s\", longest = \"24h\", forgive = \"30m\" }")
            .set("audit.seal_interval = \"1s\"")
            .set(&format!("fleet.store = [{:?}]", store.url()))
            .set("fleet.node = \"node\"")
            .set(overrides);
        let proxy = config.start().await;
        // The node must have joined its fleet before it sends requests.
        until("a node in the store", async || {
            let page = proxy.run_admin(&["fleet", "status"]).await;
            page.stdout.contains("live").then_some(())
        })
        .await;
        let token = proxy.place().run(&["admin", "token"]).await.stdout;
        for url in [
            "http://o.test/lamp",
            "http://o.test/private",
            "http://o.test/open/not",
            "http://o.test/closed",
            "http://o.test/robots.txt",
            "http://nowhere.test/",
            "http://busy.test/",
            "http://127.0.0.1/",
        ] {
            get(&proxy, url).await;
        }
        get_as(&proxy, "?", "http://o.test/private?a=%3Cb%3E").await;
        proxy.place().completed(9).await;
        // The second fetch may be a background refresh that no decision has used yet.
        until("a changed robots.txt", async || {
            get(&proxy, "http://changing.test/lamp").await;
            (2 < changing.robots_fetches()).then_some(())
        })
        .await;
        Self {
            token: format!("Authorization: Bearer {}", token.trim()),
            proxy,
            _origins: [origin, busy, changing],
            _store: store,
            lines: Vec::new(),
        }
    }

    fn add(&mut self, operation: &Operation, reply: &Reply) {
        let (method, path) = operation;
        let answer = json!({
            "method": method,
            "path": path,
            "status": reply.status(),
            "type": reply.head.value("content-type"),
            "body": reply.text(),
        });
        self.lines.push(answer.to_string());
    }

    /// Sends a request for `target`, an instance of `path` in the document, and collects
    /// the answer.
    async fn ask(&mut self, method: &str, path: &str, target: &str) -> Reply {
        self.ask_with(method, path, target, "").await
    }

    async fn ask_with(&mut self, method: &str, path: &str, target: &str, body: &str) -> Reply {
        let admin = self.proxy.admin();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {admin}\r\n{}\r\nContent-Length: {}\r\n\
             Content-Type: application/json\r\n\r\n{body}",
            self.token,
            body.len()
        );
        let mut client = Crawler::to(admin).await;
        client.send(head.as_bytes()).await;
        let reply = client.reply_to(method).await;
        self.add(&(method.to_owned(), path.to_owned()), &reply);
        reply
    }

    /// Sends a GET for a `target` whose path has no variables, and collects the answer.
    async fn get(&mut self, target: &str) -> Reply {
        let path = target.split('?').next().unwrap().to_owned();
        self.ask("GET", &path, target).await
    }

    /// Sends each operation without the token, and with a foreign `Host`.
    async fn ask_all_without_token(&mut self) {
        let admin = self.proxy.admin();
        for operation in documented() {
            let (method, path) = &operation;
            let line = format!("{method} {} HTTP/1.1", path.replace(['{', '}'], ""));
            for (host, status) in [(&*admin.to_string(), 401), ("a.test", 421)] {
                let lines = [&*line, &format!("Host: {host}")];
                let reply = Crawler::to(admin).await.ask(&lines).await;
                assert_eq!(reply.status(), status, "{operation:?}{MEND}");
                self.add(&operation, &reply);
            }
        }
    }

    async fn ask_about_record(&mut self) {
        self.get("/api/v1/openapi.json").await;
        self.get("/api/v1/overview").await;
        self.get("/api/v1/overview?hours=1").await;
        self.get("/api/v1/overview?hours=720").await;
        self.get("/api/v1/overview/stream?of=archive").await;
        self.get("/api/v1/crawlers").await;
        self.get("/api/v1/crawlers?crawler=FooBot").await;
        let all = self.get("/api/v1/decisions?limit=1000").await.json();
        let path = "/api/v1/decisions/{number}";
        for row in all["decisions"].as_array().unwrap() {
            let target = format!("/api/v1/decisions/{}", row["seq"]);
            self.ask("GET", path, &target).await;
        }
        self.ask("GET", path, "/api/v1/decisions/99999").await;
        self.get("/api/v1/decisions?limit=1&host=o.test").await;
        self.get("/api/v1/decisions?host=a.test").await;
        self.get("/api/v1/decisions?verdict=no").await;
        self.get("/api/v1/decisions/stream?verdict=no").await;
        for unlisted in [
            "overview?hours=-58800",
            "overview?of=AAA",
            "crawlers?hours=2",
            "hosts?sort=age",
            "decisions?verdict=",
            "decisions?reason=&host=o.test",
            "decisions/stream?effect=",
        ] {
            let reply = self.get(&format!("/api/v1/{unlisted}")).await;
            assert_eq!(reply.status(), 400, "{unlisted}: {}", reply.text());
            assert!(reply.text().contains("is wanted"), "{}", reply.text());
        }
        for host in ["o.test", "busy.test", "nowhere.test", "never.test"] {
            self.get(&format!("/api/v1/hosts?host={host}")).await;
        }
        self.get("/api/v1/hosts").await;
        self.get("/api/v1/news").await;
        self.get("/api/v1/news?of=archive").await;
        self.get("/api/v1/hosts/changes?before=1").await;
        let all = self.get("/api/v1/hosts/changes").await.json();
        let path = "/api/v1/hosts/changes/{number}";
        for change in all["changes"].as_array().unwrap() {
            let target = format!("/api/v1/hosts/changes/{}", change["number"]);
            self.ask("GET", path, &target).await;
        }
        self.ask("GET", path, "/api/v1/hosts/changes/99999").await;
        self.get("/api/v1/hosts?sort=robots&search=test&page=2")
            .await;
    }

    /// Requests reports and bundles before and after the first head is sealed.
    async fn make_reports(&mut self) {
        self.get("/api/v1/report?from=1h&host=o.test").await;
        self.get("/api/v1/report?crawler=FooBot").await;
        self.get("/api/v1/bundle?host=never.test").await;
        self.get("/api/v1/bundle?from=never").await;
        until("bundle", async || {
            let status = self.get("/api/v1/bundle").await.status();
            (status == 200).then_some(())
        })
        .await;
        self.get("/api/v1/report").await;
    }

    async fn ask_about_state(&mut self) {
        self.get("/api/v1/configuration").await;
        self.get("/api/v1/pace").await;
        self.get("/api/v1/pace?host=busy.test&limit=1").await;
        self.get("/api/v1/pace?limit=x").await;
        self.get("/api/v1/clients").await;
        self.get("/api/v1/fleet").await;
        self.get("/api/v1/clients?host=a").await;
        let urls = [
            "http://o.test/lamp",
            "http://o.test/private",
            "http://busy.test/",
            "http://unasked.test/",
            "no URL",
        ];
        for fetch in [false, true] {
            let question = json!({ "agent": "FooBot/1.0", "urls": urls, "fetch": fetch });
            self.check(&question.to_string()).await;
        }
        self.check("{}").await;
        let many = json!({ "agent": "FooBot", "urls": vec!["http://o.test/"; 1001] });
        self.check(&many.to_string()).await;
    }

    async fn check(&mut self, body: &str) {
        let path = "/api/v1/check";
        self.ask_with("POST", path, path, body).await;
    }

    /// Sends every operation that changes state, with valid and invalid arguments.
    async fn send_orders(&mut self) {
        let path = "/api/v1/pace/{host}";
        let release = "/api/v1/pace/busy.test?reason=test";
        for target in [release, release, "/api/v1/pace/busy.test"] {
            self.ask("DELETE", path, target).await;
        }
        self.get("/api/v1/hosts?host=busy.test").await;
        let path = "/api/v1/robots/{host}/refetch";
        for asked in [
            "o.test/refetch?reason=test",
            "o.test/refetch",
            "never.test/refetch?reason=a",
        ] {
            let target = format!("/api/v1/robots/{asked}");
            self.ask("POST", path, &target).await;
        }
        let redaction = "%7B%22url%22:%22http://o.test/lamp%22,%22numbers%22:%5B%5D,%22why%22:\
                         %22test%22,%22after%22:0,%22is_trial%22:false%7D";
        let link = "/api/v1/sign-in-link";
        self.ask("POST", link, link).await;
        let prune = "%7B%22before%22:%222000-01-01T00:00:00Z%22,%22why%22:%22test%22%7D";
        for (path, query) in [
            ("/api/v1/audit/prune", &*format!("request={prune}")),
            ("/api/v1/audit/prune", "request=%7B%7D"),
            ("/api/v1/audit/redact", &format!("request={redaction}")),
            ("/api/v1/audit/redact", "request=%7B%7D"),
        ] {
            self.ask("POST", path, &format!("{path}?{query}")).await;
        }
        // Once more, now that the record has redacted rows.
        self.ask_about_record().await;
    }

    /// Reads the stream at `path` until an event of `kind` arrives, and collects it.
    async fn watch(&mut self, path: &str, kind: &str) {
        let admin = self.proxy.admin();
        let mut client = Crawler::to(admin).await;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {admin}\r\n{}\r\nLast-Event-ID: 0\r\n\r\n",
            self.token
        );
        client.send(request.as_bytes()).await;
        let head = soon("head of the stream", client.head()).await.unwrap();
        let mut text = String::new();
        let event = loop {
            let (_, rest) = text
                .split_once(&format!("event: {kind}\n"))
                .unwrap_or_default();
            if let Some((event, _)) = rest.split_once("\n\n") {
                break event;
            }
            let more = soon("event", client.peek(text.len() + 1)).await;
            text = String::from_utf8_lossy(more).into_owned();
        };
        let (_, data) = event.split_once("data: ").unwrap();
        let answer = json!({
            "method": "GET",
            "path": path,
            "status": head.status,
            "type": head.value("content-type"),
            "event": kind,
            "body": data.split('\n').next(),
        });
        self.lines.push(answer.to_string());
    }
}

#[tokio::test]
async fn every_answer_matches_the_openapi_document() {
    let mut api = Api::new().await;
    api.ask_all_without_token().await;
    api.ask_about_record().await;
    api.ask_about_state().await;
    api.make_reports().await;
    api.watch("/api/v1/decisions/stream", "decision").await;
    api.watch("/api/v1/overview/stream", "counts").await;
    api.send_orders().await;
    let mut command = Command::new(root().join("target/venv/bin/python"));
    command
        .arg(root().join("tests/clients/openapi.py"))
        .arg(root().join("crates/politesse-admin/src/openapi.json"));
    let outcome = finish(command, api.lines.join("\n").as_bytes()).await;
    let told = outcome.stdout + &outcome.stderr;
    assert_eq!(outcome.code, Some(0), "{told}{MEND}");
}
