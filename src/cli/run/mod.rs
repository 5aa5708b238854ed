//! `run -- CMD`: a command whose requests go through the proxy.
//!
//! The proxy is found by the lock on the record, never by a port (`service`).
//! It serves a listener that is opened for the command alone, so that its
//! requests can be counted apart.

mod child;
mod environment;
mod files;
#[cfg(target_os = "linux")]
pub(super) mod seal;
mod service;
mod summary;
mod trust_store;

use std::ffi::OsString;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::Context as _;
use clap::Args;

use self::environment::Environment;
use self::service::{Service, Serving};
use self::summary::Bypass;
use super::inert::inert;
use super::start::Signals;
use super::{Exit, log, runtime};
use crate::config::Settings;
use crate::serve::RunningProxy;

/// The command.
#[derive(Debug, Args)]
pub(super) struct Run {
    /// Leaves the command no way round the proxy (Linux).
    ///
    /// It runs in a network namespace of its own, which has no route and no name
    /// server; on its loopback there is the proxy and nothing else. Whatever
    /// the command tries to reach in another way fails, and is counted. User,
    /// folder, terminal and signals stay as they are. Still reachable are Unix
    /// sockets by their path (those of a display, of Docker, of nscd, which
    /// looks names up) and files. Services on this machine's own 127.0.0.1 are
    /// not: an attempt is refused, and not counted. sudo and the like do nothing
    /// inside unless you are root.
    ///
    /// Where the system forbids such namespaces nothing is started.
    #[arg(long)]
    sealed: bool,
    /// The command and its arguments.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

/// Reads the configuration.
type Read<'a> = &'a dyn Fn() -> anyhow::Result<Settings>;

pub(super) fn run(run: &Run, read: Read<'_>) -> anyhow::Result<Exit> {
    let settings = read()?;
    let _log = log::start(&quiet(&settings))?;
    let runtime = runtime()?;
    let code = runtime.block_on(conduct(run, &settings, read));
    // A lookup of a name that hangs cannot be stopped, and need not be waited for.
    runtime.shutdown_background();
    Ok(Exit::Child(code?))
}

/// The command's own output is what counts here: the proxy tells trouble only.
fn quiet(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.log.level = tracing::Level::WARN;
    settings
}

/// Finds the proxy, runs the command through it, and tells what became of its
/// requests.
async fn conduct(run: &Run, settings: &Settings, read: Read<'_>) -> anyhow::Result<u8> {
    let service = Service::find(settings).await?;
    // Before the files of the environment are made: they are removed after a
    // signal, too.
    let mut signals = Signals::but_ignored()?;
    let started = if run.sealed {
        start_sealed(run, settings, service).await?
    } else {
        start(run, settings, service).await?
    };
    let Started {
        child,
        mut serving,
        bypass,
        environment,
    } = started;
    let code = child::wait(child, &mut signals, &mut serving, read).await?;
    let (totals, own) = serving.close(signals.stop()).await;
    for line in summary::lines(totals.as_ref(), bypass()) {
        tell(&line);
    }
    drop(environment);
    if let Some(running) = own {
        stop(*running, &mut signals).await;
    }
    Ok(code)
}

/// A command that runs, and what it needs while it does.
struct Started {
    child: tokio::process::Child,
    serving: Serving,
    /// What is known of the requests that did not come to the proxy.
    bypass: Box<dyn FnOnce() -> Bypass>,
    environment: Environment,
}

/// Starts the command with variables that lead it to the proxy.
async fn start(run: &Run, settings: &Settings, service: Service) -> anyhow::Result<Started> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .context("cannot listen on loopback for the command")?;
    let environment = Environment::new(settings, listener.local_addr()?)?;
    let (program, arguments) = run.command.split_first().context("no command")?;
    let serving = service.serve(settings, listener.into()).await?;
    let mut command = child::command(program, &environment);
    let child = command.args(arguments).spawn();
    Ok(Started {
        child: child.map_err(|error| child::not_started(program, error))?,
        serving,
        bypass: Box::new(|| Bypass::Unknown),
        environment,
    })
}

#[cfg(target_os = "linux")]
async fn start_sealed(run: &Run, settings: &Settings, service: Service) -> anyhow::Result<Started> {
    let environment = Environment::new(settings, SocketAddr::from(seal::LISTEN))?;
    let sealed = seal::Sealed::prepare(&run.command, &environment).await?;
    let (waiting, listener) = sealed.into_parts();
    let serving = service.serve(settings, listener).await?;
    let (child, counters) = waiting.go().await?;
    Ok(Started {
        child,
        serving,
        bypass: Box::new(move || Bypass::Counted(counters.growth())),
        environment,
    })
}

#[cfg(not(target_os = "linux"))]
async fn start_sealed(_: &Run, _: &Settings, _: Service) -> anyhow::Result<Started> {
    anyhow::bail!("--sealed needs the network namespaces of Linux")
}

/// Stops our own proxy, once the commands that have joined it are done.
async fn stop(running: RunningProxy, signals: &mut Signals) {
    let commands = running.commands();
    if !commands.close_if_idle() {
        tell(
            "the command is done; other commands still go through this proxy, which waits for \
             them (a signal ends it)",
        );
        let all_ended = async {
            while !commands.close_if_idle() {
                commands.ended().await;
            }
        };
        tokio::select! {
            () = all_ended => {}
            () = signals.stop() => {}
        }
    }
    running.stop(signals.stop()).await;
}

/// Tells a line on stderr.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "politesse: {}", inert(line));
}
