//! `demo`: runs a site to crawl and a proxy that resolves its name, in a temporary
//! folder, until Ctrl-C.
//!
//! Does not know the user's configuration: it writes its own.

mod site;

use std::fs::DirBuilder;
use std::io::{self, ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use self::site::{ROBOTS_TXT, Site, SiteAddresses};
use super::audit;
use super::log;
use super::output::{Exit, Usage};
use super::process::{Signals, open_control, runtime};
use crate::config::{Config, ConfigSources};
use crate::serve::listening::ListenError;
use crate::serve::{self, RunningProxy};
use politesse_base::command_line::{Invocation, command};
use politesse_base::inert::shell_quoted;

/// Default port of the proxy; the admin listener has the next one.
const PORT: u16 = 3128;
/// Maximum number of folders left over from demos that were killed.
const LEFT_BEHIND_MAX: u32 = 100;

/// Runs the site and the proxy until SIGINT or SIGTERM. `overrides` are the values of
/// `--set`.
pub(super) fn demo(overrides: &[String]) -> anyhow::Result<Exit> {
    let folder = DemoFolder::create()?;
    let file = folder.path().join("politesse.toml");
    Invocation {
        file: Some(&file),
        here: None,
        overrides,
        variables: Vec::new(),
        search_path: std::env::var_os("PATH"),
    }
    .install();
    let runtime = runtime()?;
    let end = runtime.block_on(run(folder.path(), overrides));
    runtime.shutdown_background();
    end.map(|()| Exit::Done)
}

async fn run(folder: &Path, overrides: &[String]) -> anyhow::Result<()> {
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let site = Site::bind(SiteAddresses {
        plain: free,
        secure: free,
    })
    .await?;
    let addresses = site.addresses()?;
    std::fs::write(folder.join("site-ca.pem"), site.ca_pem())?;
    let configuration = DemoConfiguration {
        folder,
        site: addresses,
        overrides,
    };
    let config = configuration.write(DemoPorts {
        proxy: usual_or_free(PORT),
        admin: usual_or_free(PORT + 1),
    })?;
    let _log = log::start(config.settings())?;
    let mut signals = Signals::new()?;
    let mut running = configuration.start(&config).await?;
    open_control(&mut running, "demo");
    print_lines(folder, &running)?;
    let record = config.settings().audit.path.clone();
    // Ends with the process, or when stdout is closed.
    tokio::task::spawn_blocking(move || audit::follow(&record));
    tokio::select! {
        ended = site.serve() => ended?,
        () = signals.stop() => {}
    }
    running.stop(signals.stop()).await;
    Ok(())
}

/// Configuration of a demo, except its ports.
#[derive(Debug, Clone, Copy)]
struct DemoConfiguration<'a> {
    folder: &'a Path,
    site: SiteAddresses,
    /// Values of `--set`.
    overrides: &'a [String],
}

impl DemoConfiguration<'_> {
    /// Reads the configuration with `ports`, and writes it to a file for the commands
    /// that the user runs in another terminal.
    fn write(self, ports: DemoPorts) -> anyhow::Result<Config> {
        let file = self.folder.join("politesse.toml");
        let text = configuration(self.site, ports);
        std::fs::write(&file, &text)?;
        let read = Config::read(&ConfigSources {
            file: Some((file, text)),
            environment: Vec::new(),
            overrides: self.overrides,
            working_directory: self.folder.to_owned(),
            data_directory: None,
        });
        Ok(read.map_err(Usage::from)?)
    }

    /// Starts the proxy with `config`, or on any free ports if another program has
    /// taken one of its ports since they were checked.
    async fn start(self, config: &Config) -> anyhow::Result<RunningProxy> {
        match serve::start(config.settings()).await {
            Err(error) if is_port_taken(&error) => {
                let free = self.write(DemoPorts { proxy: 0, admin: 0 })?;
                serve::start(free.settings()).await
            }
            started => started,
        }
    }
}

/// Reports whether the start of a proxy failed because a port is in use.
fn is_port_taken(error: &anyhow::Error) -> bool {
    let source = error.downcast_ref::<ListenError>();
    source.is_some_and(|error| error.in_use().is_some())
}

/// Ports of the proxy on loopback.
#[derive(Debug, Clone, Copy)]
struct DemoPorts {
    proxy: u16,
    admin: u16,
}

/// Returns `port`, or 0 for any free port if it is in use.
fn usual_or_free(port: u16) -> u16 {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => port,
        Err(_) => 0,
    }
}

fn configuration(site: SiteAddresses, ports: DemoPorts) -> String {
    let SiteAddresses { plain, secure } = site;
    let DemoPorts { proxy, admin } = ports;
    format!(
        r#"[proxy]
listen = ["127.0.0.1:{proxy}"]
shutdown_timeout = "1s"

[admin]
listen = "127.0.0.1:{admin}"

[upstream.resolve]
"shop.test:80" = "{plain}"
"shop.test:443" = "{secure}"

[https]
# The site's own authority, in place of the system's roots.
upstream_roots = "site-ca.pem"

[audit]
# A signed head of the record at once, so that there is one to look at.
seal_entries = 1

[log]
format = "pretty"
"#
    )
}

fn print_lines(folder: &Path, running: &RunningProxy) -> anyhow::Result<()> {
    let listen = running.listen.first().context("proxy.listen is empty")?;
    let (proxy, admin) = (listen.address, running.admin);
    let path = running.sign_in_path().unwrap_or_default();
    let quoted = |path: &Path| shell_quoted(&path.display().to_string());
    let rules: String = ROBOTS_TXT
        .lines()
        .map(|line| format!("    {line}\n"))
        .collect();
    let ca = quoted(&folder.join("certs/ca.pem"));
    let mut out = io::stdout().lock();
    write!(
        out,
        "\
A shop, shop.test, and a proxy on http://{proxy} that knows where it is.
Both run until Ctrl-C. The shop's robots.txt:

{rules}
Try these in another terminal:

  # refused: line 3 of robots.txt
  curl -x http://{proxy} http://shop.test/basket

  # passed on, with the field Robots-Directives added
  curl -x http://{proxy} --cacert {ca} -i --suppress-connect-headers https://shop.test/lamp

  # refused: line 7, which is for this crawler alone
  curl -x http://{proxy} -A HungryBot/1.0 http://shop.test/lamp

  # what is on record, and whether it is intact
  {list}
  {show}
  {verify}

  # another link to the dashboard
  {dashboard}

What the proxy decides, and what the shop is asked for, follows here.
The dashboard shows it, too. This link signs in, once and within ten minutes, and
opens the decision of the first line above:

  http://{admin}{path}&to=/decisions/3

",
        list = command("audit list"),
        show = command("audit show 3"),
        verify = command("audit verify"),
        dashboard = command("dashboard"),
    )?;
    Ok(out.flush()?)
}

/// Folder that only the user can read. Dropping it removes it.
struct DemoFolder(PathBuf);

impl DemoFolder {
    fn create() -> anyhow::Result<Self> {
        let all = std::env::temp_dir();
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        for number in 0..LEFT_BEHIND_MAX {
            let path = all.join(format!("politesse-demo-{}-{number}", std::process::id()));
            match builder.create(&path) {
                Ok(()) => return Ok(Self(path)),
                // A killed demo with the same process ID left it behind.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot make {}", path.display()));
                }
            }
        }
        anyhow::bail!("{} is full of demos that were killed", all.display())
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        // A folder that remains contains nothing of the user's.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: another demo may start at the same moment.
    #[tokio::test]
    async fn a_port_taken_after_the_check_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let site = Site::bind(SiteAddresses {
            plain: free,
            secure: free,
        });
        let site = site.await.unwrap();
        std::fs::write(folder.path().join("site-ca.pem"), site.ca_pem()).unwrap();
        let configuration = DemoConfiguration {
            folder: folder.path(),
            site: site.addresses().unwrap(),
            overrides: &[],
        };
        let taken = TcpListener::bind(free).unwrap();
        let ports = DemoPorts {
            proxy: 0,
            admin: taken.local_addr().unwrap().port(),
        };
        let config = configuration.write(ports).unwrap();
        let running = configuration.start(&config).await.unwrap();
        assert_ne!(running.admin.port(), ports.admin);
        running.stop(std::future::pending()).await;
    }
}
