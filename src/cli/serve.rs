//! `serve`: runs the proxy until a signal stops it.
//!
//! Does not know how the proxy is built: the crate's module `serve` does.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sd_notify::NotifyState;

use super::configuration::{ConfigurationRequest, check_conflicts, check_owner};
use super::log;
use super::output::{Exit, unless_closed};
use super::process::{SignalRequest, Signals, admin_url, open_control, reachable, runtime};
use super::start_failure::with_advice;
use crate::config::{LogFormat, Settings};
use crate::serve::capacity::warn_of_shortages;
use crate::serve::{self, RunningProxy};
use politesse_base::command_line::command;
use politesse_base::inert::shell_quoted;
use politesse_proxy::ca_files::closed_to_others;
use politesse_proxy::connect::HttpsMode;
use politesse_proxy::credentials::AuthMode;
use politesse_proxy::server::ListenAddress;
use politesse_robots::origin::Scheme;

/// Arguments of `serve`.
#[derive(Debug, Default, Args)]
pub(super) struct ServeArguments {
    /// Begins a new record if the previous one is damaged; the remains of that one are
    /// set aside.
    #[arg(long)]
    new_record: bool,
    /// Seals the record even though heads of it were removed; the record notes this.
    /// Verify it with an exported head first.
    #[arg(long)]
    accept_lost_heads: bool,
}

/// Runs the proxy until SIGTERM or SIGINT. A second signal ends a drain; the next ends
/// the proxy at once, after the record is written. SIGHUP makes it reread the
/// configuration.
pub(super) fn serve(
    arguments: &ServeArguments,
    configuration: ConfigurationRequest<'_>,
) -> anyhow::Result<Exit> {
    let mut settings = configuration.settings()?;
    check_conflicts(&settings)?;
    check_owner(&settings)?;
    settings.audit.new_record = arguments.new_record;
    settings.audit.accept_lost_heads = arguments.accept_lost_heads;
    let runtime = runtime()?;
    let log = log::start(&settings)?;
    configuration.warn_without_home(&settings);
    take_descriptors();
    let end = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let mut running = match serve::start(&settings).await {
            Ok(running) => running,
            Err(error) => return Err(with_advice(error, &settings).await),
        };
        warn_of_closed_certificate(&settings);
        warn_of_unused_authority(&settings);
        open_control(&mut running, "serve");
        // stdout may be closed.
        unless_closed(report_start(&settings, &running))?;
        notify_manager(NotifyState::Ready);
        warn_of_shortages(&settings);
        while signals.next().await == SignalRequest::Reload {
            if let Some(settings) = running.reload(|| Ok(configuration.settings()?)) {
                warn_of_shortages(settings);
                log.set_filter(&settings.log);
            }
        }
        notify_manager(NotifyState::Stopping);
        running.drain(signals.stop()).await;
        tracing::info!("stopping");
        running.stop(signals.stop()).await;
        tracing::info!("stopped");
        Ok(Exit::Done)
    });
    // A name lookup that hangs cannot be cancelled, and no one waits for its result.
    runtime.shutdown_background();
    end
}

/// Notifies the service manager that started this process, if there is one
/// (sd_notify(3), `Type=notify`).
fn notify_manager(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager cannot be notified (NOTIFY_SOCKET)");
    }
}

/// Raises the soft limit on file descriptors to the hard limit.
///
/// Most systems set the soft limit to 1024, which is below `proxy.max_connections`. An
/// origin that cannot be reached for lack of a descriptor would count as unreachable.
fn take_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, all) {
        tracing::warn!(%error, limit = limit.current, "the limit of descriptors cannot be raised");
    }
}

/// Warns if crawlers that run as other users cannot read the certificate that they have
/// to trust.
fn warn_of_closed_certificate(settings: &Settings) {
    // Without interception, crawlers need not trust the authority.
    if settings.connect.mode == HttpsMode::Refuse {
        return;
    }
    let commands: Vec<_> = closed_to_others(&settings.ca.cert)
        .into_iter()
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

/// Reports where the proxy listens: as lines to paste, or as an event if the log is for
/// programs and stdout is not a terminal.
fn report_start(settings: &Settings, running: &RunningProxy) -> std::io::Result<()> {
    if settings.log.format != LogFormat::Json || std::io::stdout().is_terminal() {
        return announce(settings, running);
    }
    let listen: Vec<_> = running.listen.iter().map(ToString::to_string).collect();
    let value = |key: &str| settings.values.get(key).unwrap_or_default();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = listen.join(" "),
        admin = %running.admin,
        configuration = settings.file.as_deref().map(plain_path),
        mode = value("enforcement.mode").trim_matches('"'),
        profile = value("pace.profile").trim_matches('"'),
        record = plain_path(&settings.audit.path),
        "started"
    );
    Ok(())
}

/// Prints the addresses, the main settings, and a command to try.
fn announce(settings: &Settings, running: &RunningProxy) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for listen in &running.listen {
        writeln!(
            out,
            "politesse {} listens on {listen}",
            env!("CARGO_PKG_VERSION")
        )?;
    }
    let pages = admin_url(settings, &running.admin, "");
    writeln!(out, "dashboard, health and metrics on {pages}")?;
    if let Some(path) = running.sign_in_path() {
        let link = admin_url(settings, &running.admin, &path);
        writeln!(out, "to sign in, once and within ten minutes: {link}")?;
    }
    writeln!(out, "for another link: {}", command("dashboard"))?;
    out.write_all(in_force(settings).as_bytes())?;
    // Without TLS the line is shorter, and depends on no name in the certificate.
    let mut listeners = running.listen.iter();
    let plain = listeners.find(|listen| listen.scheme == Scheme::Http);
    if let Some(listen) = plain.or(running.listen.first()) {
        writeln!(out, "try: {}", curl_line(settings, listen))?;
    }
    out.flush()?;
    Ok(())
}

/// Returns lines that name the configuration, record and authority in use.
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

/// Returns a command that fetches a page through the proxy at `listen`: from a host
/// that the configuration resolves, or from example.com.
fn curl_line(settings: &Settings, listen: &ListenAddress) -> String {
    let intercepts = settings.connect.mode == HttpsMode::Intercept;
    let usual_port = if intercepts { 443 } else { 80 };
    // A host of the configuration works without the internet, as in a test or a demo; a
    // usual port makes the line shorter.
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
    let proxy = proxy_options(settings, listen);
    format!("curl {proxy}{ca} {scheme}://{host}{shown_port}/")
}

/// Returns the options that make curl use the proxy at `listen`.
fn proxy_options(settings: &Settings, listen: &ListenAddress) -> String {
    let (scheme, address) = (listen.scheme.as_str(), reachable(&listen.address));
    let mut options = format!("--proxy {scheme}://{address}");
    if let (Scheme::Https, Some(cert)) = (listen.scheme, &settings.listener.tls.cert) {
        // A self-signed certificate is its own root.
        let path = shell_quoted(&plain_path(cert));
        options.push_str(&format!(" --proxy-cacert {path}"));
    }
    if settings.exchange.request.auth == AuthMode::Required {
        options.push_str(" --proxy-user NAME:TOKEN");
    }
    options
}

/// Warns if the working directory has an authority that an earlier version would have
/// used: crawlers that trust it would fail without explanation.
fn warn_of_unused_authority(settings: &Settings) {
    let here = Path::new("certs/ca.key");
    let is_other = || here.canonicalize().ok() != settings.ca.key.canonicalize().ok();
    if settings.file.is_none() && here.exists() && is_other() {
        tracing::warn!(
            "certs/ and data/ of this folder are not in use: `politesse --here` uses them"
        );
    }
}

/// Returns a path without links and `..`. The file exists by now.
fn plain_path(path: &Path) -> String {
    path.canonicalize()
        .unwrap_or_else(|_| path.to_owned())
        .display()
        .to_string()
}
