//! Proxy that serves the command: one of this process if the audit record is free,
//! otherwise the one that holds the record, if it has the same configuration.
//!
//! Does not know the command.

use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::sleep;

use crate::cli::configuration::ConfigurationRequest;
use crate::cli::output::Usage;
use crate::cli::process::{holder_instance, open_control};
use crate::config::Settings;
use crate::serve::commands::{CommandListener, loopback_listener};
use crate::serve::control::instance::Instance;
use crate::serve::control::joining::{Holder, JoinError, JoinedListener};
use crate::serve::{self, RunningProxy};
use politesse_base::clock;
use politesse_decision::label::CrawlOptions;
use politesse_proxy::tally::Totals;
use politesse_record::AuditError;

/// Longest wait for the holder of the record to start or stop. Rereading a large record
/// takes seconds.
const HOLDER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between attempts to reach the holder.
const HOLDER_INTERVAL: Duration = Duration::from_millis(200);

/// Proxy that was found, before it serves the command.
pub(super) enum Service {
    /// Proxy of this process. The record was free.
    Own(Box<RunningProxy>),
    /// Proxy of another process, which holds the record.
    Holder(Box<RecordHolder>),
}

/// Proxy of another process.
pub(super) struct RecordHolder {
    /// Folder of the record.
    folder: PathBuf,
    instance: Instance,
}

/// Proxy that serves the listener of the command.
pub(super) enum Serving {
    /// Proxy of this process.
    Own(Box<RunningProxy>, CommandListener),
    /// Proxy of another process.
    Joined(JoinedListener, Box<RecordHolder>),
}

impl Service {
    /// Starts a proxy with these settings on free ports, or finds the one that holds
    /// the record, waiting for it if it is starting or stopping.
    ///
    /// # Errors
    ///
    /// [`Usage`] if the holder has another configuration; any error of starting a
    /// proxy; a holder that does not answer.
    pub(super) async fn find(settings: &Settings) -> anyhow::Result<Self> {
        let deadline = clock::instant() + HOLDER_TIMEOUT;
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
            match holder_instance(&folder).await {
                Ok(instance) => {
                    check_configuration(&instance, settings, &folder)?;
                    return Ok(Self::Holder(Box::new(RecordHolder { folder, instance })));
                }
                // It holds the lock but does not answer: it is starting, stopping or
                // hanging.
                Err(error) if deadline <= clock::instant() => {
                    return Err(error.context(unknown_holder(&folder)));
                }
                Err(_) => sleep(HOLDER_INTERVAL).await,
            }
        }
    }

    /// Returns the proxy if it belongs to this process.
    pub(super) fn into_own(self) -> Option<Box<RunningProxy>> {
        match self {
            Self::Own(running) => Some(running),
            Self::Holder(_) => None,
        }
    }

    /// Makes the proxy serve `listener` for `crawl`. If the holder has stopped since it
    /// was found, because its command has ended, looks for the next one.
    ///
    /// # Errors
    ///
    /// [`Usage`] if the holder has a different configuration by now; a holder that does
    /// not answer, or that already serves the maximum number of commands.
    pub(super) async fn serve(
        self,
        settings: &Settings,
        listener: OwnedFd,
        crawl: &CrawlOptions,
    ) -> anyhow::Result<Serving> {
        let deadline = clock::instant() + HOLDER_TIMEOUT;
        let mut service = self;
        loop {
            let error = match service
                .try_serve(settings, listener.try_clone()?, crawl.clone())
                .await
            {
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

    async fn try_serve(
        self,
        settings: &Settings,
        listener: OwnedFd,
        crawl: CrawlOptions,
    ) -> anyhow::Result<Serving> {
        let other = match self {
            Self::Own(running) => {
                let listener = running.serve_command(loopback_listener(listener)?, crawl)?;
                return Ok(Serving::Own(running, listener));
            }
            Self::Holder(other) => other,
        };
        let holder = Holder::connect(&other.folder).await;
        let joined = match holder {
            Ok(holder) => holder.join(listener, settings.values.digest(), crawl).await,
            Err(error) => Err(error),
        };
        match joined {
            Ok(joined) => Ok(Serving::Joined(joined, other)),
            Err(JoinError::OtherConfiguration) => {
                // The configuration was replaced since the holder was found.
                let instance = Instance::read(&other.folder)?;
                check_configuration(&instance, settings, &other.folder)?;
                Err(JoinError::OtherConfiguration).context(not_served(&other.instance))
            }
            Err(error) => Err(error).context(not_served(&other.instance)),
        }
    }
}

impl Serving {
    /// Waits until the proxy stops serving the command.
    pub(super) async fn lost(&mut self) {
        match self {
            Self::Own(..) => pending().await,
            Self::Joined(joined, _) => joined.lost().await,
        }
    }

    /// Returns the message for a proxy that no longer serves the command.
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

    /// Makes the proxy reread its configuration, if it belongs to this process.
    pub(super) fn reload(&mut self, configuration: ConfigurationRequest<'_>) {
        match self {
            Self::Own(running, _) => {
                running.reload(|| Ok(configuration.settings()?));
            }
            Self::Joined(_, other) => tracing::warn!(
                "the proxy is process {}: send SIGHUP to that process to reload its configuration",
                other.instance.pid
            ),
        }
    }

    /// Ends the listener and returns the counts of its requests, and the proxy if it
    /// belongs to this process: other commands may have joined it.
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

/// Reports whether the proxy that was found has ended.
fn has_gone(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref();
    matches!(error, Some(JoinError::NoAnswer(_) | JoinError::Stopping))
}

/// Returns settings for a proxy that serves this command and any that join it. They
/// have no fixed port, so that it starts regardless of other programs. The values that
/// configurations are compared by stay the same.
fn on_free_ports(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    // The command gets its own listener, which counts its requests.
    settings.listener.listen = Vec::new();
    settings.admin.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    settings
}

/// Checks that the holder has the configuration of this command.
fn check_configuration(
    instance: &Instance,
    settings: &Settings,
    folder: &Path,
) -> Result<(), Usage> {
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
        "the record in {folder} is held by a proxy with another configuration
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
        "the process that holds the record in {} does not say what it is: it is starting, \
         stopping, or not a politesse that commands can join. Try again, stop it, or give this \
         command a record of its own: --set audit.store=sqlite:FILE",
        folder.display()
    )
}
