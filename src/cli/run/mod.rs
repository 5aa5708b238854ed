//! `run -- CMD`: runs a command whose requests go through the proxy.
//!
//! The proxy is found through the lock on the audit record, never by a port
//! (`service`). It serves a listener opened only for the command, so that its requests
//! can be counted separately. Does not know which clients the command uses:
//! `environment` has variables for all of them.

mod child;
pub(super) mod environment;
mod files;
#[cfg(target_os = "linux")]
pub(super) mod seal;
mod service;
mod summary;
mod trust_store;

use std::ffi::OsString;
use std::future::ready;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Context as _, anyhow};
use clap::Args;

use self::environment::Environment;
use self::service::{Service, Serving};
use self::summary::Bypass;
use super::configuration::{ConfigurationRequest, check_owner};
use super::log;
use super::output::{Exit, print_notice};
use super::process::{Signals, runtime};
use crate::config::Settings;
use crate::serve::RunningProxy;
use politesse_decision::label::{CrawlLabel, CrawlOptions};
use politesse_directives::{CrawlPurpose, PurposeSet};

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// Leaves the command no way round the proxy (Linux).
    ///
    /// The command runs in a network namespace of its own, which has no route and no
    /// name server; its loopback has only the proxy. Every attempt to reach anything
    /// else fails, and is counted. User, folder, terminal and signals stay the same.
    /// Files and Unix sockets that are reached by path (of a display, of Docker, of
    /// nscd, which looks up names) remain reachable. Services on this machine's own
    /// 127.0.0.1 are not: attempts are refused, and not counted. sudo and similar
    /// programs have no effect inside unless you are root.
    ///
    /// If the system forbids such namespaces, nothing is started.
    #[arg(long)]
    sealed: bool,
    /// Records the command's requests under this label.
    ///
    /// `audit missed --label LABEL` then lists the pages that the crawl did not get. 1
    /// to 64 letters, digits, dots, dashes and underscores.
    #[arg(long)]
    label: Option<CrawlLabel>,
    /// Purposes of the command's requests, replacing those of its entry of `crawler`:
    /// train-ai, search, ai-input, archive, images, separated by commas.
    ///
    /// `preferences.enforce` decides how pages that are denied for them are handled.
    #[arg(long, value_delimiter = ',', value_name = "PURPOSES")]
    purpose: Vec<CrawlPurpose>,
    /// Command to run, with its arguments.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

impl RunArguments {
    fn crawl(&self) -> CrawlOptions {
        CrawlOptions {
            label: self.label.clone(),
            purposes: PurposeSet::of(&self.purpose),
        }
    }
}

/// Runs the command and returns its exit code.
///
/// # Errors
///
/// There is no proxy or no seal, or the command cannot be started.
pub(super) fn run(
    arguments: &RunArguments,
    configuration: ConfigurationRequest<'_>,
) -> anyhow::Result<Exit> {
    let settings = configuration.settings()?;
    check_owner(&settings)?;
    let runtime = runtime()?;
    let _log = log::start(&quiet(&settings))?;
    configuration.warn_without_home(&settings);
    let code = runtime.block_on(run_through_proxy(arguments, &settings, configuration));
    // A name lookup that hangs cannot be cancelled, and no one waits for its result.
    runtime.shutdown_background();
    Ok(Exit::Child(code?))
}

/// Returns the settings with a log of only warnings and errors, because the user wants
/// to read the command's output.
fn quiet(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.log.level = tracing::Level::WARN;
    settings.log.exchanges = false;
    settings
}

/// Finds the proxy, runs the command through it, and prints how many of its requests
/// were allowed and refused.
async fn run_through_proxy(
    arguments: &RunArguments,
    settings: &Settings,
    configuration: ConfigurationRequest<'_>,
) -> anyhow::Result<u8> {
    let service = Service::find(settings).await?;
    // Signals are handled before the environment's files are created, so that the files
    // are removed after a signal too.
    let mut signals = Signals::except_ignored()?;
    let started = if arguments.sealed {
        start_sealed(arguments, settings, service).await
    } else {
        start(arguments, settings, service).await
    };
    let RunningCommand {
        child,
        mut serving,
        bypass,
        environment,
    } = match started {
        Ok(command) => command,
        Err(NotStarted { error, own }) => {
            // Without this the record would show a process that ended without stopping.
            if let Some(running) = own {
                stop(*running, &mut signals).await;
            }
            return Err(error);
        }
    };
    let code = child::wait(child, &mut signals, &mut serving, configuration).await?;
    let (totals, own) = serving.close(signals.stop()).await;
    for line in summary::lines(totals.as_ref(), bypass()) {
        print_notice(&line);
    }
    // The command no longer needs the files of its environment.
    drop(environment);
    if let Some(running) = own {
        stop(*running, &mut signals).await;
    }
    Ok(code)
}

/// A running command, with everything that must exist while it runs.
struct RunningCommand {
    /// Process of the command.
    child: tokio::process::Child,
    /// Proxy that serves it.
    serving: Serving,
    /// Counts the attempts to bypass the proxy, once the command has ended.
    bypass: Box<dyn FnOnce() -> Bypass>,
    /// Variables and files that make the command use the proxy.
    environment: Environment,
}

/// Reason why a command was not started, with the proxy that was started for it and
/// must now be stopped.
struct NotStarted {
    /// The reason.
    error: anyhow::Error,
    /// Proxy that was started for the command; `None` if another proxy was to serve it.
    own: Option<Box<RunningProxy>>,
}

impl NotStarted {
    /// Makes the error for a command whose proxy does not serve it yet.
    fn unserved(error: anyhow::Error, service: Service) -> Self {
        let own = service.into_own();
        Self { error, own }
    }

    /// Makes the error for a command whose proxy already serves it.
    async fn served(error: anyhow::Error, serving: Serving) -> Self {
        let (_, own) = serving.close(ready(())).await;
        Self { error, own }
    }
}

impl From<anyhow::Error> for NotStarted {
    fn from(error: anyhow::Error) -> Self {
        Self { error, own: None }
    }
}

/// Listener of a command, and the variables that make the command use it.
struct CommandDoor {
    /// Listener on a free port of loopback, only for this command.
    listener: TcpListener,
    /// Variables that name its address.
    environment: Environment,
}

impl CommandDoor {
    fn open(settings: &Settings) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .context("cannot listen on loopback for the command")?;
        let environment = Environment::new(settings, listener.local_addr()?)?;
        Ok(Self {
            listener,
            environment,
        })
    }
}

/// Starts the command with variables that make it use the proxy.
async fn start(
    arguments: &RunArguments,
    settings: &Settings,
    service: Service,
) -> Result<RunningCommand, NotStarted> {
    let CommandDoor {
        listener,
        environment,
    } = match CommandDoor::open(settings) {
        Ok(door) => door,
        Err(error) => return Err(NotStarted::unserved(error, service)),
    };
    let Some((program, program_arguments)) = arguments.command.split_first() else {
        return Err(NotStarted::unserved(anyhow!("no command"), service));
    };
    let serving = service
        .serve(settings, listener.into(), &arguments.crawl())
        .await?;
    let mut command = child::command(program, &environment);
    let child = match command.args(program_arguments).spawn() {
        Ok(child) => child,
        Err(error) => {
            let error = child::not_started(program, error);
            return Err(NotStarted::served(error, serving).await);
        }
    };
    Ok(RunningCommand {
        child,
        serving,
        bypass: Box::new(|| Bypass::Unknown),
        environment,
    })
}

#[cfg(target_os = "linux")]
async fn start_sealed(
    arguments: &RunArguments,
    settings: &Settings,
    service: Service,
) -> Result<RunningCommand, NotStarted> {
    let sealed = async {
        let environment = Environment::new(settings, SocketAddr::from(seal::LISTEN))?;
        let process = seal::SealedProcess::start(&arguments.command, &environment).await?;
        let listener = process.listener()?;
        anyhow::Ok((environment, process, listener))
    };
    let (environment, process, listener) = match sealed.await {
        Ok(sealed) => sealed,
        Err(error) => return Err(NotStarted::unserved(error, service)),
    };
    // The listener is served before the process becomes the command, which may connect
    // at once.
    let serving = service
        .serve(settings, listener, &arguments.crawl())
        .await?;
    let (child, counters) = match process.become_command().await {
        Ok(started) => started,
        Err(error) => return Err(NotStarted::served(error, serving).await),
    };
    Ok(RunningCommand {
        child,
        serving,
        bypass: Box::new(move || Bypass::Counted(counters.growth())),
        environment,
    })
}

#[cfg(not(target_os = "linux"))]
async fn start_sealed(
    _: &RunArguments,
    _: &Settings,
    service: Service,
) -> Result<RunningCommand, NotStarted> {
    let error = anyhow!("--sealed needs the network namespaces of Linux");
    Err(NotStarted::unserved(error, service))
}

/// Stops our own proxy, after the commands that have joined it.
async fn stop(running: RunningProxy, signals: &mut Signals) {
    let commands = running.commands();
    if !commands.close_if_idle() {
        print_notice(
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
