//! `demo`: a site to crawl and a proxy that knows it, in a temporary folder,
//! until Ctrl-C.

mod site;

use std::fs::DirBuilder;
use std::io::{self, ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use self::site::{ROBOTS_TXT, Site, SiteAddresses};
use super::start::{Signals, open_control, shell_quoted};
use super::{Exit, log, runtime};
use crate::config::{Config, Sources};
use crate::serve::{self, RunningProxy};

/// Port of a proxy, and the next one for its admin side, if they are free.
const PORT: u16 = 3128;
/// Folders of demos that did not end by themselves.
const LEFT_BEHIND_MAX: u32 = 100;

/// Runs the site and the proxy until SIGINT or SIGTERM; `overrides` are what
/// stood after each `--set`.
pub(super) fn demo(overrides: &[String]) -> anyhow::Result<Exit> {
    let folder = Folder::create()?;
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
    let file = folder.join("politesse.toml");
    let wanted = Ports {
        proxy: usual_or_free(PORT),
        admin: usual_or_free(PORT + 1),
    };
    let text = configuration(addresses, wanted);
    // For the commands of the other terminal, which read it.
    std::fs::write(&file, &text)?;
    let config = Config::read(&Sources {
        file: Some((file, text)),
        environment: Vec::new(),
        overrides,
        working_directory: folder.to_owned(),
        data_directory: None,
    });
    let config = config.map_err(super::Usage::from)?;
    let _log = log::start(config.settings())?;
    let mut signals = Signals::new()?;
    let mut running = serve::start(config.settings()).await?;
    open_control(&mut running, "demo");
    print_lines(folder, &running)?;
    tokio::select! {
        ended = site.serve() => ended?,
        () = signals.stop() => {}
    }
    running.stop(signals.stop()).await;
    Ok(())
}

/// Ports of the proxy on loopback.
#[derive(Debug, Clone, Copy)]
struct Ports {
    proxy: u16,
    admin: u16,
}

/// `port`, or 0 for any free one if it is taken.
fn usual_or_free(port: u16) -> u16 {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => port,
        Err(_) => 0,
    }
}

fn configuration(site: SiteAddresses, ports: Ports) -> String {
    let SiteAddresses { plain, secure } = site;
    let Ports { proxy, admin } = ports;
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

[log]
format = "pretty"
"#
    )
}

fn print_lines(folder: &Path, running: &RunningProxy) -> anyhow::Result<()> {
    let proxy = running.listen.first().context("proxy.listen is empty")?;
    let quoted = |path: &Path| shell_quoted(&path.display().to_string());
    let rules: String = ROBOTS_TXT
        .lines()
        .map(|line| format!("    {line}\n"))
        .collect();
    let ca = quoted(&folder.join("certs/ca.pem"));
    let program = quoted(&std::env::current_exe().unwrap_or_else(|_| "politesse".into()));
    let program = format!(
        "{program} --config {}",
        quoted(&folder.join("politesse.toml"))
    );
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

  # what is on record, and whether it still holds
  {program} audit list
  {program} audit show 1
  {program} audit verify

What the shop is asked for, and what the proxy decides:
"
    )?;
    Ok(out.flush()?)
}

/// A folder for the user alone, gone when the demo ends.
struct Folder(PathBuf);

impl Folder {
    fn create() -> anyhow::Result<Self> {
        let all = std::env::temp_dir();
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        for number in 0..LEFT_BEHIND_MAX {
            let path = all.join(format!("politesse-demo-{}-{number}", std::process::id()));
            match builder.create(&path) {
                Ok(()) => return Ok(Self(path)),
                // Of a demo that was killed, and had our process id.
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

impl Drop for Folder {
    fn drop(&mut self) {
        // Left behind it holds nothing that matters.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
