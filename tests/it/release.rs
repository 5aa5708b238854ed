//! Parts of a release besides the program: cargo packages, workflows, notes, the Debian
//! package, licences. `tests/full.sh` compiles the packages.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tempfile::TempDir;
use tokio::process::Command;

use crate::kit::assert_contains;
use crate::kit::checkout::{done, root, text};
use crate::kit::program::{finish, politesse};

/// Returns the files that a source file includes with `include_str!`, `include_bytes!` or
/// `#[path]`.
fn included(source: &str) -> Vec<PathBuf> {
    let text = text(source);
    let starts = ["include_str!(\"", "include_bytes!(\"", "#[path = \""];
    let rests = starts.iter().flat_map(|start| text.split(start).skip(1));
    let paths = rests.map(|rest| rest.split('"').next().unwrap());
    let folder = root().join(source).parent().unwrap().to_owned();
    let real = paths.filter_map(|path| folder.join(path).canonicalize().ok());
    real.collect()
}

// Ours: cargo packages must compile by themselves.
#[tokio::test]
async fn sources_include_only_files_of_their_own_package() {
    let mut seen = 0;
    for (name, folder) in [
        ("politesse", ""),
        ("politesse-crawls", "crates/politesse-crawls/"),
        ("politesse-directives", "crates/politesse-directives/"),
        ("politesse-robots", "crates/politesse-robots/"),
    ] {
        let arguments = "package --list --locked --offline --allow-dirty --package";
        let mut list = Command::new(env!("CARGO"));
        list.args(arguments.split(' '))
            .arg(name)
            .current_dir(root());
        let list = done(list).await;
        let files: BTreeSet<&str> = list.lines().collect();
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(files.contains(file), "{name}: {file}");
        }
        for source in files.iter().filter(|file| file.ends_with(".rs")) {
            for path in included(&format!("{folder}{source}")) {
                let own = path.strip_prefix(root().join(folder)).ok();
                let is_own = own.is_some_and(|own| files.contains(own.to_str().unwrap()));
                assert!(is_own, "{name}: {source} includes {}", path.display());
                seen += 1;
            }
        }
    }
    assert!(20 < seen, "{seen}");
}

// Ours: checked against the schema that check-jsonschema carries.
#[tokio::test]
async fn workflows_match_githubs_schema() {
    let mut check = Command::new(root().join("target/venv/bin/check-jsonschema"));
    check.args(["--builtin-schema", "vendor.github-workflows"]);
    for name in ["ci.yml", "release.yml"] {
        let path = root().join(".github/workflows").join(name);
        // Scripts that a workflow names must exist.
        let workflow = std::fs::read_to_string(&path).unwrap();
        for word in workflow.split([' ', '\n']) {
            let is_script = word.starts_with("contrib/") || word.starts_with("tests/");
            assert!(!is_script || root().join(word).is_file(), "{name}: {word}");
        }
        check.arg(path);
    }
    done(check).await;
}

// Ours: `contrib/release/notes`.
#[tokio::test]
async fn release_notes_are_the_changelog_section_of_the_version() {
    let notes = async |version: &str| {
        let mut notes = Command::new(root().join("contrib/release/notes"));
        notes.arg(version);
        finish(notes, b"").await
    };
    let outcome = notes(env!("CARGO_PKG_VERSION")).await.assert_code(0);
    assert!(outcome.stdout.contains("### Added"));
    assert!(text("CHANGELOG.md").contains(&outcome.stdout));
    assert!(!outcome.stdout.lines().any(|line| line.starts_with("## ")));
    assert_eq!(notes("0.0.9").await.code, Some(1));
}

// Ours: contrib/release/try installs the package.
#[tokio::test]
async fn the_debian_packages_files_exist_and_are_valid() {
    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let deb = &manifest["package"]["metadata"]["deb"];
    for asset in deb["assets"].as_array().unwrap() {
        let path = asset[0].as_str().unwrap();
        // contrib/release/build makes the others.
        let is_made = path.starts_with("target/packages/root/");
        assert!(is_made || root().join(path).is_file(), "{path}");
    }
    for script in ["postinst", "prerm", "postrm"] {
        let mut check = Command::new("sh");
        check.arg("-n").arg(root().join("contrib/deb").join(script));
        done(check).await;
    }
    let place = TempDir::new().unwrap();
    let mut show = politesse(place.path());
    let config = root().join("contrib/deb/politesse.toml");
    show.args(["config", "show"])
        .env("POLITESSE_CONFIG", config);
    let shown = done(show).await;
    // The systemd unit may write nowhere else.
    for key in [
        "store = \"sqlite:",
        "token_file = \"",
        "ca_cert = \"",
        "ca_key = \"",
    ] {
        assert_contains(&shown, &format!("{key}/var/lib/politesse/"));
    }
}

// Ours: cargo-about and cargo-deny read different files.
#[test]
fn a_release_accepts_the_same_licences_as_cargo_deny() {
    let table = |file| text(file).parse::<toml::Table>().unwrap();
    let words = |list: &toml::Value| -> BTreeSet<String> {
        let words = list.as_array().unwrap().iter();
        words
            .map(|word| word.as_str().unwrap().to_owned())
            .collect()
    };
    let packed = words(&table("contrib/release/about.toml")["accepted"]);
    assert_eq!(packed, words(&table("deny.toml")["licenses"]["allow"]));
}
