//! `ca`: creates, shows, prints and rotates the certificate authority, makes clients
//! trust it, and issues certificates to the nodes of a fleet.
//!
//! Does not know the contents of a certificate.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::configuration::check_owner;
use super::output::{Exit, print};
use super::trust::{TrustArguments, trust};
use crate::config::Settings;
use politesse_base::command_line::terminal_command;
use politesse_decision::digest::Digest;
use politesse_proxy::ca::{Ca, RootCertificate};
use politesse_proxy::ca_node::{NodeOrder, issue};
use politesse_proxy::ca_rotation::{Rotation, rotate};

/// Maximum length of a node's name. Its certificate has room for 64 characters (RFC
/// 5280, appendix A.1), including the fixed words and the date beside the name.
const NODE_LENGTH_MAX: usize = 32;

/// Commands of `ca`.
#[derive(Debug, Subcommand)]
pub(super) enum CaCommand {
    /// Creates the certificate and its key; never overwrites.
    #[command(after_help = "Example: politesse ca init")]
    Init,
    /// Shows the files, the fingerprint, and the end of validity.
    #[command(after_help = "\
Example: politesse ca show

`spki` is the SHA-256 of its public key, in base64. Chromium, Playwright and Puppeteer take
it with --ignore-certificate-errors-spki-list.")]
    Show,
    /// Prints the certificate that crawlers have to trust, in PEM.
    #[command(after_help = "Example: politesse ca export > ca.pem")]
    Export,
    /// Prints the lines that make a client trust the certificate.
    #[command(after_help = "\
Examples:
  eval \"$(politesse ca trust --for python)\"
  politesse ca trust --for system --apply")]
    Trust(TrustArguments),
    /// Creates another root beside the present one; a day later, retires the former.
    #[command(after_help = "\
Example: politesse ca rotate

The new root signs from a day after it is made. Until the next `politesse ca rotate`,
which removes the former one, `ca export`, `ca show`, `ca trust` and `run` include both.
Send SIGHUP to a running proxy after each of the two.")]
    Rotate,
    /// Creates a certificate and a key for a node of a fleet, signed by this root.
    #[command(after_help = "\
Example: politesse ca issue node1 --out node1

Copy node1/ca.pem and node1/ca.key to the node, to its https.ca_cert and https.ca_key.
Crawlers trust only the root (politesse ca export), and need not know the nodes. No
node needs the key of the root.")]
    Issue(IssueArguments),
}

/// Arguments of `ca issue`.
#[derive(Debug, Args)]
pub(super) struct IssueArguments {
    /// Name of the node: letters, digits, `.`, `_` and `-`.
    #[arg(value_parser = node_name)]
    node: String,
    /// Folder for ca.pem and ca.key; never overwritten. By default the name of the
    /// node.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Number of days until it expires, but never later than the root.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..))]
    days: u16,
}

fn node_name(text: &str) -> Result<String, String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let is_name = text.chars().all(is_part) && !text.starts_with('.');
    if is_name && (1..=NODE_LENGTH_MAX).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "a name of up to {NODE_LENGTH_MAX} letters, digits, `.`, `_` and `-` is wanted"
    ))
}

/// Runs a command of `ca`.
pub(super) fn authority(command: &CaCommand, settings: &Settings) -> anyhow::Result<Exit> {
    let load = || existing(settings);
    let (cert, key) = (settings.ca.cert.display(), settings.ca.key.display());
    match command {
        CaCommand::Init => {
            check_owner(settings)?;
            Ca::create(&settings.ca)?;
            print(&format!("made {cert} and {key}\n"))
        }
        CaCommand::Show => {
            let ca = load()?;
            let files = format!("certificate {cert}\nkey {key}\n");
            print(&(files + &described(&ca)))
        }
        CaCommand::Export => {
            let roots = existing_roots(settings)?;
            let pems: String = roots.iter().map(RootCertificate::pem).collect();
            print(&pems)
        }
        CaCommand::Trust(arguments) => trust(arguments, &existing_roots(settings)?, &settings.ca),
        CaCommand::Rotate => {
            check_owner(settings)?;
            load()?;
            take_step(settings)
        }
        CaCommand::Issue(arguments) => {
            load()?;
            issue_to_node(arguments, settings)
        }
    }
}

/// Reads the authority.
///
/// # Errors
///
/// The files cannot be used, or are missing; then the error says how to create them.
pub(super) fn existing(settings: &Settings) -> anyhow::Result<Ca> {
    Ca::load_existing(&settings.ca)?.with_context(|| no_authority(settings))
}

/// Reads the certificates that clients have to trust, without any key.
///
/// # Errors
///
/// The file cannot be used, or is missing; then the error says how to create it.
fn existing_roots(settings: &Settings) -> anyhow::Result<Vec<RootCertificate>> {
    let roots = RootCertificate::load_all(&settings.ca)?;
    ensure!(!roots.is_empty(), no_authority(settings));
    Ok(roots)
}

/// Takes the next step of a rotation, and prints the change.
fn take_step(settings: &Settings) -> anyhow::Result<Exit> {
    let next = settings.ca.next();
    let again = terminal_command("ca rotate");
    print(&match rotate(&settings.ca)? {
        Rotation::Begun(from) => format!(
            "made {} and {}\n\
             it signs from {from} on; until then have each client trust it as well: `{}` has both\n\
             then, to retire the former root: {again}\n\
             a running proxy reads them on SIGHUP\n",
            next.cert.display(),
            next.key.display(),
            terminal_command("ca export"),
        ),
        Rotation::Ended => format!(
            "the former root is gone, and the new one is in {} and {}\n\
             a running proxy reads them on SIGHUP\n",
            settings.ca.cert.display(),
            settings.ca.key.display(),
        ),
    })
}

fn no_authority(settings: &Settings) -> String {
    format!(
        "there is no CA yet, {} is not there: the first start of the proxy makes one, or `{}`",
        settings.ca.cert.display(),
        terminal_command("ca init")
    )
}

/// Describes the roots, and the certificate of the node if it has one.
fn described(ca: &Ca) -> String {
    let end = ca
        .ends_at()
        .and_then(|end| Timestamp::from_second(end).ok());
    let until = end.map(|end| format!("valid until {end}\n"));
    let node = ca.node().map(|node| {
        let digest = Digest::of(node);
        format!("node sha256 {digest}\n")
    });
    // Users compare the first digest: the root that crawlers trust.
    let roots: String = ca.roots().map(described_root).collect();
    let next = ca.next_signs_from().map(|from| {
        format!("the second signs from {from} on, in place of the first (politesse ca rotate)\n")
    });
    [Some(roots), next, node, until]
        .into_iter()
        .flatten()
        .collect()
}

fn described_root(root: &RootCertificate) -> String {
    let spki = root.spki_hash().map(|hash| format!("spki {hash}\n"));
    format!(
        "sha256 {}\n{}",
        root.fingerprint(),
        spki.unwrap_or_default()
    )
}

fn issue_to_node(arguments: &IssueArguments, settings: &Settings) -> anyhow::Result<Exit> {
    let chosen = arguments.out.clone();
    let folder = chosen.unwrap_or_else(|| PathBuf::from(&arguments.node));
    let days = u32::from(arguments.days);
    let order = NodeOrder {
        node: arguments.node.clone(),
        cert: folder.join("ca.pem"),
        key: folder.join("ca.key"),
        lifetime: Duration::from_secs(24 * 60 * 60) * days,
    };
    let until = issue(&settings.ca, &order)?;
    let (cert, key) = (order.cert.display(), order.key.display());
    print(&format!("made {cert} and {key}, valid until {until}\n"))
}
