//! `start.sh` and `tests/run`, with a cargo in their way that only pretends.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::process::Command;

use crate::kit::program::{Outcome, finish};
use crate::kit::run;

/// The repository's scripts in a folder of their own, and the commands that
/// they find first.
struct Scripts {
    root: TempDir,
}

impl Scripts {
    /// With a `cargo` that runs the lines of shell in `cargo`.
    fn with(cargo: &str) -> Self {
        let scripts = Self {
            root: TempDir::new().unwrap(),
        };
        for name in ["start.sh", "tests/run"] {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
            let text = std::fs::read_to_string(source).unwrap();
            scripts.write(name, &text);
        }
        scripts.write("bin/cargo", &format!("#!/bin/sh\n{cargo}\n"));
        // Nothing is installed by a test.
        for name in ["apt-get", "npm", "cc"] {
            scripts.write(&format!("bin/{name}"), "#!/bin/sh\n");
        }
        for (folder, file) in [("venv", "requirements.txt"), ("node", "package.json")] {
            scripts.write(&format!("tests/clients/{file}"), "");
            scripts.write(&format!("target/{folder}/{file}"), "");
        }
        scripts
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }

    async fn run(&self, script: &str, arguments: &[&str]) -> Outcome {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(self.path(script));
        command
            .args(arguments)
            .current_dir(self.root.path())
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env_remove("CARGO_TARGET_DIR")
            .kill_on_drop(true);
        finish(command, b"").await
    }
}

fn last_line(outcome: &Outcome) -> &str {
    outcome.stdout.lines().last().unwrap_or_default()
}

const TWO_BINARIES: &str = "\
echo 'test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s'
echo 'test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out'";

#[test]
fn the_last_line_of_the_tests_is_the_sum_of_all_binaries() {
    run(async {
        let whole = Scripts::with(&format!("[ $1 = test ] || exit 0\n{TWO_BINARIES}"));
        let outcome = whole.run("tests/run", &[]).await;
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(last_line(&outcome), "10 passed, 2 failed");
    });
}

#[test]
fn tests_that_fail_are_summed_and_end_with_cargos_code() {
    run(async {
        let failing = Scripts::with(&format!(
            "[ $1 = test ] || exit 0\n{TWO_BINARIES}\nexit 101"
        ));
        let outcome = failing.run("tests/run", &[]).await;
        assert_eq!(outcome.code, Some(101), "{outcome:?}");
        assert_eq!(last_line(&outcome), "10 passed, 2 failed");
    });
}

#[test]
fn what_fails_before_the_tests_counts_as_one() {
    run(async {
        let unformatted = Scripts::with("[ $1 != fmt ]");
        let outcome = unformatted.run("tests/run", &[]).await;
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert_eq!(last_line(&outcome), "0 passed, 1 failed");
        // A binary that dies has no result.
        let dying = Scripts::with("[ $1 != test ]");
        let outcome = dying.run("tests/run", &[]).await;
        assert_eq!(
            (outcome.code, last_line(&outcome)),
            (Some(1), "0 passed, 1 failed")
        );
    });
}

/// A build that takes two seconds for the last crate.
const BUILD: &str = "\
mkdir -p target/release/.fingerprint/politesse-0123456789abcdef
printf '#!/bin/sh\\necho \"arguments: $*\"\\n' > target/release/politesse
chmod 755 target/release/politesse
touch target/release/.fingerprint/politesse-0123456789abcdef/invoked.timestamp
sleep 2";

#[test]
fn the_start_says_what_compiles_and_where_the_program_is() {
    run(async {
        let scripts = Scripts::with(BUILD);
        let outcome = scripts.run("start.sh", &["--config", "a b.toml"]).await;
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(outcome.stdout, "arguments: --here --config a b.toml\n");
        let program = scripts.path("target/release/politesse");
        let lines: Vec<_> = outcome.stderr.lines().collect();
        assert!(lines[0].contains("compiling the last crate"), "{outcome:?}");
        let told = format!("start.sh: the program is {}", program.display());
        assert_eq!(lines.last(), Some(&told.as_str()), "{outcome:?}");
    });
}

#[test]
fn a_build_that_fails_starts_nothing() {
    run(async {
        let outcome = Scripts::with("exit 101").run("start.sh", &[]).await;
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(101), ""));
        assert!(!outcome.stderr.contains("the program is"), "{outcome:?}");
    });
}
