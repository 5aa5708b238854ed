//! What a release consists of beside the program: packages of cargo, workflows, notes.
//! `tests/full.sh` compiles the packages.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tokio::process::Command;

use crate::kit::checkout::{done, root, text};
use crate::kit::program::finish;
use crate::kit::run;

/// Returns the files that sources of a package include: by `include_str!` or `#[path]`.
fn included(source: &str) -> Vec<PathBuf> {
    let text = text(source);
    let starts = ["include_str!(\"", "include_bytes!(\"", "#[path = \""];
    let paths = starts.iter().flat_map(|start| text.split(start).skip(1));
    let paths = paths.map(|rest| rest.split('"').next().unwrap());
    let folder = root().join(source).parent().unwrap().to_owned();
    let real = paths.filter_map(|path| folder.join(path).canonicalize().ok());
    real.collect()
}

// Issue: "`cargo package` passes for each crate of the workspace (… no path outside)".
#[test]
fn sources_of_a_package_include_files_of_that_package_alone() {
    run(async {
        let mut seen = 0;
        for (name, folder) in [
            ("politesse", ""),
            ("politesse-crawls", "crates/politesse-crawls/"),
            ("politesse-directives", "crates/politesse-directives/"),
            ("politesse-robots", "crates/politesse-robots/"),
        ] {
            let mut list = Command::new(env!("CARGO"));
            list.args([
                "package",
                "--list",
                "--locked",
                "--offline",
                "--allow-dirty",
                "-p",
                name,
            ])
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
    });
}

// Ours.
#[test]
fn workflows_have_the_form_that_github_takes() {
    run(async {
        let mut check = Command::new(root().join("target/venv/bin/check-jsonschema"));
        check.args(["--builtin-schema", "vendor.github-workflows"]);
        for name in ["ci.yml", "release.yml"] {
            let path = root().join(".github/workflows").join(name);
            // A script that a workflow names is there.
            let workflow = std::fs::read_to_string(&path).unwrap();
            for word in workflow.split([' ', '\n']) {
                let is_script = ["contrib/", "tests/"]
                    .iter()
                    .any(|folder| word.starts_with(folder));
                assert!(!is_script || root().join(word).is_file(), "{name}: {word}");
            }
            check.arg(path);
        }
        done(check).await;
    });
}

// Issue: "release notes from the changelog, version 0.1.0 tagged in the changelog".
#[test]
fn the_notes_of_a_release_are_the_section_of_its_version() {
    run(async {
        let notes = async |version: &str| {
            let mut notes = Command::new(root().join("contrib/release/notes"));
            notes.arg(version);
            finish(notes, b"").await
        };
        let outcome = notes(env!("CARGO_PKG_VERSION")).await;
        assert_eq!(outcome.code, Some(0));
        assert!(outcome.stdout.contains("### Added"));
        assert!(text("CHANGELOG.md").contains(&outcome.stdout));
        assert!(!outcome.stdout.lines().any(|line| line.starts_with("## ")));
        assert_eq!(notes("0.0.9").await.code, Some(1));
    });
}
