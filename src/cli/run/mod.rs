//! `run -- CMD`: a command whose requests go through the proxy.

mod environment;
mod files;
mod summary;
mod trust_store;

use std::ffi::OsString;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use self::environment::Environment;
use self::summary::summary;
use super::start::Signals;
use super::{Exit, Usage, log, runtime};
use crate::clock;
use crate::config::Settings;
use crate::serve;

/// The command.
#[derive(Debug, Args)]
pub(super) struct Run {
    /// The command and its arguments.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

/// How long a proxy that runs may take to say that it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(6);

/// Reads the configuration.
type Read<'a> = &'a dyn Fn() -> anyhow::Result<Settings>;

pub(super) fn run(run: &Run, read: Read<'_>) -> anyhow::Result<Exit> {
    let settings = read()?;
    let _log = log::start(&quiet(&settings))?;
    let began = clock::now();
    let code = runtime()?.block_on(through_a_proxy(run, &settings, read))?;
    if let Err(error) = summary(&settings.audit.path, began) {
        // The command's code counts, whatever there is to tell of it.
        super::report(&error);
    }
    Ok(Exit::Child(code))
}

/// The command's own output is what counts here: the proxy tells trouble only.
fn quiet(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.log.level = tracing::Level::WARN;
    settings
}

/// Runs the command through the proxy of this configuration: the one that
/// answers, else one started for it, which SIGHUP has read its configuration
/// again.
async fn through_a_proxy(run: &Run, settings: &Settings, read: Read<'_>) -> anyhow::Result<u8> {
    if is_ready(settings.admin.listen) {
        let listen = settings.listener.listen.first().copied();
        let listen = listen.context("proxy.listen is empty")?;
        return through(run, (settings, listen), || {
            tracing::warn!("the proxy is not ours, and does not read its configuration again");
        })
        .await;
    }
    let mut running = serve::start(settings).await?;
    let listen = running.listen.first().copied();
    let listen = listen.context("proxy.listen is empty")?;
    let code = through(run, (settings, listen), || {
        running.reload(read);
    })
    .await;
    // Made now, so that a signal meant for the command does not hurry the stop.
    let mut signals = Signals::new()?;
    running.stop(signals.stop()).await;
    code
}

/// Whether a proxy answers `/readyz` at `admin`.
fn is_ready(admin: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&admin, READY_TIMEOUT)?;
        stream.set_read_timeout(Some(READY_TIMEOUT))?;
        write!(
            stream,
            "GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.take(4096).read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ready\n"))
    };
    ask().unwrap_or(false)
}

/// Runs the command through the proxy at `listen`; `hung_up` is what SIGHUP
/// asks for.
async fn through(
    run: &Run,
    (settings, listen): (&Settings, SocketAddr),
    hung_up: impl FnMut(),
) -> anyhow::Result<u8> {
    let environment = Environment::new(settings, listen)?;
    let (program, arguments) = run.command.split_first().context("no command")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(environment.set.iter().cloned());
    for name in &environment.remove {
        command.env_remove(name);
    }
    let signals = Signals::new()?;
    let child = command.spawn().map_err(|error| {
        let program = program.to_string_lossy();
        if error.kind() == ErrorKind::NotFound {
            anyhow::Error::new(Usage::Arguments(format!("{program}: no such command")))
        } else {
            anyhow::Error::new(error).context(format!("cannot run {program}"))
        }
    })?;
    wait(child, signals, hung_up).await
}

/// Waits for the command. A terminal sends SIGINT to both of us, and the
/// command decides what it means, as it does of a SIGHUP; SIGTERM is passed on.
async fn wait(
    mut child: Child,
    mut signals: Signals,
    mut hung_up: impl FnMut(),
) -> anyhow::Result<u8> {
    loop {
        tokio::select! {
            status = child.wait() => return Ok(code(status?)),
            _ = signals.interrupt.recv() => {}
            _ = signals.hangup.recv() => hung_up(),
            _ = signals.terminate.recv() => {
                let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
                if let Some(pid) = pid {
                    // It may have ended meanwhile, which the next turn sees.
                    let _ = kill_process(pid, Signal::TERM);
                }
            }
        }
    }
}

/// A command's code as shells give it: 128 and the signal if one ended it.
fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
