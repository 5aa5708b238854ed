//! Runs of the proxy's program to its end: subcommands and failed starts.

use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::soon;

/// Output and exit code of a program.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// Asserts that the program exited with `code`.
    #[track_caller]
    pub(crate) fn assert_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Asserts that the program exited with `code` and printed exactly `stdout`.
    #[track_caller]
    pub(crate) fn assert_output(&self, code: i32, stdout: &str) {
        let output = (self.code, self.stdout.as_str());
        assert_eq!(output, (Some(code), stdout), "{}", self.stderr);
    }

    /// Asserts that the standard error contains each of `parts`.
    #[track_caller]
    pub(crate) fn assert_stderr(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in {self:?}");
        }
    }

    /// Parses each non-empty line of the output as JSON.
    pub(crate) fn json_lines(&self) -> Vec<serde_json::Value> {
        let lines = self.stdout.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// Returns a command that runs the proxy's program in `folder`, as [`isolated`] does.
pub(crate) fn politesse(folder: &Path) -> Command {
    isolated(env!("CARGO_BIN_EXE_politesse"), folder)
}

/// Returns a command that runs `program` in `folder`, which is also its `HOME`: the
/// program neither reads nor changes this user's configuration.
pub(crate) fn isolated(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        let lower = name.to_string_lossy().to_ascii_lowercase();
        let is_ours = lower.starts_with("politesse_") || lower.starts_with("xdg_");
        if is_ours || lower.ends_with("_proxy") {
            command.env_remove(&name);
        }
    }
    command.env("HOME", folder);
    let config = folder.join("politesse.toml");
    if config.exists() {
        command.env("POLITESSE_CONFIG", config);
    }
    command
}

/// Runs `command` with `input` to its end.
pub(crate) async fn finish(command: Command, input: &[u8]) -> Outcome {
    soon("end of the program", ended(command, input)).await
}

/// Runs a slow `command` with `input` to its end, limited only by the test's own timeout.
pub(crate) async fn ended(mut command: Command, input: &[u8]) -> Outcome {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    tokio::spawn(async move {
        // A program that fails early does not read its input.
        let _ = stdin.write_all(&input).await;
    });
    let output = child.wait_with_output().await.unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Sends the signal `name` to a process.
pub(crate) async fn send_signal(name: &str, pid: u32) {
    let mut kill = Command::new("kill");
    kill.arg(format!("-{name}")).arg(pid.to_string());
    assert!(kill.status().await.unwrap().success());
}

/// Runs the proxy's program in `folder` with `arguments`.
pub(crate) async fn run_in(folder: &Path, arguments: &[&str]) -> Outcome {
    let mut command = politesse(folder);
    command.args(arguments);
    finish(command, b"").await
}
