//! The proxy's program run to its end: subcommands, start failures.

use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::soon;

/// Output of a program, and its exit code.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// One JSON value per line of the output.
    pub(crate) fn json_lines(&self) -> Vec<serde_json::Value> {
        let lines = self.stdout.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// Returns the proxy's program, to be run in `folder` as [`isolated`] runs
/// programs.
pub(crate) fn politesse(folder: &Path) -> Command {
    isolated(env!("CARGO_BIN_EXE_politesse"), folder)
}

/// Returns a program that is run in `folder`, which is its user's home as well:
/// nothing of this machine's configuration is read, and nothing is written
/// there.
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

/// Runs `command` to its end with `input`.
pub(crate) async fn finish(command: Command, input: &[u8]) -> Outcome {
    soon("end of the program", ended(command, input)).await
}

/// Returns the same for a program that takes its time; the test has a bound of
/// its own.
pub(crate) async fn ended(mut command: Command, input: &[u8]) -> Outcome {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    tokio::spawn(async move {
        // A program that fails early reads no input.
        let _ = stdin.write_all(&input).await;
    });
    let output = child.wait_with_output().await.unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs the proxy's program in `folder` with `arguments`.
pub(crate) async fn run_in(folder: &Path, arguments: &[&str]) -> Outcome {
    let mut command = politesse(folder);
    command.args(arguments);
    finish(command, b"").await
}
