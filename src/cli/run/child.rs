//! The command as a process: starting it, passing signals on, its exit code.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::Read;
use super::environment::Environment;
use super::service::Serving;
use crate::cli::Usage;
use crate::cli::start::Signals;

/// A program, to be started in this process's folder and terminal with the
/// variables of `environment`.
pub(super) fn command(program: impl Into<OsString>, environment: &Environment) -> Command {
    let mut command = Command::new(program.into());
    command.envs(environment.set.iter().cloned());
    for name in &environment.remove {
        command.env_remove(name);
    }
    command
}

/// Why `program` did not start, as the user is told.
pub(super) fn not_started(program: &OsString, error: io::Error) -> anyhow::Error {
    let program = program.to_string_lossy();
    if error.kind() == ErrorKind::NotFound {
        anyhow::Error::new(Usage::Arguments(format!("{program}: no such command")))
    } else {
        anyhow::Error::new(error).context(format!("cannot run {program}"))
    }
}

/// Waits for the command. A terminal sends SIGINT to both of us, and the
/// command decides what it means, as it does of a SIGHUP; SIGTERM is passed on.
pub(super) async fn wait(
    mut child: Child,
    signals: &mut Signals,
    serving: &mut Serving,
    read: Read<'_>,
) -> anyhow::Result<u8> {
    let mut is_served = true;
    loop {
        tokio::select! {
            // In this order, so that a signal that is known by the time the
            // command has ended is not taken for one that came after.
            biased;
            _ = signals.interrupt.recv() => {}
            _ = signals.hangup.recv() => serving.reload(read),
            _ = signals.terminate.recv() => terminate(&child),
            status = child.wait() => return Ok(code(status?)),
            () = serving.lost(), if is_served => {
                is_served = false;
                super::tell(&format!("warning: {}", serving.loss()));
            }
        }
    }
}

fn terminate(child: &Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(pid) = id.and_then(Pid::from_raw) {
        // It may have ended meanwhile, which the next turn sees.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// A command's code as shells give it: 128 and the signal if one ended it.
fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
