//! `crawler`: makes a credential for a crawler, and lists the crawlers of the
//! configuration.
//!
//! The token is printed once; the configuration file stores its SHA-256. Does not know
//! how a client presents the token.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, Subcommand};
use serde_json::json;
use thiserror::Error;

use super::configuration::ConfigurationRequest;
use super::output::{Exit, OutputForm, Usage, print, print_notice};
use crate::config::Settings;
use politesse_base::clock;
use politesse_base::inert::inert;
use politesse_decision::digest::Digest;
use politesse_decision::inquiry::Identity;
use politesse_proxy::credentials::AuthMode;
use politesse_robots::crawler::ProductToken;

/// Titles of the columns.
const TITLES: [&str; 5] = ["NAMES", "CREDENTIAL", "USER-AGENT", "CLIENT", "MAX WAIT"];
/// Characters of a digest in a column, enough to tell two digests apart.
const DIGEST_CHARS: usize = 12;

/// Commands of `crawler`.
#[derive(Debug, Subcommand)]
pub(super) enum CrawlerCommand {
    /// Makes a token that proves a crawler's name, and prints it once.
    #[command(after_help = "\
Example: politesse crawler add FooBot --comment 'shop team'

The crawler sends it as user name and password of the proxy:
http://FooBot:TOKEN@127.0.0.1:3128. The configuration file gets an entry `[[crawler]]`
with the SHA-256 of the token; the token itself is not stored. A running proxy reads
the entry on SIGHUP. From then on the name cannot be used without a token. To replace
a token, add another, and remove the old entry when no client uses it.")]
    Add(CrawlerAddArguments),
    /// Lists the entries of `crawler`, in the order in which they are tried.
    #[command(after_help = "Example: politesse crawler list")]
    List(CrawlerListArguments),
}

/// Arguments of `crawler add`.
#[derive(Debug, Args)]
pub(super) struct CrawlerAddArguments {
    /// Product token of the crawler, such as FooBot; it is the user name.
    name: String,
    /// Text for the comment above the entry, such as the crawler's owner.
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

/// Arguments of `crawler list`.
#[derive(Debug, Args)]
pub(super) struct CrawlerListArguments {
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Reason why the entry was not written into the configuration file.
#[derive(Debug, Error)]
enum UnwrittenEntry {
    /// No configuration file exists.
    #[error("there is no configuration file")]
    NoFile,
    #[error("cannot write to {}", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error(
        "at the end of {} it would have no effect: `crawler` is a list there, or is set elsewhere",
        .0.display()
    )]
    NotInForce(PathBuf),
}

/// Runs a command of `crawler`.
pub(super) fn crawler(
    command: &CrawlerCommand,
    configuration: ConfigurationRequest<'_>,
) -> anyhow::Result<Exit> {
    match command {
        CrawlerCommand::Add(arguments) => add(arguments, configuration),
        CrawlerCommand::List(arguments) => list(arguments, &configuration.settings()?),
    }
}

fn add(
    arguments: &CrawlerAddArguments,
    configuration: ConfigurationRequest<'_>,
) -> anyhow::Result<Exit> {
    check(arguments)?;
    let settings = configuration.settings()?;
    let mut random = [0; 32];
    aws_lc_rs::rand::fill(&mut random)
        .map_err(|_| io::Error::other("the system gives no random numbers"))?;
    // Written like a digest: 64 digits in lower case.
    let token = Digest::from(random).to_string();
    let digest = Digest::of(token.as_bytes());
    let entry = entry(arguments, &digest);
    let name = &arguments.name;
    match append(&entry, &digest, configuration)? {
        Ok(path) => {
            let path = path.display();
            print_notice(&format!(
                "added {name} to {path}; a running proxy reads it on SIGHUP"
            ));
        }
        Err(error) => {
            let source = std::error::Error::source(&error);
            let cause = source.map_or_else(String::new, |source| format!(" ({source})"));
            print_notice(&format!(
                "{error}{cause}: add these lines to the configuration"
            ));
            // Lines to paste, so they have no prefix.
            let _ = io::stderr().lock().write_all(entry.as_bytes());
        }
    }
    if settings.exchange.request.auth == AuthMode::Off {
        print_notice("proxy.auth is \"off\": credentials are not checked");
    }
    print_notice(&format!(
        "user name {name}, and as the password this token, which is shown once:"
    ));
    print(&format!("{token}\n")).map_err(|error| {
        // Reported even if the reader is gone: without the token the entry is useless.
        anyhow!(
            "the token could not be printed ({error}): remove the entry of {name} from the \
             configuration, and add it again"
        )
    })
}

/// Checks that a name and a comment are valid in the file.
fn check(arguments: &CrawlerAddArguments) -> Result<(), Usage> {
    let name = &arguments.name;
    if ProductToken::new(name).is_err() || name.contains(['/', '*', '#']) {
        let text =
            format!("{name:?} is no product token such as FooBot, without version, `/`, `*`, `#`");
        return Err(Usage::Arguments(text));
    }
    let comment = arguments.comment.as_deref().unwrap_or_default();
    if comment.contains(char::is_control) {
        let text = "a comment is one line, without control characters".to_owned();
        return Err(Usage::Arguments(text));
    }
    Ok(())
}

/// Writes the entry for the configuration file.
fn entry(arguments: &CrawlerAddArguments, digest: &Digest) -> String {
    let date = clock::now().strftime("%Y-%m-%d");
    let comment = match arguments.comment.as_deref().map(str::trim) {
        None | Some("") => String::new(),
        Some(text) => format!(": {text}"),
    };
    // A JSON string is also a TOML string, because names have no control characters.
    let name = json!(arguments.name);
    format!(
        "# politesse crawler add, {date}{comment}\n[[crawler]]\ntoken = {name}\n\
         credential = \"sha256:{digest}\"\n"
    )
}

/// Appends `entry` to the configuration file in use, if it takes effect there.
///
/// Appending, instead of rewriting the file, keeps its mode, owner and links, and
/// cannot lose any of its contents.
fn append(
    entry: &str,
    digest: &Digest,
    configuration: ConfigurationRequest<'_>,
) -> Result<Result<PathBuf, UnwrittenEntry>, Usage> {
    let Some(path) = configuration.file()? else {
        return Ok(Err(UnwrittenEntry::NoFile));
    };
    let opened = open_locked(&path);
    let (mut file, text) = match opened {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(UnwrittenEntry::File(path, error))),
    };
    let gap = match text.as_bytes() {
        [] => "",
        [.., b'\n'] => "\n",
        _ => "\n\n",
    };
    let addition = format!("{gap}{entry}");
    let settings = configuration.settings_with(text.clone() + &addition);
    let is_in_force = settings.is_ok_and(|settings| {
        let mut entries = settings.exchange.request.identities.entries().iter();
        entries.any(|entry| entry.credential == Some(*digest))
    });
    if !is_in_force {
        return Ok(Err(UnwrittenEntry::NotInForce(path)));
    }
    let written = file
        .write_all(addition.as_bytes())
        .and_then(|()| file.sync_all());
    Ok(match written {
        Ok(()) => Ok(path),
        Err(error) => {
            // Half an entry would make the next start reject the file.
            let _ = file.set_len(text.len() as u64);
            Err(UnwrittenEntry::File(path, error))
        }
    })
}

/// Opens a file for appending, and returns its text. Another `crawler add` waits until
/// it is closed.
fn open_locked(path: &Path) -> io::Result<(File, String)> {
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok((file, text))
}

fn list(arguments: &CrawlerListArguments, settings: &Settings) -> anyhow::Result<Exit> {
    let entries = settings.exchange.request.identities.entries();
    print(&match OutputForm::from(arguments.json) {
        OutputForm::Json => entries.iter().map(json_line).collect(),
        OutputForm::Columns => table(entries),
    })
}

fn json_line(entry: &Identity) -> String {
    let texts = |list: Vec<String>| json!(list);
    let tokens = entry.tokens.iter().map(ToString::to_string).collect();
    let networks = entry.clients.as_ref();
    let clients = networks.map(|nets| texts(nets.iter().map(ToString::to_string).collect()));
    let line = json!({
        "token": texts(tokens),
        "credential": entry.credential.map(|digest| format!("sha256:{digest}")),
        "user_agent": entry.user_agent,
        "client": clients,
        "max_wait_ms": entry.max_wait.map(|wait| u64::try_from(wait.as_millis()).ok()),
    });
    format!("{line}\n")
}

/// Lays out the entries in columns.
fn table(entries: &[Identity]) -> String {
    let mut rows = vec![TITLES.map(str::to_owned)];
    rows.extend(entries.iter().map(cells));
    let widths: Vec<_> = (0..TITLES.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or_default()
        })
        .collect();
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(&widths);
        let columns: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        format!("{}\n", columns.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn cells(entry: &Identity) -> [String; 5] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let tokens: Vec<_> = entry.tokens.iter().map(ToString::to_string).collect();
    let digest = entry.credential.map(|digest| {
        let digits = digest.to_string();
        format!("sha256:{}…", &digits[..DIGEST_CHARS])
    });
    let clients = entry.clients.as_ref().map(|networks| {
        let texts: Vec<_> = networks.iter().map(ToString::to_string).collect();
        texts.join(", ")
    });
    [
        inert(&tokens.join(", ")),
        or_dash(digest),
        or_dash(entry.user_agent.as_deref().map(inert)),
        or_dash(clients),
        or_dash(entry.max_wait.map(|wait| format!("{wait:?}"))),
    ]
}
