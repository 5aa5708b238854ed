//! `serve`: the proxy, until a signal stops it.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Exit, log, runtime};
use crate::config::Settings;
use crate::proxy::ca_files::closed_to_others;
use crate::proxy::connect::HttpsMode;
use crate::serve::capacity::warn_of_shortages;
use crate::serve::{self, RunningProxy};

/// Options of `serve`.
#[derive(Debug, Default, Args)]
pub(super) struct Serve {
    /// Begins a new record if the one before is not whole; what is left of it is
    /// set aside.
    #[arg(long)]
    new_record: bool,
}

/// Runs the proxy until SIGTERM or SIGINT; a second one ends it at once, after
/// the audit was written. SIGHUP has the configuration read again.
pub(super) fn serve(
    options: &Serve,
    read: &dyn Fn() -> anyhow::Result<Settings>,
) -> anyhow::Result<Exit> {
    let mut settings = read()?;
    settings.audit.new_record = options.new_record;
    let log = log::start(&settings)?;
    take_descriptors();
    let runtime = runtime()?;
    let end = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let mut running = serve::start(&settings).await?;
        warn_of_closed_certificate(&settings);
        warn_of_unused_authority(&settings);
        open_control(&mut running, "serve");
        announce(&settings, &running)?;
        warn_of_shortages(&settings);
        while signals.next().await == Asked::Reload {
            if let Some(settings) = running.reload(read) {
                warn_of_shortages(settings);
                log.set_level(settings.log.level);
            }
        }
        tracing::info!("stopping");
        running.stop(signals.stop()).await;
        tracing::info!("stopped");
        Ok(Exit::Done)
    });
    // A lookup of a name that hangs cannot be stopped, and need not be waited for.
    runtime.shutdown_background();
    end
}

/// Lets commands of `politesse run` find the proxy. Without that it serves
/// everyone else all the same.
pub(super) fn open_control(running: &mut RunningProxy, command: &str) {
    if let Err(error) = running.open_control(command) {
        tracing::warn!(
            %error,
            "no control socket beside the record: `politesse run` will not find this proxy"
        );
    }
}

/// Takes as many descriptors as may be had. Most systems give 1024 to who does
/// not ask, fewer than `proxy.max_connections`, and an origin that is not
/// connected to for lack of one is taken for unreachable.
fn take_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, all) {
        tracing::warn!(%error, limit = limit.current, "no more descriptors are to be had");
    }
}

/// Warns where crawlers that run as other users cannot read the certificate
/// that they have to trust.
fn warn_of_closed_certificate(settings: &Settings) {
    if settings.connect.mode == HttpsMode::Refuse {
        return;
    }
    let closed = closed_to_others(&settings.ca.cert).into_iter();
    let commands: Vec<_> = closed
        .map(|closed| {
            let path = shell_quoted(&closed.path.display().to_string());
            format!("chmod {:o} {path}", closed.wanted_mode)
        })
        .collect();
    if !commands.is_empty() {
        tracing::warn!(
            certificate = %settings.ca.cert.display(),
            "crawlers of other users cannot read the CA certificate; to let them: {}",
            commands.join("; ")
        );
    }
}

/// Prints where the proxy listens, what it goes by, and a line to try it with.
fn announce(settings: &Settings, running: &RunningProxy) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for address in &running.listen {
        writeln!(
            out,
            "politesse {} listens on http://{address}",
            env!("CARGO_PKG_VERSION")
        )?;
    }
    writeln!(out, "health and metrics on http://{}", running.admin)?;
    out.write_all(in_force(settings).as_bytes())?;
    if let Some(address) = running.listen.first() {
        writeln!(
            out,
            "try: {}",
            curl_line(settings, &reachable(address).to_string())
        )?;
    }
    out.flush()?;
    Ok(())
}

/// Lines that say which configuration, record and authority are in use.
fn in_force(settings: &Settings) -> String {
    let file = settings.file.as_deref().map(plain_path);
    let value = |key: &str| settings.values.get(key).unwrap_or_default().to_owned();
    let ca = match settings.connect.mode {
        HttpsMode::Intercept => plain_path(&settings.ca.cert),
        HttpsMode::Refuse => "none, https.mode is \"refuse\"".to_owned(),
    };
    format!(
        "configuration: {}\n\
         enforcement.mode: {}, pace.profile: {}\n\
         record: {}\n\
         CA: {ca}\n",
        file.as_deref().unwrap_or("no file, built-in defaults"),
        value("enforcement.mode"),
        value("pace.profile"),
        plain_path(&settings.audit.path),
    )
}

/// A command that fetches a page through the proxy at `proxy`: of a host that
/// the configuration knows, or of example.com.
fn curl_line(settings: &Settings, proxy: &str) -> String {
    let intercepts = settings.connect.mode == HttpsMode::Intercept;
    let usual_port = if intercepts { 443 } else { 80 };
    let known = settings.egress.resolve.iter().min_by_key(|entry| {
        let port = entry.port.unwrap_or(usual_port);
        (port != usual_port, port != 80)
    });
    let host = known.map_or("example.com", |entry| &entry.name);
    let port = known.and_then(|entry| entry.port).unwrap_or(usual_port);
    let scheme = if intercepts && port != 80 {
        "https"
    } else {
        "http"
    };
    let shown_port = match port {
        80 | 443 => String::new(),
        _ => format!(":{port}"),
    };
    let ca = if scheme == "https" {
        format!(" --cacert {}", shell_quoted(&plain_path(&settings.ca.cert)))
    } else {
        String::new()
    };
    format!("curl --proxy http://{proxy}{ca} {scheme}://{host}{shown_port}/")
}

/// Warns where the working directory has an authority that an earlier version
/// would have used: crawlers that trust it would fail without a word.
fn warn_of_unused_authority(settings: &Settings) {
    let here = std::path::Path::new("certs/ca.key");
    let is_other = || here.canonicalize().ok() != settings.ca.key.canonicalize().ok();
    if settings.file.is_none() && here.exists() && is_other() {
        tracing::warn!(
            "certs/ and data/ of this folder are not in use: `politesse --here` uses them"
        );
    }
}

/// Address to connect to for a listener on `address`: one on a wildcard address
/// listens on loopback as well.
pub(super) fn reachable(address: &SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(_) | IpAddr::V6(_) => address.ip(),
    };
    SocketAddr::new(ip, address.port())
}

/// A path without detours; the file was made by now.
fn plain_path(path: &std::path::Path) -> String {
    path.canonicalize()
        .unwrap_or_else(|_| path.to_owned())
        .display()
        .to_string()
}

/// A word that a shell takes as it is.
pub(super) fn shell_quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// An end (SIGTERM, SIGINT).
    Stop,
    /// The configuration anew (SIGHUP).
    Reload,
}

/// Signals that this process ignores, a bit each from that of signal 1 on
/// (proc(5), `SigIgn`). None are known where there is no such file.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or_default()
}

/// The signals that are meant for us. None of them ends the process by itself
/// any more, once this was made.
pub(super) struct Signals {
    pub(super) terminate: Awaited,
    pub(super) interrupt: Awaited,
    pub(super) hangup: Awaited,
}

/// A signal that is waited for, or left ignored.
pub(super) struct Awaited(Option<Signal>);

impl Awaited {
    /// Waits for the next; for ever if it is ignored.
    pub(super) async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Self::but(0)
    }

    /// Signals that we were not started to ignore, as `nohup` has SIGHUP
    /// ignored: a process started from here would not ignore those any more.
    pub(super) fn but_ignored() -> std::io::Result<Self> {
        Self::but(ignored_signals())
    }

    /// Signals without those whose bits are set in `ignored`.
    fn but(ignored: u64) -> std::io::Result<Self> {
        let awaited = |kind: SignalKind| {
            let is_ignored = ignored & (1 << (kind.as_raw_value() - 1)) != 0;
            let signal = (!is_ignored).then(|| signal(kind)).transpose();
            signal.map(Awaited)
        };
        Ok(Self {
            terminate: awaited(SignalKind::terminate())?,
            interrupt: awaited(SignalKind::interrupt())?,
            hangup: awaited(SignalKind::hangup())?,
        })
    }

    /// What the next one asks for.
    pub(super) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.hangup.recv() => Asked::Reload,
        }
    }

    /// The next that asks for an end: what stops reads no configuration.
    pub(super) async fn stop(&mut self) {
        while self.next().await == Asked::Reload {}
    }
}
