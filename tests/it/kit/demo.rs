//! `politesse demo` as a process: a site, a proxy configured for it, and the command
//! lines that it prints.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::program::{politesse, send_signal};
use super::soon;

/// Start of the line that the demo prints before the events.
const LAST_LINE: &str = "The dashboard shows it";

/// A running demo.
pub(crate) struct Demo {
    /// Temporary folder inside which the demo creates its own.
    pub(crate) parent: TempDir,
    child: Child,
    /// Command lines that the demo prints for pasting.
    pub(crate) lines: Vec<String>,
    printed: Lines<BufReader<ChildStdout>>,
}

impl Demo {
    /// Starts a demo, with `arguments` after the subcommand.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let parent = TempDir::new().unwrap();
        let mut command = politesse(parent.path());
        command
            .arg("demo")
            .args(arguments)
            .env("TMPDIR", parent.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = Vec::new();
        while let Some(line) = soon("a line of the demo", printed.next_line())
            .await
            .unwrap()
        {
            if line.starts_with(LAST_LINE) {
                break;
            }
            if line.starts_with("  ") && !line.starts_with("  #") && !line.starts_with("    ") {
                lines.push(line.trim().to_owned());
            }
        }
        Self {
            parent,
            child,
            lines,
            printed,
        }
    }

    /// Returns the next printed line that contains `words`.
    pub(crate) async fn line_with(&mut self, words: &str) -> String {
        loop {
            let line = soon("a line of the demo", self.printed.next_line()).await;
            let line = line.unwrap().expect("the demo ended early");
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Returns the folder that the demo created.
    pub(crate) fn folder(&self) -> PathBuf {
        let mut entries = std::fs::read_dir(self.parent.path()).unwrap();
        entries.next().unwrap().unwrap().path()
    }

    /// Interrupts the demo as Ctrl-C does. Returns its exit code and the parent folder,
    /// which the demo should have left empty.
    pub(crate) async fn interrupt(mut self) -> (Option<i32>, TempDir) {
        send_signal("INT", self.child.id().unwrap()).await;
        let status = soon("end of the demo", self.child.wait()).await.unwrap();
        (status.code(), self.parent)
    }
}

/// Returns a shell command that runs `line` in `folder`.
pub(crate) fn shell(folder: &Path, line: &str) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", line])
        .current_dir(folder)
        .env_remove("no_proxy")
        .env_remove("NO_PROXY");
    shell
}
