//! `ca trust`: the printed lines work when pasted, and `--apply` can be undone.

use crate::kit::assert_contains;
use crate::kit::checkout::root;
use crate::kit::origin::{Origin, Script, site};
use crate::kit::page::Page;
use crate::kit::program::{Outcome, finish, isolated};
use crate::kit::proxy::{Config, Place, Proxy};

async fn shop() -> (Origin, Proxy) {
    let script = Script::robots("").page("/lamp", Page::html("A lamp."));
    // Chromium sends background requests to its own hosts; a dead parent keeps them local.
    site(script.tls(), &["upstream.parent = \"http://127.0.0.1:1\""]).await
}

/// Runs a shell script whose `HOME` is the folder of `proxy`, with `proxy` as its proxy.
async fn shell(proxy: &Proxy, script: &str) -> Outcome {
    let mut command = isolated("bash", proxy.place().folder());
    for name in [
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
    ] {
        command.env_remove(name);
    }
    let address = format!("http://{}", proxy.address());
    command
        .args(["-euc", script])
        .env("politesse", env!("CARGO_BIN_EXE_politesse"))
        .env("venv", root().join("target/venv/bin/python"))
        .env("http_proxy", &address)
        .env("https_proxy", &address);
    finish(command, b"").await
}

#[tokio::test]
async fn the_printed_lines_for_clients_work_when_pasted() {
    let (_origin, proxy) = shop().await;
    for (client, request) in [
        ("curl", "curl -s https://o.test/lamp"),
        (
            "python",
            "$venv -c 'import requests; print(requests.get(\"https://o.test/lamp\").text)'",
        ),
        (
            "node",
            "node --version | grep -q 'v1\\|v20' && echo A lamp. || node -e \
                      'fetch(\"https://o.test/lamp\").then(r => r.text()).then(console.log)'",
        ),
    ] {
        let script = format!("eval \"$($politesse ca trust --for {client})\"\n{request}");
        let outcome = shell(&proxy, &script).await;
        assert!(outcome.stdout.contains("A lamp."), "{client}: {outcome:?}");
    }
    for (client, words) in [
        (
            "java",
            "keytool -importcert -noprompt -alias politesse -file ",
        ),
        (
            "firefox",
            "{\"policies\":{\"Certificates\":{\"Install\":[\"/",
        ),
        ("system", "install -m 644 "),
        ("chromium", "--ignore-certificate-errors-spki-list="),
    ] {
        let outcome = proxy.place().run(&["ca", "trust", "--for", client]).await;
        assert!(outcome.stdout.contains(words), "{client}: {outcome:?}");
    }
}

#[tokio::test]
async fn apply_is_refused_for_clients_that_need_an_environment_variable() {
    let place = Place::with(&Config::default());
    let none = place.run_code(1, &["ca", "trust", "--for", "curl"]).await;
    assert!(none.stderr.contains("there is no CA yet"), "{none:?}");
    place.run(&["ca", "init"]).await;
    for option in ["--apply", "--undo"] {
        let outcome = place
            .run_code(2, &["ca", "trust", "--for", "curl", option])
            .await;
        assert_contains(&outcome.stderr, "export CURL_CA_BUNDLE=");
    }
}

const OPEN: &str = "chromium --headless --no-sandbox --disable-gpu --disable-quic \
                    --disable-background-networking --user-data-dir=$HOME/profile \
                    --proxy-server=$http_proxy --dump-dom https://o.test/lamp";

#[tokio::test]
async fn chromium_trusts_an_applied_ca_until_undo() {
    let (_origin, proxy) = shop().await;
    let opened = async || shell(&proxy, OPEN).await.stdout.contains("A lamp.");
    assert!(!opened().await, "Chromium already trusts the CA");
    let trust = async |option: &str| {
        let script = format!("$politesse ca trust --for chromium {option}");
        let outcome = shell(&proxy, &script).await.assert_code(0);
        outcome.stdout
    };
    assert!(trust("--undo").await.contains("does not have the CA"));
    // Applying twice is the same as once.
    trust("--apply").await;
    let applied = trust("--apply").await;
    assert_contains(&applied, "ca trust --for chromium --undo");
    assert!(opened().await);
    let doctor = shell(&proxy, "$politesse doctor --for chromium || true").await;
    assert_contains(&doctor.stdout, "ok       chromium trusts the CA");
    assert_eq!(trust("--undo").await, "removed the CA from Chromium\n");
    assert!(!opened().await);
}

// Ours: run in a mount namespace, so that this machine's roots do not change.
#[tokio::test]
async fn the_system_trusts_an_applied_ca_until_undo() {
    let (_origin, proxy) = shop().await;
    let script = "
            mkdir -p roots added
            cp -a /etc/ssl/certs/. roots/
            mount --bind roots /etc/ssl/certs
            mount --bind added /usr/local/share/ca-certificates
            $politesse ca trust --for system --undo
            $politesse ca trust --for system --apply
            curl -s https://o.test/lamp
            $politesse doctor --for system | grep 'system trusts' || true
            $politesse ca trust --for system --undo
            curl -s https://o.test/lamp || echo refused";
    let whole = format!(
        "unshare --map-root-user --mount bash -euc '{}'",
        script.replace('\'', "'\\''")
    );
    let outcome = shell(&proxy, &whole).await.assert_code(0);
    let lines: Vec<_> = outcome.stdout.lines().collect();
    assert!(
        lines[0].ends_with("politesse.crt is not there"),
        "{lines:?}"
    );
    let applied = "the system trusts the CA now";
    assert!(lines[1].starts_with(applied), "{lines:?}");
    assert!(lines[2].starts_with("A lamp."), "{lines:?}");
    assert_contains(&outcome.stdout, "ok       system trusts the CA");
    let undone = "politesse.crt\nrefused\n";
    assert!(outcome.stdout.ends_with(undone), "{outcome:?}");
}

#[tokio::test]
async fn the_message_names_a_read_only_trust_folder() {
    let place = Place::with(&Config::default());
    place.run(&["ca", "init"]).await;
    let mut command = isolated("unshare", place.folder());
    command.args(["--map-root-user", "--mount", "sh", "-c"]);
    command.arg(
        "mount -t tmpfs -o ro none /usr/local/share/ca-certificates; \
             exec \"$0\" ca trust --for system --apply",
    );
    command.arg(env!("CARGO_BIN_EXE_politesse"));
    let outcome = finish(command, b"").await.assert_code(1);
    let told = "cannot change /usr/local/share/ca-certificates/politesse.crt";
    assert!(outcome.stderr.contains(told), "{outcome:?}");
}
