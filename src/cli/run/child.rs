//! Process of the command: starts it, passes signals on, returns its exit code.
//!
//! Does not know which proxy serves it.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::environment::Environment;
use super::service::Serving;
use crate::cli::configuration::ConfigurationRequest;
use crate::cli::output::{Usage, print_notice};
use crate::cli::process::Signals;

/// Prepares `program` to start in this process's folder and terminal, with the
/// variables of `environment`.
pub(super) fn command(program: impl Into<OsString>, environment: &Environment) -> Command {
    let mut command = Command::new(program.into());
    command.envs(environment.set.iter().cloned());
    for name in &environment.remove {
        command.env_remove(name);
    }
    command
}

/// Returns the error for a `program` that could not be started.
pub(super) fn not_started(program: &OsString, error: io::Error) -> anyhow::Error {
    let program = program.to_string_lossy();
    if error.kind() == ErrorKind::NotFound {
        anyhow::Error::new(Usage::Arguments(format!("{program}: no such command")))
    } else {
        anyhow::Error::new(error).context(format!("cannot run {program}"))
    }
}

/// Waits for the command and returns its exit code.
///
/// A terminal also sends SIGINT and SIGHUP to the command, which decides how to react.
/// SIGTERM is sent only to this process, and is passed on.
pub(super) async fn wait(
    mut child: Child,
    signals: &mut Signals,
    serving: &mut Serving,
    configuration: ConfigurationRequest<'_>,
) -> anyhow::Result<u8> {
    let mut is_served = true;
    loop {
        tokio::select! {
            // Polled in this order, so that a signal that arrived before the command
            // ended is not taken for a later one.
            biased;
            _ = signals.interrupt.recv() => {}
            _ = signals.hangup.recv() => serving.reload(configuration),
            _ = signals.terminate.recv() => terminate(&child),
            status = child.wait() => return Ok(code(status?)),
            () = serving.lost(), if is_served => {
                is_served = false;
                print_notice(&format!("warning: {}", serving.loss()));
            }
        }
    }
}

fn terminate(child: &Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(pid) = id.and_then(Pid::from_raw) {
        // The command may have ended meanwhile; the loop above notices that.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Returns the exit code as shells report it: 128 plus the number of the signal if one
/// ended the command.
fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
