//! Environment of the command: variables that name the proxy, and files that
//! lead clients to trust its certificate authority.
//!
//! Does not know how the command is started or which proxy serves it.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::cli::start::reachable;
use crate::config::Settings;
use crate::proxy::ca::Ca;
use crate::proxy::connect::Mode;

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

/// Changes to the environment of the command. Dropping it removes the files that
/// its variables name, so it is kept until the command has ended.
pub(super) struct Environment {
    /// Variables to set.
    pub(super) set: Vec<(OsString, OsString)>,
    /// Variables to remove.
    pub(super) remove: Vec<OsString>,
    /// Keeps the file of roots while the command runs.
    _bundle: Option<Bundle>,
}

impl Environment {
    /// Builds the environment for a command whose proxy listens on `proxy`.
    ///
    /// # Errors
    ///
    /// A certificate authority that cannot be read, or a file of roots that
    /// cannot be written.
    pub(super) fn new(settings: &Settings, proxy: SocketAddr) -> anyhow::Result<Self> {
        let bundle = Bundle::new(settings)?;
        let url = format!("http://{}", reachable(&proxy));
        let mut set: Vec<(OsString, OsString)> = PROXY_VARIABLES
            .iter()
            .map(|name| (name.into(), (&url).into()))
            .collect();
        if let Some(bundle) = &bundle {
            let path = || bundle.path.clone().into_os_string();
            set.extend(BUNDLE_VARIABLES.iter().map(|name| (name.into(), path())));
            let cert = settings.ca.cert.clone().into_os_string();
            set.push(("NODE_EXTRA_CA_CERTS".into(), cert));
            set.push(("NODE_USE_ENV_PROXY".into(), "1".into()));
        }
        Ok(Self {
            set,
            remove: BYPASS_VARIABLES.iter().map(OsString::from).collect(),
            _bundle: bundle,
        })
    }
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
