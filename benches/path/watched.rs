//! Proxy in a process of its own, run by a tool that counts what it does.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::kinds::ExchangeKind;
use crate::load::HOST;
use crate::origin::OriginAddresses;

/// Time limit for a start and for a stop: under callgrind each takes seconds, and half
/// a minute on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Program that counts instructions or system calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Callgrind,
    Strace,
}

impl Tool {
    fn package(self) -> &'static str {
        match self {
            Self::Callgrind => "valgrind",
            Self::Strace => "strace",
        }
    }

    /// Checks that the tool can be run here.
    ///
    /// # Errors
    ///
    /// If it is not installed.
    pub(crate) async fn check(self) -> anyhow::Result<()> {
        let package = self.package();
        let mut command = Command::new(package);
        command.arg("--version").stdout(Stdio::null());
        let status = command.status().await;
        if status.is_ok_and(|status| status.success()) {
            return Ok(());
        }
        bail!("{package} is not installed; on Debian: apt-get install {package}")
    }

    fn command(self, output: &str) -> Command {
        let mut command = Command::new(self.package());
        match self {
            Self::Callgrind => command
                .arg("--tool=callgrind")
                .arg(format!("--callgrind-out-file={output}")),
            Self::Strace => command.args(["-f", "-c", "-o", output]),
        };
        command
    }
}

/// Running proxy, watched by a tool.
pub(crate) struct WatchedProxy {
    tool: Tool,
    child: Child,
    folder: TempDir,
    /// Address for crawlers.
    pub(crate) address: SocketAddr,
    /// Certificate of the proxy's CA.
    pub(crate) authority_pem: String,
}

/// Settings of the proxy to measure.
pub(crate) struct Site<'a> {
    pub(crate) kind: &'static ExchangeKind,
    pub(crate) origin: OriginAddresses,
    /// Certificate of the origin's CA.
    pub(crate) authority_pem: &'a str,
}

impl WatchedProxy {
    /// Starts the proxy in a folder of its own.
    ///
    /// # Errors
    ///
    /// If the proxy does not start. The error contains its log.
    pub(crate) async fn start(tool: Tool, site: &Site<'_>) -> anyhow::Result<Self> {
        let mut builder = tempfile::Builder::new();
        // The record refuses a folder that other users may write to.
        builder.permissions(Permissions::from_mode(0o700));
        let folder = builder.tempdir()?;
        fs::write(folder.path().join("roots.pem"), site.authority_pem)?;
        let mut command = tool.command(&folder.path().join("counts").to_string_lossy());
        command.arg(env!("CARGO_BIN_EXE_politesse"));
        for setting in settings(site, folder.path()) {
            command.arg("--set").arg(setting);
        }
        command
            .arg("serve")
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .env_remove("POLITESSE_CONFIG")
            .env_remove("XDG_DATA_HOME")
            // With several threads, work that one takes from another would differ from
            // run to run.
            .env("TOKIO_WORKER_THREADS", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.path().join("log"))?)
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let banner = timeout(PATIENCE, banner(&mut child)).await;
        let log = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        let banner = banner.with_context(log)?.with_context(log)?;
        let line = banner.lines().find(|line| line.starts_with("politesse "));
        let (_, address) = line
            .and_then(|line| line.rsplit_once("http://"))
            .with_context(log)?;
        Ok(Self {
            tool,
            child,
            address: address.parse()?,
            authority_pem: fs::read_to_string(folder.path().join("ca.pem")).context("ca.pem")?,
            folder,
        })
    }

    /// Stops the proxy, and returns the output of the tool.
    ///
    /// # Errors
    ///
    /// If the proxy does not stop in time, or fails.
    pub(crate) async fn stop(mut self) -> anyhow::Result<String> {
        let pid = self.pid().context("the proxy has ended")?;
        kill_process(pid, Signal::TERM)?;
        let status = timeout(PATIENCE, self.child.wait()).await??;
        let log = fs::read_to_string(self.folder.path().join("log"))?;
        ensure!(status.success(), "{status}: {log}");
        fs::read_to_string(self.folder.path().join("counts")).context("no counts")
    }

    /// Returns the process ID of the proxy: valgrind becomes the proxy, strace starts
    /// it.
    fn pid(&self) -> Option<Pid> {
        let own = self.child.id()?;
        let pid = match self.tool {
            Tool::Callgrind => own,
            Tool::Strace => {
                let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
                children.ok()?.split(' ').next()?.parse().ok()?
            }
        };
        Pid::from_raw(i32::try_from(pid).ok()?)
    }
}

fn settings(site: &Site<'_>, folder: &Path) -> Vec<String> {
    let folder = folder.display();
    let OriginAddresses { plain, tls } = site.origin;
    vec![
        r#"proxy.listen=["127.0.0.1:0"]"#.to_owned(),
        r#"admin.listen="127.0.0.1:0""#.to_owned(),
        format!(r#"https.ca_cert="{folder}/ca.pem""#),
        format!(r#"https.ca_key="{folder}/ca.key""#),
        format!(r#"https.upstream_roots="{folder}/roots.pem""#),
        format!(r#"audit.store="sqlite:{folder}/data/audit.db""#),
        // Pacing would dominate the measurement.
        r#"pace.profile="owned""#.to_owned(),
        r#"pace.origin={in_flight=1000}"#.to_owned(),
        format!(r#"upstream.resolve={{"{HOST}:80"="{plain}","{HOST}:443"="{tls}"}}"#),
    ]
}

/// Returns the lines that the proxy prints once it listens, or fewer if it ends before
/// that.
async fn banner(child: &mut Child) -> anyhow::Result<String> {
    let output = child.stdout.take().context("its output is piped")?;
    let mut lines = BufReader::new(output).lines();
    let mut banner = String::new();
    while let Some(line) = lines.next_line().await? {
        banner.push_str(&line);
        banner.push('\n');
        if line.starts_with("try: ") {
            break;
        }
    }
    Ok(banner)
}
