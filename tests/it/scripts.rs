//! `start.sh` and `tests/run`, with a fake cargo first in their PATH.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use tempfile::TempDir;
use tokio::process::Command;

use crate::kit::checkout;
use crate::kit::program::{Outcome, finish};

/// Copies of the repository's scripts in a folder of their own, with fake commands first
/// in their PATH.
struct Scripts {
    root: TempDir,
}

impl Scripts {
    /// Copies the scripts, with a fake `cargo` that runs the shell script `cargo`.
    fn with(cargo: &str) -> Self {
        let scripts = Self {
            root: TempDir::new().unwrap(),
        };
        for name in ["start.sh", "tests/run"] {
            scripts.write(name, &checkout::text(name));
        }
        scripts.write("bin/cargo", &format!("#!/bin/sh\n{cargo}\n"));
        // A test installs nothing.
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

/// Asserts the exit code and the last line of `tests/run` with this fake `cargo`.
async fn assert_result(cargo: &str, code: i32, last_line: &str) {
    let outcome = Scripts::with(cargo).run("tests/run", &[]).await;
    let outcome = outcome.assert_code(code);
    assert_eq!(outcome.stdout.lines().last(), Some(last_line), "{cargo}");
}

const TWO_BINARIES: &str = "\
echo 'test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s'
echo 'test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out'";

#[tokio::test]
async fn tests_run_sums_all_binaries_and_exits_with_cargos_code() {
    for code in [0, 101] {
        let runs = "[ $1 = test ] && [ $4 != --no-run ] || exit 0";
        let cargo = format!("{runs}\n{TWO_BINARIES}\nexit {code}");
        assert_result(&cargo, code, "10 passed, 2 failed").await;
    }
}

#[tokio::test]
async fn a_failure_outside_the_tests_counts_as_one() {
    assert_result("[ $1 != fmt ]", 1, "0 passed, 1 failed").await;
    // A test binary that crashes prints no result.
    assert_result("[ $1 != test ]", 1, "0 passed, 1 failed").await;
}

const BUILD: &str = "\
echo building >&2
mkdir -p target/release
printf '#!/bin/sh\\necho \"arguments: $*\"\\n' > target/release/politesse
chmod 755 target/release/politesse";

#[tokio::test]
async fn the_first_start_estimates_its_time_and_links_the_program() {
    let scripts = Scripts::with(BUILD);
    let link = scripts.path("politesse");
    let told = format!(
        "start.sh: the program is {}, a link to {}",
        link.display(),
        scripts.path("target/release/politesse").display()
    );
    let start = async || {
        let outcome = scripts.run("start.sh", &["--config", "a b.toml"]).await;
        outcome.assert_output(0, "arguments: --here --config a b.toml\n");
        outcome.stderr
    };
    let first = start().await;
    let lines: Vec<_> = first.lines().collect();
    assert!(lines[0].contains("The first time takes some "), "{first}");
    assert!(lines[0].contains(" minutes on "), "{first}");
    assert_eq!(lines[1..], ["building", told.as_str()]);
    let linked = Command::new(&link).arg("a").output().await.unwrap();
    assert_eq!(linked.stdout, b"arguments: a\n");
    // The second start prints no estimate: it builds in seconds or not at all.
    assert_eq!(start().await, format!("building\n{told}\n"));
}

#[tokio::test]
async fn a_failed_build_starts_nothing() {
    let outcome = Scripts::with("exit 101").run("start.sh", &[]).await;
    outcome.assert_output(101, "");
    assert!(!outcome.stderr.contains("the program is"), "{outcome:?}");
}
