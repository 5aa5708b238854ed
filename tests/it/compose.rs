//! `contrib/compose` and `contrib/systemd`: their files agree with each other, and three
//! nodes run with them. No container or unit is started, because the test machine has
//! neither Docker's engine nor systemd.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::process::Command;

use crate::kit::addresses::free_addresses;
use crate::kit::checkout::{done, root, text, yaml};
use crate::kit::program::{finish, politesse};
use crate::kit::proxy::{Place, Proxy};
use crate::kit::redis::Redis;
use crate::kit::{assert_contains, until};

const NODES: [&str; 3] = ["node1", "node2", "node3"];

/// Returns a copy of `contrib/compose` in which `setup.sh` has run.
async fn set_up() -> TempDir {
    let folder = TempDir::with_prefix("politesse-compose-").unwrap();
    for name in ["compose.yaml", "politesse.toml", "haproxy.cfg", "setup.sh"] {
        let original = root().join("contrib/compose").join(name);
        std::fs::copy(original, folder.path().join(name)).unwrap();
    }
    run_setup(folder.path()).await;
    folder
}

async fn run_setup(folder: &Path) {
    let mut setup = Command::new("sh");
    setup
        .arg("setup.sh")
        .current_dir(folder)
        .env("POLITESSE", env!("CARGO_BIN_EXE_politesse"))
        .kill_on_drop(true);
    assert!(done(setup).await.contains("root.pem"));
}

/// Returns the value of a key in `politesse.toml`, or its default.
async fn value(key: &str) -> String {
    let mut show = politesse(root());
    let file = root().join("contrib/compose/politesse.toml");
    show.arg("--config").arg(file).args(["config", "show"]);
    let shown = done(show).await;
    let (section, name) = key.split_once('.').unwrap();
    let table = shown.split(&format!("[{section}]\n")).nth(1).unwrap();
    let line = table
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} = ")));
    line.unwrap().split("  # ").next().unwrap().to_owned()
}

fn seconds(text: &str) -> u64 {
    let number = text.trim_matches('"').strip_suffix('s').unwrap();
    number.parse().unwrap()
}

fn port(text: &str) -> &str {
    let text = text.trim_matches(['[', ']', '"']);
    text.rsplit(':').next().unwrap()
}

// Ours: docs/running-a-fleet.md.
#[tokio::test]
async fn the_compose_file_agrees_with_the_files_beside_it() {
    let file = yaml("contrib/compose/compose.yaml").await.remove(0);
    let folder = set_up().await;
    let services = file["services"].as_object().unwrap();
    let (listen, admin) = (value("proxy.listen").await, value("admin.listen").await);
    let stop =
        seconds(&value("proxy.drain_time").await) + seconds(&value("proxy.shutdown_timeout").await);
    let mut published = BTreeSet::new();
    for node in NODES {
        let service = &services[node];
        assert_eq!(service["environment"]["POLITESSE_FLEET__NODE"], node);
        assert_eq!(service["read_only"], true);
        assert_eq!(service["cap_drop"][0], "ALL");
        let grace = seconds(service["stop_grace_period"].as_str().unwrap());
        assert!(stop < grace, "{grace} s for {stop} s");
        // The image's own health check is kept: it finds the configuration by itself.
        assert_eq!(service["healthcheck"].get("test"), None);
        let configuration = "./politesse.toml:/etc/politesse/politesse.toml:ro";
        assert_eq!(service["volumes"][0], configuration);
        // Published on loopback only, because nothing but the token protects this
        // listener.
        let admin_port = service["ports"][0].as_str().unwrap();
        assert!(admin_port.starts_with("127.0.0.1:"), "{admin_port}");
        assert_eq!(port(admin_port), port(&admin));
        assert!(published.insert(admin_port.to_owned()));
        for volume in service["volumes"].as_array().unwrap() {
            let volume = volume.as_str().unwrap();
            let source = folder.path().join(volume.split(':').next().unwrap());
            assert!(source.exists(), "{volume}");
            let is_nodes = volume.contains(node) || !volume.contains("node");
            assert!(is_nodes, "{node}: {volume}");
        }
    }
    // Probes and scrapes use the containers' names as hosts.
    let hosts = value("admin.hosts").await;
    assert_eq!(hosts, format!("{NODES:?}"));
    let book = text("docs/running-a-fleet.md");
    assert_contains(&book, &format!("`admin.hosts = {hosts}`"));
    let acl = services["valkey"]["volumes"][0].as_str().unwrap();
    assert!(folder.path().join(acl.split(':').next().unwrap()).exists());
    assert!(value("fleet.store").await.contains("redis://valkey:6379"));
    let database = &services["postgres"];
    let named = &database["environment"]["POSTGRES_DB"];
    let archive = value("audit.archive").await;
    let named = format!("postgres/{}?sslmode=disable", named.as_str().unwrap());
    assert_eq!(archive, format!("\"postgres://{named}\""));
    let password = database["volumes"][0].as_str().unwrap();
    let password = folder.path().join(password.split(':').next().unwrap());
    let user = database["environment"]["POSTGRES_USER"].as_str().unwrap();
    let shown = std::fs::read_to_string(folder.path().join("secrets/fleet/archive-auth"));
    let expected = format!("{user}:{}\n", std::fs::read_to_string(password).unwrap());
    assert_eq!(shown.unwrap(), expected);

    let balancer = text("contrib/compose/haproxy.cfg");
    for node in NODES {
        let line = format!("server {node} {node}:{}\n", port(&listen));
        assert!(balancer.contains(&line), "{line}");
    }
    assert!(balancer.contains(&format!("check port {} ", port(&admin))));
    let address = services["haproxy"]["networks"]["fleet"]["ipv4_address"]
        .as_str()
        .unwrap();
    let trusted = value("proxy.proxy_protocol_from").await;
    assert_eq!(trusted, format!("[\"{address}\"]"));
    let subnet = &file["networks"]["fleet"]["ipam"]["config"][0]["subnet"];
    let subnet: ipnet::IpNet = subnet.as_str().unwrap().parse().unwrap();
    assert!(subnet.contains(&address.parse::<IpAddr>().unwrap()));
}

// Ours: so `tests/it/balancer.rs` also covers the balancer of the compose file.
#[tokio::test]
async fn both_haproxy_files_differ_only_in_addresses() {
    let rest = |path: &str| {
        let text = text(path);
        let start = text.find("global\n").unwrap();
        let lines = text[start..].lines().map(str::trim_end);
        let is_own = |line: &&str| {
            let own = [
                "server node",
                "bind ",
                "stats socket",
                "resolvers docker",
                "nameserver",
                "hold valid",
                "# ",
            ];
            !line.is_empty() && !own.iter().any(|start| line.trim_start().starts_with(start))
        };
        let lines = lines.filter(is_own);
        let plain = |line: &str| line.replace(" resolvers docker init-addr last,libc,none", "");
        lines.map(plain).collect::<Vec<_>>()
    };
    let ours = rest("contrib/compose/haproxy.cfg");
    assert_eq!(ours, rest("contrib/haproxy/politesse.cfg"));
    assert!(20 < ours.len());
    let mut haproxy = Command::new("/usr/sbin/haproxy");
    haproxy
        .args(["-c", "-f"])
        .arg(root().join("contrib/compose/haproxy.cfg"));
    done(haproxy).await;
}

/// Starts a node of the compose file on this machine, with free ports, and links in place
/// of the container's folders.
async fn node(folder: &Path, name: &str, store: &str) -> Proxy {
    let place = Place::with(&crate::kit::proxy::Config::default());
    let copy = |from: &str, to: &str| {
        std::os::unix::fs::symlink(folder.join(from), place.path(to)).unwrap();
    };
    copy(&format!("secrets/{name}"), "ca");
    copy("secrets/fleet", "fleet");
    let configuration = std::fs::read_to_string(folder.join("politesse.toml")).unwrap();
    std::fs::write(place.path("politesse.toml"), configuration).unwrap();
    let mut command = politesse(place.folder());
    command.env("POLITESSE_FLEET__NODE", name);
    let data = |file: &str| place.path(file).to_str().unwrap().to_owned();
    for (key, value) in [
        ("proxy.listen", "[\"127.0.0.1:0\"]".to_owned()),
        ("admin.listen", "\"127.0.0.1:0\"".to_owned()),
        ("fleet.store", format!("[{store:?}]")),
        // A node also runs without an archive; tests/it/archive.rs tests one.
        ("audit.archive", "none".to_owned()),
        ("audit.store", format!("sqlite:{}", data("audit.db"))),
        ("admin.token_file", data("admin-token")),
        // The kit reads the lines that are printed for people.
        ("log.format", "pretty".to_owned()),
    ] {
        command.arg("--set").arg(format!("{key}={value}"));
    }
    Proxy::start(place, command).await
}

// Ours: a CA certificate for each node, and the same configuration at all nodes.
#[tokio::test]
async fn three_nodes_with_these_files_form_one_fleet() {
    let folder = set_up().await;
    let file = |name: &str| folder.path().join(name);
    let names = ["secrets/fleet/fleet.key", "secrets/node1/ca.key"];
    let secrets = || names.map(|name| std::fs::read(file(name)).unwrap());
    let before = secrets();
    run_setup(folder.path()).await;
    assert_eq!(secrets(), before);
    for name in [
        "fleet/fleet.key",
        "fleet/store-auth",
        "store/users.acl",
        "node1/ca.key",
    ] {
        let metadata = file(&format!("secrets/{name}")).metadata().unwrap();
        assert_eq!(metadata.permissions().mode() & 0o077, 0, "{name}");
    }
    // The store's user has exactly the rights that docs/fleet.md gives.
    let book = text("docs/fleet.md");
    let rights = book
        .lines()
        .find_map(|line| line.strip_prefix("user politesse on >PASSWORD "));
    let acl = std::fs::read_to_string(file("secrets/store/users.acl")).unwrap();
    assert!(acl.contains(rights.unwrap()), "{acl}");
    let path = file("secrets/store/users.acl");
    let [address] = free_addresses();
    let store = Redis::at(address, &["--aclfile", path.to_str().unwrap()]).await;
    let mut nodes = Vec::new();
    for name in NODES {
        nodes.push(node(folder.path(), name, &store.url()).await);
    }
    let admin = nodes[0].admin().to_string();
    until("three nodes with one configuration", async || {
        let mut status = politesse(nodes[0].place().folder());
        let token = nodes[0].place().path("admin-token");
        status
            .args(["--set", &format!("admin.listen=\"{admin}\""), "--set"])
            .arg(format!("admin.token_file={}", token.display()))
            .args(["fleet", "status"]);
        let shown = finish(status, b"").await.stdout;
        let is_whole = shown.matches(" live ").count() == 3;
        (is_whole && shown.contains("the same at all nodes")).then_some(())
    })
    .await;
    // The commands of docs/running-a-fleet.md and scrapes use the node's name.
    let named = async |name: &str, path: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--noproxy", "*", "-w", "%{http_code}", "--connect-to"])
            .arg(format!("{name}:3129:{admin}"))
            .arg(format!("http://{name}:3129{path}"))
            .kill_on_drop(true);
        done(curl).await
    };
    for name in NODES {
        for path in ["/readyz", "/metrics"] {
            let shown = named(name, path).await;
            assert!(shown.ends_with("200"), "{name}{path}: {shown}");
        }
    }
    let refused = named("node9", "/readyz").await;
    assert_contains(&refused, "admin.hosts = [\"node1\"]");
    assert!(refused.ends_with("421"), "{refused}");
}

/// Returns the value of a setting in a unit.
fn setting<'a>(unit: &'a str, name: &str) -> &'a str {
    let start = format!("{name}=");
    let mut lines = unit.lines();
    let found = lines.find_map(|line| line.strip_prefix(start.as_str()));
    found.unwrap_or_else(|| panic!("{name}"))
}

// Ours: systemd accepts the units, and their stop timeout exceeds the proxy's.
#[tokio::test]
async fn units_pass_systemd_analyze_and_allow_an_orderly_stop() {
    let folder = TempDir::with_prefix("politesse-units-").unwrap();
    let mut paths: Vec<PathBuf> = Vec::new();
    for (file, instance) in [
        ("politesse.service", "politesse.service"),
        ("politesse@.service", "politesse@node1.service"),
    ] {
        let unit = text(&format!("contrib/systemd/{file}"));
        let stop = seconds(&value("proxy.drain_time").await)
            + seconds(&value("proxy.shutdown_timeout").await);
        assert!(stop < seconds(setting(&unit, "TimeoutStopSec")));
        assert_eq!(setting(&unit, "KillSignal"), "SIGTERM");
        assert_ne!(setting(&unit, "User"), "root");
        // The program is not installed on the test machine.
        let there = unit.replace("/usr/bin/politesse ", "/bin/true ");
        std::fs::write(folder.path().join(file), there).unwrap();
        paths.push(folder.path().join(instance));
    }
    let template = text("contrib/systemd/politesse@.service");
    assert!(template.contains("POLITESSE_FLEET__NODE=%i"));
    // Apart from names, both units have the same hardening.
    let hardening = |unit: &str| unit.split("LimitNOFILE").nth(1).unwrap().replace("/%i", "");
    let single = text("contrib/systemd/politesse.service");
    assert_eq!(hardening(&template), hardening(&single));
    let mut verify = Command::new("systemd-analyze");
    verify.arg("verify").args(&paths);
    let outcome = finish(verify, b"").await.assert_code(0);
    assert_eq!(outcome.stderr, "");
    let mut security = Command::new("systemd-analyze");
    security
        .args(["security", "--offline=true", "--threshold=20"])
        .arg(&paths[0]);
    done(security).await;
}

// Ours: a service may write only to its own folder, where commands without its
// environment also look. A node's certificates exist before its start.
#[tokio::test]
async fn units_may_write_the_files_that_the_configuration_creates() {
    let config = root().join("contrib/compose/politesse.toml");
    let place = TempDir::with_prefix("politesse-unit-").unwrap();
    let mut show = politesse(place.path());
    show.env("POLITESSE_CONFIG", &config);
    show.args(["config", "show"]);
    let shown = done(show).await;
    for file in ["politesse.service", "politesse@.service"] {
        let unit = text(&format!("contrib/systemd/{file}"));
        let folder = format!("/var/lib/{}", setting(&unit, "StateDirectory"));
        assert_eq!(setting(&unit, "WorkingDirectory"), folder);
        for made in ["store = \"sqlite:", "token_file = \""] {
            let wanted = format!("{made}{folder}/");
            assert!(shown.contains(&wanted), "{wanted}: {shown}");
        }
    }
}
