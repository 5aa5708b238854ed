//! Proxy in a process of its own, and requests to its admin listener.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail};

/// Time limit for a start, in which the proxy verifies the end of a long record.
const START_MAX: Duration = Duration::from_secs(60);
/// Ticks a second in `/proc` (`USER_HZ`), on every architecture of Linux except Alpha.
const TICKS: f64 = 100.0;

/// Running proxy, which is killed on drop.
pub(crate) struct Proxy {
    child: Child,
    /// Address for crawlers.
    pub(crate) address: SocketAddr,
    /// Address of the admin listener.
    pub(crate) admin: SocketAddr,
    /// Token of the admin listener.
    pub(crate) token: String,
}

impl Proxy {
    /// Starts the proxy in `folder`, with the record `audit.db` of that folder and
    /// these settings.
    ///
    /// # Errors
    ///
    /// If the proxy does not start in time. The error contains its log.
    pub(crate) fn start(folder: &Path, settings: &[String]) -> anyhow::Result<Self> {
        let place = folder.display();
        let usual = [
            "proxy.listen=[\"127.0.0.1:0\"]".to_owned(),
            "admin.listen=\"127.0.0.1:0\"".to_owned(),
            format!("admin.token_file=\"{place}/admin-token\""),
            "https.mode=\"refuse\"".to_owned(),
            format!("audit.store=\"sqlite:{place}/audit.db\""),
        ];
        let mut command = Command::new(env!("CARGO_BIN_EXE_politesse"));
        for setting in usual.iter().chain(settings) {
            command.arg("--set").arg(setting);
        }
        let banner = folder.join("banner");
        command
            .arg("serve")
            .current_dir(folder)
            .env("HOME", folder)
            .env_remove("POLITESSE_CONFIG")
            .env_remove("XDG_DATA_HOME")
            .stdin(Stdio::null())
            .stdout(fs::File::create(&banner)?)
            .stderr(fs::File::create(folder.join("log"))?);
        let mut proxy = Self {
            child: command.spawn()?,
            address: SocketAddr::from(([0; 4], 0)),
            admin: SocketAddr::from(([0; 4], 0)),
            token: String::new(),
        };
        let pause = Duration::from_millis(50);
        for _ in 0..START_MAX.as_millis() / pause.as_millis() {
            let text = fs::read_to_string(&banner)?;
            let mut addresses = text.lines().filter_map(|line| {
                let (_, rest) = line.split_once("http://")?;
                let end = rest.find(|other: char| !other.is_ascii_digit() && !".:".contains(other));
                rest[..end.unwrap_or(rest.len())].parse().ok()
            });
            if let (Some(address), Some(admin)) = (addresses.next(), addresses.next()) {
                (proxy.address, proxy.admin) = (address, admin);
                let token = fs::read_to_string(folder.join("admin-token"))?;
                token.trim().clone_into(&mut proxy.token);
                return Ok(proxy);
            }
            sleep(pause);
        }
        let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
        bail!("the proxy does not start: {log}")
    }

    /// Requests `target` from the admin listener, with its token. Returns the whole
    /// answer, head and body.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub(crate) fn get(&self, target: &str) -> anyhow::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.admin)?;
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            self.admin, self.token
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    }

    /// Returns the CPU time of the process in seconds: user and system time together.
    ///
    /// # Errors
    ///
    /// If `/proc` does not have it.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The program name, in brackets, may contain spaces: see proc_pid_stat(5).
        let (_, fields) = text.rsplit_once(") ").context("a name")?;
        let times = fields.split(' ').skip(11).take(2);
        let ticks: Result<Vec<u64>, _> = times.map(str::parse).collect();
        Ok(ticks?.iter().sum::<u64>() as f64 / TICKS)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
