//! `run -- CMD`: a command whose requests go through the proxy.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::inert::inert;
use super::start::{Signals, reachable};
use super::{Exit, Usage, runtime, start_logging};
use crate::audit::query::{AuditReader, Filter};
use crate::clock;
use crate::config::Settings;
use crate::proxy::ca::Ca;
use crate::proxy::connect::Mode;
use crate::rules::decision::{Reason, Verdict};
use crate::rules::record::{Effect, StoredRecord};
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
/// Refusals told by rule at the end; the audit has them all.
const RULES_TOLD: usize = 10;

/// Variables that name the proxy, in the spellings that clients look for.
const PROXY_VARIABLES: [&str; 6] = [
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
];
/// Variables that would lead a crawler round the proxy.
const BYPASS_VARIABLES: [&str; 2] = ["no_proxy", "NO_PROXY"];
/// Variables that replace a client's roots: the system's and ours together.
const BUNDLE_VARIABLES: [&str; 7] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
];
/// Where systems keep their roots.
const SYSTEM_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
];

/// Reads the configuration.
type Read<'a> = &'a dyn Fn() -> anyhow::Result<Settings>;

pub(super) fn run(run: &Run, read: Read<'_>) -> anyhow::Result<Exit> {
    let settings = read()?;
    start_logging(&quiet(&settings))?;
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
    let bundle = Bundle::new(settings)?;
    let (program, arguments) = run.command.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    let proxy = format!("http://{}", reachable(&listen));
    command.envs(PROXY_VARIABLES.map(|name| (name, &proxy)));
    BYPASS_VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    if let Some(bundle) = &bundle {
        command.envs(BUNDLE_VARIABLES.map(|name| (name, &bundle.path)));
        command.env("NODE_EXTRA_CA_CERTS", &settings.ca.cert);
        command.env("NODE_USE_ENV_PROXY", "1");
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

/// The system's roots and our CA in one file, gone when the command has ended.
struct Bundle {
    path: PathBuf,
}

impl Bundle {
    /// Nothing is intercepted with `https.mode = "refuse"`, so there is nothing
    /// to trust.
    fn new(settings: &Settings) -> anyhow::Result<Option<Self>> {
        if settings.connect.mode == Mode::Refuse {
            return Ok(None);
        }
        let ours = Ca::load(&settings.ca)?;
        let path = std::env::temp_dir().join(format!(
            "politesse-{}-{}.pem",
            std::process::id(),
            ours.fingerprint()
        ));
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            file.write_all(system_roots().as_bytes())?;
            file.write_all(b"\n")?;
            file.write_all(ours.pem().as_bytes())
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Some(Self { path }))
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        // Left behind it harms nobody: it holds certificates alone.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The roots that the command would have trusted without us.
fn system_roots() -> String {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    named
        .into_iter()
        .chain(SYSTEM_BUNDLES.map(PathBuf::from))
        .find_map(|path| std::fs::read_to_string(path).ok())
        .unwrap_or_default()
}

/// What was asked, refused and waited for since `began`, on stderr.
fn summary(audit: &Path, began: Timestamp) -> anyhow::Result<()> {
    let filter = Filter {
        from: Some(began),
        ..Filter::default()
    };
    let mut sums = Sums::default();
    AuditReader::open(audit)?.each(&filter, |record| {
        sums.add(&record);
        ControlFlow::Continue(())
    })?;
    let mut stderr = std::io::stderr().lock();
    for line in sums.lines() {
        let _ = writeln!(stderr, "politesse: {}", inert(&line));
    }
    Ok(())
}

/// The decisions of one run, counted.
#[derive(Default)]
struct Sums {
    allowed: u64,
    refused: u64,
    /// Forwarded in report mode, and refused without it.
    reported: u64,
    /// Put off by pace, and not sent.
    later: u64,
    wait_ms: u64,
    longest_ms: u64,
    /// By what was done, and why.
    by_reason: HashMap<(&'static str, String), u64>,
}

impl Sums {
    fn add(&mut self, record: &StoredRecord) {
        self.wait_ms += record.wait_ms;
        self.longest_ms = self.longest_ms.max(record.wait_ms);
        if record.ruling.verdict == "allow" {
            self.allowed += 1;
            return;
        }
        let (count, done) = if record.ruling.verdict == Verdict::Later.as_str() {
            (&mut self.later, "put off")
        } else if record.effect == Effect::Reported.as_str() {
            (&mut self.reported, "would refuse")
        } else {
            (&mut self.refused, "refused")
        };
        *count += 1;
        *self.by_reason.entry((done, why(record))).or_default() += 1;
    }

    fn lines(&self) -> Vec<String> {
        let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
        let reported = match self.reported {
            0 => String::new(),
            count => format!(", {count} reported (enforcement.mode)"),
        };
        let later = match self.later {
            0 => String::new(),
            count => format!(", {count} put off"),
        };
        let mut lines = vec![format!(
            "{} asked, {} allowed, {} refused{later}{reported}; waited {:.1} s in all, {:.1} s at most",
            self.allowed + self.refused + self.later + self.reported,
            self.allowed,
            self.refused,
            seconds(self.wait_ms),
            seconds(self.longest_ms)
        )];
        let mut reasons: Vec<_> = self.by_reason.iter().collect();
        reasons.sort_by_key(|(refused, count)| (std::cmp::Reverse(**count), *refused));
        let told = reasons.iter().take(RULES_TOLD);
        lines.extend(told.map(|((done, why), count)| format!("{done} {count} × {why}")));
        if reasons.len() > RULES_TOLD {
            lines.push(format!(
                "and by {} more rules: politesse audit list --verdict disallow",
                reasons.len() - RULES_TOLD
            ));
        }
        lines
    }
}

/// Why a request was refused or put off, the same for all that one rule refused.
fn why(record: &StoredRecord) -> String {
    if record.ruling.verdict == Verdict::Later.as_str() {
        return record.ruling.reason.clone();
    }
    let robots = record
        .snapshot
        .as_ref()
        .map(|snapshot| snapshot.url.as_str());
    match (&record.ruling.rule, record.ruling.line, robots) {
        (Some(rule), Some(line), Some(robots)) => format!("{rule} (line {line} of {robots})"),
        (_, _, Some(robots)) if record.ruling.reason != Reason::Override.as_str() => {
            format!("{} ({robots})", record.ruling.reason)
        }
        _ => record.ruling.reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::record::StoredRuling;

    fn row(verdict: &str, reason: &str) -> StoredRecord {
        StoredRecord {
            seq: 1,
            at: Timestamp::UNIX_EPOCH,
            client: "127.0.0.1".to_owned(),
            candidates: Vec::new(),
            user_agent: None,
            method: "GET".to_owned(),
            url: "http://a.test/".to_owned(),
            ruling: StoredRuling {
                verdict: verdict.to_owned(),
                reason: reason.to_owned(),
                line: Some(2),
                rule: Some("Allow: /".to_owned()),
                group: Vec::new(),
                crawler: None,
                reading: None,
                exception: None,
            },
            effect: Effect::Enforced.as_str().to_owned(),
            snapshot: None,
            policy: String::new(),
            wait_ms: 1500,
            status: None,
            directives: None,
            said: None,
            bytes: None,
            error: None,
        }
    }

    // Contract, section 1 (`run`): refused and waited for; what was put off is
    // neither allowed nor refused, and not for the rule that allowed it.
    #[test]
    fn what_was_put_off_is_counted_by_reason() {
        let mut sums = Sums::default();
        for row in [
            row("allow", "rule"),
            row("later", "backoff"),
            row("later", "backoff"),
        ] {
            sums.add(&row);
        }
        assert_eq!(
            sums.lines(),
            [
                "3 asked, 1 allowed, 0 refused, 2 put off; waited 4.5 s in all, 1.5 s at most",
                "put off 2 × backoff",
            ]
        );
    }
}
