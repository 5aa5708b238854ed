//! Certificates of nodes issued by one root (`politesse ca issue`): clients trust only
//! the root, and each node's key can be replaced separately.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::kit::client::get_admin;
use crate::kit::origin::{Origin, Script};
use crate::kit::paced::metric;
use crate::kit::page::Page;
use crate::kit::program::{finish, isolated};
use crate::kit::proxy::{Config, Place, Proxy, resolve};
use crate::kit::{assert_contains, until};

const NODES: [&str; 3] = ["node1", "node2", "node3"];

async fn origin() -> Origin {
    let script = Script::robots("").page("/page", Page::text("yes"));
    script.tls().start().await
}

/// Creates a place with a root, and a file with the root's certificate for clients.
async fn root() -> (Place, PathBuf) {
    let place = Place::with(&Config::default());
    place.run_ok(&["ca", "init"]).await;
    let trusted = place.path("root.pem");
    std::fs::write(&trusted, place.run_ok(&["ca", "export"]).await.stdout).unwrap();
    (place, trusted)
}

fn name(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Returns the configuration of a node whose certificate and key are in `folder`.
fn with_files(config: Config, folder: &Path) -> Config {
    let file = |end: &str| name(&folder.join(end));
    config
        .set(&format!("https.ca_cert = {:?}", file("ca.pem")))
        .set(&format!("https.ca_key = {:?}", file("ca.key")))
}

async fn node_of(root: &Place, node: &str, origin: &Origin) -> Proxy {
    let folder = root.path(node);
    root.run_ok(&["ca", "issue", node, "--out", &name(&folder)])
        .await;
    with_files(resolve("o.test", origin.address()), &folder)
        .start()
        .await
}

const PYTHON: &str = "
import socket, ssl, sys
host, port = sys.argv[1].rsplit(':', 1)
plain = socket.create_connection((host, int(port)))
plain.sendall(b'CONNECT o.test:443 HTTP/1.1\\r\\nHost: o.test:443\\r\\n\\r\\n')
assert b' 200 ' in plain.recv(4096)
context = ssl.create_default_context(cafile=sys.argv[2])
context.verify_flags |= ssl.VERIFY_X509_STRICT
print(context.wrap_socket(plain, server_hostname='o.test').version())
";

const NODE: &str = "
const [proxy, trusted] = process.argv.slice(1);
const [host, port] = proxy.split(':');
const ask = require('http').request({ host, port, method: 'CONNECT', path: 'o.test:443' });
ask.on('connect', (reply, socket) => {
  const options = { socket, servername: 'o.test', ca: require('fs').readFileSync(trusted) };
  const secure = require('tls').connect(options, () => { console.log(secure.authorized); secure.end(); });
  secure.on('error', (error) => { console.log(error.code); process.exit(1); });
});
ask.end();
";

/// Returns a command of `program`, a client that trusts only `trusted`.
fn client(program: &str, proxy: &Proxy, trusted: &Path) -> Command {
    let (address, trusted) = (proxy.address().to_string(), name(trusted));
    let mut command = isolated(program, proxy.place().folder());
    match program {
        "python3" => command.args(["-c", PYTHON, &address, &trusted]),
        "node" => command.args(["-e", NODE, &address, &trusted]),
        "curl" => {
            let options = "--silent --show-error --fail --max-time 30 https://o.test/page";
            command.args(options.split(' '));
            command.args(["--proxy", &address, "--cacert", &trusted])
        }
        _ => {
            let options = "s_client -connect o.test:443 -servername o.test \
                           -verify_hostname o.test -x509_strict -verify_return_error";
            command.args(options.split(' '));
            command.args(["-proxy", &address, "-CAfile", &trusted])
        }
    };
    command
}

// RFC 5280, section 6.1. All nodes are below one root.
#[tokio::test]
async fn clients_that_trust_only_the_root_accept_every_node() {
    let origin = origin().await;
    let (place, trusted) = root().await;
    let (_other, foreign) = root().await;
    for node in NODES {
        let proxy = node_of(&place, node, &origin).await;
        for program in ["curl", "python3", "node", "openssl"] {
            let trusting = finish(client(program, &proxy, &trusted), b"").await;
            assert_eq!(trusting.code, Some(0), "{program} {trusting:?}");
            let doubting = finish(client(program, &proxy, &foreign), b"").await;
            assert_ne!(doubting.code, Some(0), "{program} {doubting:?}");
        }
        // The node hands out the root's certificate, not its own.
        let root_pem = std::fs::read_to_string(&trusted).unwrap();
        let exported = proxy.place().run_ok(&["ca", "export"]).await;
        assert_eq!(exported.stdout, root_pem);
        let page = get_admin(proxy.admin(), "/ca.pem", &[]).await;
        assert_eq!(page.text(), root_pem);
    }
}

// Ours: `ca show` on a node prints both digests, and the metric has the earlier end.
#[tokio::test]
async fn a_node_shows_both_digests_and_the_earlier_end_of_its_chain() {
    let (place, _) = root().await;
    let folder = place.path("node1");
    let out = name(&folder);
    let issue = ["ca", "issue", "node1", "--days", "30", "--out", &out];
    let made = place.run_ok(&issue).await.stdout;
    assert_contains(&made, "valid until");
    let mode = |end: &str| folder.join(end).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("ca.key"), mode("ca.pem")), (0o600, 0o644));
    let of_root = place.run_ok(&["ca", "show"]).await.stdout;
    let digest = |text: &str, start: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(start));
        found.map(str::to_owned)
    };
    let node = Place::with(&with_files(Config::default(), &folder));
    let shown = node.run_ok(&["ca", "show"]).await.stdout;
    assert_eq!(digest(&shown, "sha256 "), digest(&of_root, "sha256 "));
    assert!(digest(&shown, "node sha256 ").is_some(), "{shown}");
    assert_eq!(digest(&of_root, "node sha256 "), None);
    let proxy = node.start().await;
    let end = metric(&proxy, "politesse_ca_end_timestamp_seconds").await;
    let start = metric(&proxy, "politesse_start_timestamp_seconds").await;
    assert!((29.0..31.0).contains(&((end - start) / 86_400.0)), "{end}");
}

// Ours: a leaked node key can be replaced separately, and a reload is enough.
#[tokio::test]
async fn a_reload_gives_a_node_another_key() {
    let origin = origin().await;
    let (place, trusted) = root().await;
    let proxy = node_of(&place, "node1", &origin).await;
    let folder = place.path("node1");
    let again = ["ca", "issue", "node1", "--out", &name(&folder)];
    let refused = place.run_code(1, &again).await;
    assert_contains(&refused.stderr, "never overwritten");

    let shown = async || proxy.place().run_ok(&["ca", "show"]).await.stdout;
    let before = shown().await;
    for file in ["ca.pem", "ca.key"] {
        std::fs::remove_file(folder.join(file)).unwrap();
    }
    place.run_ok(&again).await;
    assert_ne!(shown().await, before);
    let second = chain(&proxy, &trusted).await;
    proxy.signal("HUP").await;
    until("another certificate", async || {
        (chain(&proxy, &trusted).await != second).then_some(())
    })
    .await;
    let fetched = finish(client("curl", &proxy, &trusted), b"").await;
    fetched.assert_output(0, "yes");
}

/// Returns the node's certificate, which the proxy sends after the leaf.
async fn chain(proxy: &Proxy, trusted: &Path) -> String {
    let mut command = client("openssl", proxy, trusted);
    command.arg("-showcerts");
    let shown = finish(command, b"").await.stdout;
    let mut certificates = shown.split("-----BEGIN CERTIFICATE-----").skip(2);
    let node = certificates.next().expect("the certificate of the node");
    assert_eq!(certificates.count(), 1, "the root");
    node.split("-----END").next().unwrap().to_owned()
}

// Ours: the message names file and fault. Unit tests cover expired certificates.
#[tokio::test]
async fn files_that_clients_would_not_trust_are_refused_with_the_reason() {
    let (place, _) = root().await;
    let (other, _) = root().await;
    for (root, node) in [(&place, "node1"), (&place, "node2"), (&other, "node1")] {
        let folder = name(&root.path(node));
        root.run_ok(&["ca", "issue", node, "--out", &folder]).await;
    }
    let read = |place: &Place, file: &str| std::fs::read_to_string(place.path(file)).unwrap();
    let (chain, key) = (read(&place, "node1/ca.pem"), read(&place, "node1/ca.key"));
    let end = "-----END CERTIFICATE-----\n";
    let node = chain.split_inclusive(end).next().unwrap();
    let foreign_root = read(&other, "certs/ca.pem");
    for (cert, key, wanted) in [
        (node, &*key, "its root does not follow it"),
        (&chain, &read(&place, "node2/ca.key"), "another key"),
        (&format!("{node}{foreign_root}"), &key, "follows it"),
    ] {
        let wrong = Place::with(&Config::default());
        wrong.write("certs/ca.pem", cert, 0o644);
        wrong.write("certs/ca.key", key, 0o600);
        let text = wrong.run_code(1, &["serve"]).await.stderr;
        assert!(text.contains(wanted) && text.contains("ca.pem"), "{text}");
    }
    // A node cannot issue certificates, and an invalid node name is refused.
    let node = Place::with(&with_files(Config::default(), &place.path("node1")));
    let issued = node.run_code(1, &["ca", "issue", "node4"]).await;
    assert_contains(&issued.stderr, "its root issues");
    for wrong in ["", "../x", "a b", "é"] {
        assert_eq!(place.run(&["ca", "issue", wrong]).await.code, Some(2));
    }
}
