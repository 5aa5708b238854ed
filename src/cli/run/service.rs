//! The proxy that serves the command: one of our own if the record is free,
//! else the one that holds the record, if its configuration is ours.

use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::sleep;

use super::Read;
use crate::audit::AuditError;
use crate::cli::Usage;
use crate::cli::start::open_control;
use crate::clock;
use crate::config::Settings;
use crate::proxy::tally::Totals;
use crate::serve::commands::{CommandListener, loopback_listener};
use crate::serve::control::instance::Instance;
use crate::serve::control::joining::{Holder, JoinError, JoinedListener};
use crate::serve::{self, RunningProxy};

/// How long the holder of the record may take to start or to stop. Reading a
/// large record again takes seconds.
const HOLDER_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked at meanwhile.
const HOLDER_INTERVAL: Duration = Duration::from_millis(200);

/// A proxy that was found, before it serves the command.
pub(super) enum Service {
    /// Ours. The record was free.
    Own(Box<RunningProxy>),
    /// That of another process, which holds the record.
    Holder(Box<Other>),
}

/// The proxy of another process.
pub(super) struct Other {
    folder: PathBuf,
    pub(super) instance: Instance,
}

/// A proxy that serves the command's listener.
pub(super) enum Serving {
    /// Ours.
    Own(Box<RunningProxy>, CommandListener),
    /// That of another process.
    Joined(JoinedListener, Box<Other>),
}

impl Service {
    /// Starts a proxy for these settings, on free ports; or finds the one that
    /// holds the record. One that is starting or stopping is waited for.
    ///
    /// # Errors
    ///
    /// [`Usage`] if the holder has another configuration; what keeps a proxy
    /// from starting; a holder that does not say what it is.
    pub(super) async fn find(settings: &Settings) -> anyhow::Result<Self> {
        let deadline = clock::instant() + HOLDER_PATIENCE;
        loop {
            let error = match serve::start(&on_free_ports(settings)).await {
                Ok(mut running) => {
                    open_control(&mut running, "run");
                    return Ok(Self::Own(Box::new(running)));
                }
                Err(error) => error,
            };
            let folder = match error.downcast_ref() {
                Some(AuditError::Locked(folder)) => folder.clone(),
                _ => return Err(error),
            };
            match other(&folder).await {
                Ok(instance) => {
                    check(&instance, settings, &folder)?;
                    return Ok(Self::Holder(Box::new(Other { folder, instance })));
                }
                Err(error) if deadline <= clock::instant() => {
                    return Err(error.context(unknown_holder(&folder)));
                }
                Err(_) => sleep(HOLDER_INTERVAL).await,
            }
        }
    }

    /// Has `listener` served. If the holder has stopped since it was found, as
    /// one does whose command has ended, the next is looked for.
    ///
    /// # Errors
    ///
    /// [`Usage`] if the holder has been given another configuration meanwhile;
    /// a holder that does not answer, or serves as many commands as it may.
    pub(super) async fn serve(
        self,
        settings: &Settings,
        listener: OwnedFd,
    ) -> anyhow::Result<Serving> {
        let deadline = clock::instant() + HOLDER_PATIENCE;
        let mut service = self;
        loop {
            let error = match service.try_serve(settings, listener.try_clone()?).await {
                Ok(serving) => return Ok(serving),
                Err(error) => error,
            };
            if !has_gone(&error) || deadline <= clock::instant() {
                return Err(error);
            }
            sleep(HOLDER_INTERVAL).await;
            service = Self::find(settings).await?;
        }
    }

    async fn try_serve(self, settings: &Settings, listener: OwnedFd) -> anyhow::Result<Serving> {
        let other = match self {
            Self::Own(running) => {
                let listener = running.serve_command(loopback_listener(listener)?)?;
                return Ok(Serving::Own(running, listener));
            }
            Self::Holder(other) => other,
        };
        let holder = Holder::connect(&other.folder).await;
        let joined = match holder {
            Ok(holder) => holder.join(listener, settings.values.digest()).await,
            Err(error) => Err(error),
        };
        match joined {
            Ok(joined) => Ok(Serving::Joined(joined, other)),
            Err(JoinError::OtherConfiguration) => {
                check(&Instance::read(&other.folder)?, settings, &other.folder)?;
                Err(JoinError::OtherConfiguration).context(not_served(&other.instance))
            }
            Err(error) => Err(error).context(not_served(&other.instance)),
        }
    }
}

impl Serving {
    /// Waits until the proxy serves the command no more.
    pub(super) async fn lost(&mut self) {
        match self {
            Self::Own(..) => pending().await,
            Self::Joined(joined, _) => joined.lost().await,
        }
    }

    /// What to say when the proxy serves the command no more.
    pub(super) fn loss(&self) -> String {
        let pid = match self {
            Self::Own(..) => std::process::id(),
            Self::Joined(_, other) => other.instance.pid,
        };
        format!(
            "the proxy that this command goes through (process {pid}) has stopped: nothing can be \
             fetched any more"
        )
    }

    /// Has the proxy read its configuration again, if it is ours.
    pub(super) fn reload(&mut self, read: Read<'_>) {
        match self {
            Self::Own(running, _) => {
                running.reload(read);
            }
            Self::Joined(_, other) => tracing::warn!(
                "the proxy is process {}: SIGHUP there has it read its configuration again",
                other.instance.pid
            ),
        }
    }

    /// Ends the listener and counts its requests. Returns our own proxy, which
    /// others may have joined.
    pub(super) async fn close(
        self,
        hurry: impl Future<Output = ()>,
    ) -> (Option<Totals>, Option<Box<RunningProxy>>) {
        match self {
            Self::Own(running, listener) => (Some(listener.close(hurry).await), Some(running)),
            Self::Joined(joined, _) => {
                let totals = tokio::select! {
                    totals = joined.finish() => totals,
                    () = hurry => None,
                };
                (totals, None)
            }
        }
    }
}

/// Whether the proxy that was found is there no more.
fn has_gone(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref();
    matches!(error, Some(JoinError::NoAnswer(_) | JoinError::Stopping))
}

/// Settings for a proxy that serves this command and those that join it: no
/// fixed port, so that it starts whatever else runs on this machine. The values
/// by which configurations are compared stay as they are.
fn on_free_ports(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.listener.listen = Vec::new();
    settings.admin.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    settings
}

/// Who holds the record in `folder`, if it answers.
async fn other(folder: &Path) -> anyhow::Result<Instance> {
    let instance = Instance::read(folder)?;
    // A file that an earlier process left names nobody who answers.
    Holder::connect(folder).await?;
    Ok(instance)
}

/// That the holder has our configuration.
fn check(instance: &Instance, settings: &Settings, folder: &Path) -> Result<(), Usage> {
    let ours = settings.values.digest().to_string();
    if instance.configuration == ours {
        return Ok(());
    }
    let listen: Vec<_> = instance.listen.iter().map(ToString::to_string).collect();
    let place = if listen.is_empty() {
        String::new()
    } else {
        format!(" on {}", listen.join(", "))
    };
    let differ = instance.keys_that_differ(&settings.values).join(", ");
    Err(Usage::Arguments(format!(
        "the record in {folder} is held by a proxy of another configuration
  there: politesse {command}, process {pid}{place}, since {started}, configuration {theirs}
  here:  configuration {ours}
  they differ in: {differ}
  either use its configuration, or stop it, or give this command a record of its own: \
  --set audit.store=sqlite:FILE",
        folder = folder.display(),
        command = instance.command,
        pid = instance.pid,
        started = instance.started,
        theirs = instance.configuration,
    )))
}

fn not_served(instance: &Instance) -> String {
    format!(
        "the proxy that holds the record (politesse {}, process {}) does not serve this command",
        instance.command, instance.pid
    )
}

fn unknown_holder(folder: &Path) -> String {
    format!(
        "what holds the record in {} does not say what it is: it is starting, stopping, or not a \
         politesse that commands can join. Try again, stop it, or give this command a record of \
         its own: --set audit.store=sqlite:FILE",
        folder.display()
    )
}
