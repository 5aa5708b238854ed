//! `ca trust`: prints the lines that make a client trust the authority. For the system
//! and for Chromium, it can also execute and undo them.
//!
//! Does not know the contents of a certificate.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::output::{Exit, Usage, print};
use politesse_base::command_line::command;
use politesse_base::inert::shell_quoted;
use politesse_proxy::ca::{Options, RootCertificate};

/// Names of the roots in trust stores. A changed root replaces the former one of the
/// same name; the second name is used while two roots are in use.
const NAMES: [&str; 2] = ["politesse", "politesse-next"];

/// Folder for additional roots of a system, and the program that installs them.
struct RootStore {
    /// Folder that a new root is copied into.
    folder: &'static str,
    /// Command that adds the roots in the folder to the store.
    update: &'static str,
    /// File with all roots of the store.
    bundle: &'static str,
}

/// Debian and related systems, then Red Hat and related systems.
const ROOT_STORES: [RootStore; 2] = [
    RootStore {
        folder: "/usr/local/share/ca-certificates",
        update: "update-ca-certificates",
        bundle: "/etc/ssl/certs/ca-certificates.crt",
    },
    RootStore {
        folder: "/etc/pki/ca-trust/source/anchors",
        update: "update-ca-trust",
        bundle: "/etc/pki/tls/certs/ca-bundle.crt",
    },
];

/// Arguments of `ca trust`.
#[derive(Debug, Args)]
pub(super) struct TrustArguments {
    /// Client that should trust the certificate.
    #[arg(long = "for", value_name = "CLIENT")]
    client: TrustingClient,
    /// Executes the lines; for `system` (as root) and `chromium`.
    #[arg(long, conflicts_with = "undo")]
    apply: bool,
    /// Undoes them; for `system` (as root) and `chromium`.
    #[arg(long)]
    undo: bool,
}

/// Client that may trust the authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TrustingClient {
    Curl,
    Python,
    Node,
    Java,
    Chromium,
    Firefox,
    System,
}

impl TrustingClient {
    /// Returns the word that selects the client.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Python => "python",
            Self::Node => "node",
            Self::Java => "java",
            Self::Chromium => "chromium",
            Self::Firefox => "firefox",
            Self::System => "system",
        }
    }
}

/// Prints the lines for a client, or executes them. `roots` must be the roots of
/// `files`.
pub(super) fn trust(
    arguments: &TrustArguments,
    roots: &[RootCertificate],
    files: &Options,
) -> anyhow::Result<Exit> {
    let paths = [files.cert.clone(), files.next().cert];
    let roots: Vec<TrustedRoot<'_>> = std::iter::zip(roots, NAMES)
        .zip(paths)
        .map(|((root, name), path)| TrustedRoot {
            root,
            name,
            cert: path.canonicalize().unwrap_or(path),
        })
        .collect();
    let done = match (arguments.client, arguments.apply, arguments.undo) {
        (client, false, false) => lines(client, &roots),
        (TrustingClient::System, true, _) => add_to_system(&roots)?,
        (TrustingClient::System, ..) => remove_from_system()?,
        (TrustingClient::Chromium, true, _) => add_to_chromium(&roots)?,
        (TrustingClient::Chromium, ..) => remove_from_chromium()?,
        (client, ..) => {
            let text = format!(
                "--apply and --undo are for `system` and `chromium`. For this client paste:\n{}",
                lines(client, &roots)
            );
            return Err(Usage::Arguments(text).into());
        }
    };
    print(&done)
}

/// Root with its name in trust stores and its file.
struct TrustedRoot<'a> {
    /// The root.
    root: &'a RootCertificate,
    /// Name of the root in trust stores.
    name: &'static str,
    /// File that begins with this root. The first root's file also holds the second,
    /// for clients that read a whole file.
    cert: PathBuf,
}

impl TrustedRoot<'_> {
    /// Returns the path of the file, quoted for a shell.
    fn file(&self) -> String {
        shell_quoted(&self.cert.display().to_string())
    }
}

/// Returns the lines that make `client` trust the authority.
fn lines(client: TrustingClient, roots: &[TrustedRoot<'_>]) -> String {
    let file = roots.first().map(TrustedRoot::file).unwrap_or_default();
    match client {
        TrustingClient::Curl => format!("export CURL_CA_BUNDLE={file}\n"),
        TrustingClient::Python => {
            format!("export REQUESTS_CA_BUNDLE={file} SSL_CERT_FILE={file} PIP_CERT={file}\n")
        }
        TrustingClient::Node => {
            format!("export NODE_USE_ENV_PROXY=1 NODE_EXTRA_CA_CERTS={file}\n")
        }
        TrustingClient::Java => java_lines(roots),
        TrustingClient::Chromium => {
            let known = roots.iter().filter_map(|one| one.root.spki_hash());
            let hashes: Vec<_> = known.collect();
            format!(
                "# once, with a profile of its own:\n\
                 chromium --user-data-dir=FOLDER --ignore-certificate-errors-spki-list={}\n\
                 # for good:\n\
                 {}\n",
                hashes.join(","),
                command("ca trust --for chromium --apply")
            )
        }
        TrustingClient::Firefox => {
            let files = roots.iter().map(|one| one.cert.display().to_string());
            let paths: Vec<_> = files.collect();
            let policies = json!({ "policies": { "Certificates": { "Install": paths } } });
            // `set -C` keeps existing policies from being overwritten.
            format!(
                "# as root; add to the file by hand if it is there already\n\
                 mkdir -p /etc/firefox/policies\n\
                 (set -C; echo {} >/etc/firefox/policies/policies.json)\n",
                shell_quoted(&policies.to_string())
            )
        }
        TrustingClient::System => system_lines(roots),
    }
}

/// Returns the lines for Java, which reads only the first certificate of a file.
fn java_lines(roots: &[TrustedRoot<'_>]) -> String {
    let imports = roots.iter().map(|one| {
        format!(
            "keytool -importcert -noprompt -alias {} -file {} -keystore trust.p12 \
             -storepass changeit\n",
            one.name,
            one.file()
        )
    });
    imports.collect::<String>()
        + "export JAVA_TOOL_OPTIONS=\"-Djavax.net.ssl.trustStore='$PWD/trust.p12'\"\n"
}

/// Returns the line for the system, whose files have one certificate each.
fn system_lines(roots: &[TrustedRoot<'_>]) -> String {
    let store = root_store().unwrap_or(&ROOT_STORES[0]);
    let installs = roots.iter().map(|one| {
        let (file, to) = (one.file(), file_in(store, one.name));
        match roots.len() {
            1 => format!("install -m 644 {file} {} && ", to.display()),
            // The first root's file has two, of which this takes the first.
            _ => format!("openssl x509 -in {file} -out {} && ", to.display()),
        }
    });
    installs.collect::<String>() + store.update + "\n"
}

/// Reports whether `client` trusts the authority, as far as this environment shows;
/// `None` if it does not show.
pub(super) fn is_trusted(client: TrustingClient, ca: &RootCertificate) -> Option<bool> {
    let has_ca = |path: PathBuf| fs::read_to_string(path).is_ok_and(|text| has(&text, ca));
    let named = |variables: &[&str]| {
        let mut set = variables.iter().filter_map(std::env::var_os);
        set.next().map(PathBuf::from)
    };
    let system = || root_store().map(|store| PathBuf::from(store.bundle));
    match client {
        TrustingClient::Java | TrustingClient::Firefox => None,
        TrustingClient::Chromium => is_trusted_by_chromium(ca),
        TrustingClient::System => system().map(has_ca),
        TrustingClient::Curl => named(&["CURL_CA_BUNDLE", "SSL_CERT_FILE"])
            .or_else(system)
            .map(has_ca),
        // Both have roots of their own, which they use if no variable is set.
        TrustingClient::Python => named(&["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"]).map(has_ca),
        TrustingClient::Node => named(&["NODE_EXTRA_CA_CERTS"]).map(has_ca),
    }
}

/// Reports whether Chromium's database contains the authority, trusted for servers.
fn is_trusted_by_chromium(ca: &RootCertificate) -> Option<bool> {
    let text = |arguments: &[&str]| {
        let output = certutil(arguments).ok()?.output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let listed = text(&["-L"])?;
    let is_server_root = |name: &&str| {
        listed.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            matches!(words[..], [found, flags] if found == *name && flags.starts_with('C'))
        })
    };
    let mut names = NAMES.iter().filter(|name| is_server_root(name));
    Some(names.any(|name| text(&["-L", "-n", name, "-a"]).is_some_and(|pem| has(&pem, ca))))
}

/// Reports whether `text`, certificates in PEM, contains the authority's.
fn has(text: &str, ca: &RootCertificate) -> bool {
    let plain = |text: &str| text.split_whitespace().collect::<String>();
    plain(text).contains(&plain(ca.pem()))
}

/// Finds the root store of this system; `None` if it has none of [`ROOT_STORES`].
fn root_store() -> Option<&'static RootStore> {
    let is_there = |store: &&RootStore| Path::new(store.folder).is_dir();
    ROOT_STORES.iter().find(is_there)
}

/// Returns the path of a root's file in a store.
fn file_in(store: &RootStore, name: &str) -> PathBuf {
    Path::new(store.folder).join(format!("{name}.crt"))
}

fn add_to_system(roots: &[TrustedRoot<'_>]) -> anyhow::Result<String> {
    let store = root_store().context(
        "no folder for roots is known here: the package ca-certificates provides \
         /usr/local/share/ca-certificates",
    )?;
    // A second root from an earlier rotation may no longer be in use.
    remove_files(store)?;
    let mut files = Vec::new();
    for one in roots {
        let file = file_in(store, one.name);
        fs::write(&file, one.root.pem())
            .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o644)))
            .map_err(|error| change_error(error, &file))?;
        files.push(file.display().to_string());
    }
    update(store)?;
    Ok(format!(
        "the system trusts the CA now ({}). To undo: {}\n",
        files.join(", "),
        command("ca trust --for system --undo")
    ))
}

fn remove_from_system() -> anyhow::Result<String> {
    let Some(store) = root_store() else {
        return Ok(
            "the system has no folder for roots, so there is nothing to remove\n".to_owned(),
        );
    };
    let text = remove_files(store)?;
    // An earlier attempt may have failed before this step.
    update(store)?;
    Ok(text)
}

/// Removes the files of all roots. Returns lines that name the removed files.
fn remove_files(store: &RootStore) -> anyhow::Result<String> {
    let mut removed = String::new();
    for file in NAMES.map(|name| file_in(store, name)) {
        match fs::remove_file(&file) {
            Ok(()) => removed += &format!("removed {}\n", file.display()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(change_error(error, &file)),
        }
    }
    if removed.is_empty() {
        removed = format!("{} is not there\n", file_in(store, NAMES[0]).display());
    }
    Ok(removed)
}

/// Adds to an error which file cannot be changed, and the advice to be root if that helps.
fn change_error(error: io::Error, file: &Path) -> anyhow::Error {
    let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
    let advice = if is_denied { ": run this as root" } else { "" };
    anyhow::Error::new(error).context(format!("cannot change {}{advice}", file.display()))
}

/// Runs the program that installs the files of the store.
fn update(store: &RootStore) -> anyhow::Result<()> {
    // `su` leaves root's program folders out of PATH.
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(store.update)
        .env("PATH", format!("{path}:/usr/sbin:/usr/bin"))
        .output()
        .with_context(|| format!("cannot run {}", store.update))?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed: {text}", store.update);
    Ok(())
}

/// Returns the folder of the database that Chromium reads.
///
/// # Errors
///
/// HOME is not set.
fn chromium_database() -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("HOME").context("HOME is not set, so Chromium has no database")?;
    Ok(Path::new(&home).join(".pki/nssdb"))
}

/// Returns a call of NSS's certutil for Chromium's database, with `arguments`.
fn certutil(arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new("certutil");
    command
        .arg("-d")
        .arg(format!("sql:{}", chromium_database()?.display()))
        .args(arguments);
    Ok(command)
}

fn add_to_chromium(roots: &[TrustedRoot<'_>]) -> anyhow::Result<String> {
    let folder = chromium_database()?;
    if !folder.join("cert9.db").exists() {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        run_certutil(&["-N", "--empty-password"])?;
    }
    remove_from_chromium()?;
    for one in roots {
        // certutil takes the first certificate of a file with two.
        let cert = one.cert.display().to_string();
        run_certutil(&["-A", "-t", "C,,", "-n", one.name, "-i", &cert])?;
    }
    Ok(format!(
        "Chromium trusts the CA now ({}). To undo: {}\n",
        folder.display(),
        command("ca trust --for chromium --undo")
    ))
}

fn remove_from_chromium() -> anyhow::Result<String> {
    let mut removed = 0;
    if chromium_database()?.join("cert9.db").exists() {
        // Fails if the database cannot be read, which must not pass for "not there".
        run_certutil(&["-L"])?;
        // Several authorities may have the name, and certutil removes one at a time.
        for name in NAMES {
            while run_certutil(&["-L", "-n", name]).is_ok() {
                run_certutil(&["-D", "-n", name])?;
                removed += 1;
            }
        }
    }
    Ok(match removed {
        0 => "Chromium does not have the CA\n".to_owned(),
        _ => "removed the CA from Chromium\n".to_owned(),
    })
}

fn run_certutil(arguments: &[&str]) -> anyhow::Result<()> {
    let output = match certutil(arguments)?.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("certutil is missing: install libnss3-tools (nss-tools on Red Hat)")
        }
        output => output.context("cannot run certutil")?,
    };
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "certutil failed: {}",
        text.trim_end()
    );
    Ok(())
}
