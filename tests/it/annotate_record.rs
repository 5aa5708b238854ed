//! Directives in the annotation and in the record, and the codings requested from the
//! origin so that its pages can be read.

use serde_json::{Value, json};

use crate::kit::client::{Reply, ask, assert_metric, get, get_as};
use crate::kit::h2::{H2Crawler, Trailers};
use crate::kit::origin::{Origin, Script, site};
use crate::kit::page::Page;
use crate::kit::proxy::Proxy;

const NO_DIRECTIVES: &str = "examplebot=();state=complete";

fn annotation(reply: &Reply) -> &str {
    reply.head.value("robots-directives")
}

/// Returns `directives` of the last row, once `count` rows are completed.
async fn recorded(proxy: &Proxy, count: usize) -> Value {
    let rows = proxy.place().completed(count).await;
    rows[count - 1]["directives"].clone()
}

// Ours: when a response ends, its directives are added to the record, and its state and
// reason are counted. A request that was not forwarded has no directives.
#[tokio::test]
async fn the_record_has_the_annotation_of_each_response_and_its_sources() {
    let meta = "<meta name=robots content='NoSnippet, frobnicate'>";
    let page = Page::html(meta).field("X-Robots-Tag", "noindex, frobnicate");
    let coded = Page::typed("text/html", b"x").field("Content-Encoding", "dcb");
    let script = Script::robots("User-agent: *\nDisallow: /no\n")
        .page("/page", page.field("Robots-Tag", "*;noindex"))
        .page("/dcb", coded);
    let (_origin, proxy) = site(script, &[]).await;
    let complete = "examplebot=(noindex;src=\"r x\" nosnippet;src=m);state=complete";
    let said = json!([
        { "by": "x-robots-tag", "said": "noindex, frobnicate" },
        { "by": "robots-tag", "said": "*;noindex" },
        { "by": "meta robots", "said": "NoSnippet, frobnicate" },
    ]);
    let partial = "examplebot=();state=partial;why=coding";
    for (count, path, value, said) in [
        (1, "page", complete, said),
        (2, "dcb", partial, json!([])),
        (3, "dcb", partial, json!([])),
    ] {
        let reply = get(&proxy, &format!("http://o.test/{path}")).await;
        assert_eq!(annotation(&reply), value, "{path}");
        let wanted = json!({ "value": value, "said": said });
        assert_eq!(recorded(&proxy, count).await, wanted, "{path}");
    }
    let refused = get(&proxy, "http://o.test/no").await;
    assert_eq!(refused.status(), 403);
    assert!(refused.head.values("robots-directives").is_empty());
    assert_eq!(recorded(&proxy, 4).await, Value::Null);
    for line in [
        "politesse_annotations_total{state=\"partial\",why=\"coding\"} 2",
        "politesse_annotations_total{state=\"complete\",why=\"\"} 1",
    ] {
        assert_metric(&proxy, line).await;
    }
}

const ROBOTS: &str = "License: https://l.test/all.xml\n\
    User-agent: *\n\
    Content-Usage: train-ai=y\n\
    Content-Usage: /a train-ai=n\n\
    Content-Signal: ai-input=no\n\
    Disallow: /closed\n";

fn with_preferences() -> Page {
    let license = "<https://l.test/page.xml>; rel=\"license\"; type=\"application/rsl+xml\"";
    let page = Page::text("x").field("Content-Usage", "search=n");
    page.field("tdm-reservation", "1").field("Link", license)
}

const PREFERRED: &str = "examplebot=(ai-input;value=n;src=u \
    license;value=\"https://l.test/all.xml\";src=u \
    license;value=\"https://l.test/page.xml\";src=h \
    search;value=n;src=h tdm-reservation;value=1;src=h \
    train-ai;value=n;src=u);state=complete";

// Ours: by default preferences are in the record, but not in the field.
#[tokio::test]
async fn preferences_are_recorded_but_not_annotated() {
    let script = Script::robots(ROBOTS).page("/a", with_preferences());
    let (_origin, proxy) = site(script, &[]).await;
    let reply = get(&proxy, "http://o.test/a").await;
    assert_eq!(annotation(&reply), NO_DIRECTIVES);
    let directives = recorded(&proxy, 1).await;
    assert_eq!(directives["value"], PREFERRED);
    assert_eq!(directives["said"].as_array().unwrap().len(), 3);
    // Preferences depend on the path (draft-ietf-aipref-attach-05, section 3).
    let reply = get(&proxy, "http://o.test/b").await;
    assert_eq!(annotation(&reply), NO_DIRECTIVES);
    let value = recorded(&proxy, 2).await["value"].to_string();
    assert!(value.contains("train-ai;value=y;src=u"), "{value}");
}

// Ours: `directives.preferences = true`. TDMRep's meta elements are read too. A disallowed
// path has no preference, even if an override opens it (draft-ietf-aipref-attach-05,
// section 3.1).
#[tokio::test]
async fn preferences_are_annotated_if_configured() {
    let meta = "<meta name=tdm-reservation content=1><body>";
    let opened = "robots.override = [{ origin = \"http://o.test\", path = \"/closed\", \
                  action = \"allow\", reason = \"contract\", until = 2100-01-01T00:00:00Z }]";
    let script = Script::robots(ROBOTS)
        .page("/a", with_preferences())
        .page("/closed", Page::html(meta));
    let (_origin, proxy) = site(script, &["directives.preferences = true", opened]).await;
    assert_eq!(annotation(&get(&proxy, "http://o.test/a").await), PREFERRED);
    assert_eq!(recorded(&proxy, 1).await["value"], PREFERRED);
    let reply = get(&proxy, "http://o.test/closed").await;
    let of_meta = "examplebot=(tdm-reservation;value=1;src=m);state=complete";
    assert_eq!((reply.status(), annotation(&reply)), (200, of_meta));
}

const FORGED: &str = "examplebot=();state=complete;forged";

// Ours: the proxy removes a forged annotation from fields and trailers, and records it.
#[tokio::test]
async fn a_forged_annotation_is_removed_and_recorded() {
    let in_head = Page::html("<head></head><body>").field("Robots-Directives", FORGED);
    let short = Page::html("").in_chunks(&["<head></head><body>"]);
    let long = Page::html("").in_chunks(&["<head></head><body>", &"x".repeat(1_000_000)]);
    let long = long.trailer("Robots-Directives", FORGED);
    let script = Script::robots("")
        .page("/head", in_head)
        .page("/held", short.trailer("Robots-Directives", FORGED))
        .page("/late", long.trailer("X-Sum", "1"));
    let (_origin, proxy) = site(script.tls(), &[]).await;
    let mut crawler = H2Crawler::inside(&proxy, "o.test:443").await;
    let said = json!([{ "by": "robots-directives", "said": FORGED }]);
    for (place, path) in ["/head", "/held", "/late"].into_iter().enumerate() {
        let reply = crawler.get(&format!("https://o.test{path}")).await;
        let values = reply.headers().get_all("robots-directives").iter();
        assert_eq!(values.collect::<Vec<_>>(), [NO_DIRECTIVES], "{path}");
        let trailers = reply.extensions().get::<Trailers>();
        let forged = trailers.map(|Trailers(fields)| fields.contains_key("robots-directives"));
        assert!(!forged.unwrap_or_default(), "{path}");
        let wanted = json!({ "value": NO_DIRECTIVES, "said": said });
        assert_eq!(recorded(&proxy, place + 1).await, wanted, "{path}");
    }
}

// Ours: one key for each configured token. A key cannot begin with `_`; then it is `*` with
// the number of the decision.
#[tokio::test]
async fn the_keys_are_the_tokens_of_a_crawler_or_its_decision_number() {
    let page = Page::text("x")
        .field("X-Robots-Tag", "_bot: noindex")
        .field("X-Robots-Tag", "foobot: noindex")
        .field("X-Robots-Tag", "foobot-news: noai");
    let script = Script::robots("").page("/a", page);
    let lines = ["crawler = [{ token = \"_bot\", user_agent = \"under\" }, \
                  { token = [\"FooBot\", \"FooBot-News\"], user_agent = \"legacy\" }]"];
    let (_origin, proxy) = site(script, &lines).await;
    // The start and the configuration take the numbers before; the first ending takes 4.
    for (count, seq) in [(1, 3), (2, 5)] {
        let reply = get_as(&proxy, "under/1.0", "http://o.test/a").await;
        let wanted = format!("*=(noindex;src=x);state=complete;audit=\"{seq}\"");
        assert_eq!(annotation(&reply), wanted);
        let row = proxy.place().completed(count).await.pop().unwrap();
        assert_eq!(row["seq"], seq);
    }
    let reply = get_as(&proxy, "Legacy/1.0", "http://o.test/a").await;
    let list = "(noai;src=x noindex;src=x);state=complete";
    let wanted = format!("foobot={list}, foobot-news={list}");
    assert_eq!(annotation(&reply), wanted);
}

// Ours: if the crawler is unidentified, or with `directives.emit_general`.
#[tokio::test]
async fn directives_for_everyone_have_the_key_of_all_crawlers() {
    let page = Page::text("x")
        .field("X-Robots-Tag", "examplebot: noindex")
        .field("X-Robots-Tag", "noai");
    let script = Script::robots("").page("/a", page);
    let (_origin, proxy) = site(script.clone(), &[]).await;
    let nameless = ask(&proxy, "GET", "http://o.test/a", &[]).await;
    assert_eq!(annotation(&nameless), "*=(noai;src=x);state=complete");
    let (_origin, proxy) = site(script, &["directives.emit_general = true"]).await;
    let both =
        "examplebot=(noai;src=x noindex;src=x);state=complete, *=(noai;src=x);state=complete";
    assert_eq!(annotation(&get(&proxy, "http://o.test/a").await), both);
    let nameless = ask(&proxy, "GET", "http://o.test/a", &[]).await;
    assert_eq!(annotation(&nameless), "*=(noai;src=x);state=complete");
}

// Ours: `directives.both_fields`, which lets X-Robots-Tag count if it is the only field,
// `meta_scope`, `field_limit` and `header`.
#[tokio::test]
async fn fields_limits_and_name_of_the_annotation_are_configurable() {
    let after_head = "<title>x</title><p><meta name=robots content=noindex>";
    let old = || Page::text("x").field("X-Robots-Tag", "noindex");
    let long = format!("noai{}, noindex", " ".repeat(9 * 1024));
    let script = Script::robots("")
        .page("/both", old().field("Robots-Tag", "*;noai"))
        .page("/old", old())
        .page("/after-head", Page::html(after_head))
        .page("/long", Page::text("x").field("X-Robots-Tag", &long));
    let lines = [
        "directives.both_fields = \"robots-tag\"",
        "directives.meta_scope = \"prefix\"",
        "directives.field_limit = \"8KiB\"",
        "directives.header = \"X-Rules\"",
    ];
    let (_origin, proxy) = site(script, &lines).await;
    for (path, value) in [
        ("both", "examplebot=(noai;src=r);state=complete"),
        ("old", "examplebot=(noindex;src=x);state=complete"),
        (
            "after-head",
            "examplebot=();state=complete, outside=(noindex;src=m)",
        ),
    ] {
        let reply = get(&proxy, &format!("http://o.test/{path}")).await;
        assert_eq!(reply.head.value("x-rules"), value, "{path}");
    }
    let reply = get(&proxy, "http://o.test/long").await;
    let value = reply.head.value("x-rules");
    let end = ";state=partial;why=field-limit";
    assert!(value.ends_with(end), "{value}");
}

/// Sends a request with these `Accept-Encoding` values, and returns the values that the
/// origin gets.
async fn forwarded_accept_encoding(proxy: &Proxy, origin: &Origin, sent: &[&str]) -> Vec<String> {
    let fields = sent.iter().map(|value| format!("Accept-Encoding: {value}"));
    let fields: Vec<_> = fields.collect();
    let fields: Vec<_> = fields.iter().map(String::as_str).collect();
    ask(proxy, "GET", "http://o.test/a", &fields).await;
    let seen = origin.log().pop().unwrap();
    let values = seen.values("accept-encoding").into_iter();
    values.map(str::to_owned).collect()
}

// RFC 9110, section 12.5.3.
#[tokio::test]
async fn origins_are_asked_only_for_codings_that_the_proxy_reads() {
    let rows: [(&[&str], &[&str]); 6] = [
        (&["gzip, br, dcb, *"], &["gzip, br"]),
        (&["gzip, deflate, br, zstd"], &["gzip, deflate, br, zstd"]),
        (&["br;q=0.5", "dcz, gzip"], &["br;q=0.5", "gzip"]),
        (&["*"], &["identity"]),
        (&["identity"], &["identity"]),
        (&[], &[]),
    ];
    let (origin, proxy) = site(Script::robots(""), &[]).await;
    for (sent, wanted) in rows {
        let forwarded = forwarded_accept_encoding(&proxy, &origin, sent).await;
        assert_eq!(forwarded, wanted, "{sent:?}");
    }
    let script = Script::robots("");
    let (origin, proxy) = site(script, &["directives.accept_encoding = \"as-is\""]).await;
    for (sent, _) in rows {
        let forwarded = forwarded_accept_encoding(&proxy, &origin, sent).await;
        assert_eq!(forwarded, sent, "{sent:?}");
    }
}
