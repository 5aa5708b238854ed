//! `config check`, which opens the files that `serve` would open. All of it is ours.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::kit::proxy::{Config, Place};

/// Returns all files and folders below `folder`.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        }
        found.push(path.display().to_string());
    }
    found.sort();
    found
}

fn with_lines(lines: &[&str]) -> Place {
    let config = lines.iter();
    Place::with(&config.fold(Config::default(), |config, line| config.set(line)))
}

#[tokio::test]
async fn config_check_creates_no_file() {
    let place = with_lines(&["audit.client_addresses = \"keyed\""]);
    let before = files(place.folder());
    place.run_ok(&["config", "check"]).await;
    assert_eq!(files(place.folder()), before);
    // Neither does a check while a proxy runs, or after it.
    let proxy = place.start().await;
    proxy.place().run_ok(&["config", "check"]).await;
    let place = proxy.stop().await;
    let before = files(place.folder());
    place.run_ok(&["config", "check"]).await;
    assert_eq!(files(place.folder()), before);
}

#[tokio::test]
async fn config_check_and_serve_both_reject_a_missing_file() {
    const STORE: &str = "fleet.store = [\"redis://127.0.0.1:9\"]";
    const ARCHIVE: &str = "audit.archive = \"postgres://127.0.0.1:9/a\"";
    const TLS: &str = "proxy.listen = [\"https://127.0.0.1:0\"]";
    for lines in [
        &["https.upstream_roots = \"gone\""][..],
        &["upstream.parent_auth = \"gone\""],
        &[TLS, "proxy.tls_cert = \"gone\"", "proxy.tls_key = \"gone\""],
        &["admin.tls_cert = \"gone\"", "admin.tls_key = \"gone\""],
        &[STORE, "fleet.key = \"gone\""],
        &[STORE, "fleet.store_auth = \"gone\""],
        &[STORE, "fleet.store_ca = \"gone\""],
        &[ARCHIVE, "audit.archive_auth = \"gone\""],
        &[ARCHIVE, "audit.archive_ca = \"gone\""],
    ] {
        let place = with_lines(lines);
        let check = place.run_code(2, &["config", "check"]).await;
        assert!(check.stderr.contains("gone"), "{lines:?}: {check:?}");
        let serve = place.run_code(1, &["serve"]).await;
        assert!(serve.stderr.contains("gone"), "{lines:?}: {serve:?}");
        assert_eq!(serve.stdout, "", "{lines:?}");
    }
}

#[tokio::test]
async fn config_check_and_serve_both_reject_an_unusable_file() {
    for name in [
        "certs/ca.pem",
        "data/admin-token",
        "data/seal.key",
        "data/privacy.key",
        "data/audit.db",
        "data/record",
    ] {
        let place = with_lines(&[
            "audit.client_addresses = \"keyed\"",
            "audit.store = \"sqlite:data/audit.db\"",
        ]);
        let place = place.start().await.stop().await;
        let file = place.path(name);
        assert!(file.exists(), "{name}");
        fs::write(&file, "nonsense").unwrap();
        let check = place.run_code(2, &["config", "check"]).await;
        assert!(check.stderr.contains(name), "{name}: {check:?}");
        place.run_code(1, &["serve"]).await;
    }
}

#[tokio::test]
async fn config_check_reports_all_faults_at_once() {
    let place = with_lines(&[
        "audit.seal_to = [\"heads\"]",
        "https.upstream_roots = \"gone\"",
        "fleet.store = [\"redis://127.0.0.1:9\"]",
        "fleet.key = \"no-key\"",
        "fleet.store_auth = \"no-login\"",
    ]);
    fs::create_dir(place.path("heads")).unwrap();
    fs::write(place.path("audit.db"), "").unwrap();
    let everybody = Permissions::from_mode(0o666);
    fs::set_permissions(place.path("audit.db"), everybody).unwrap();
    let check = place.run_code(2, &["config", "check"]).await;
    check.assert_stderr(&[
        "heads (audit.seal_to)",
        "gone",
        "audit.db",
        "no-key",
        "no-login",
    ]);
}
