//! The command line: one function per command.
//!
//! Nothing but results goes to stdout; logs and errors go to stderr. Exit
//! codes: 0 done, 1 not (something disallowed, a mismatch, a failure), 2 usage
//! or configuration, 3 could not find out.

mod audit;
mod check;
mod demo;
mod directives;
mod inert;
mod input;
mod json_lines;
mod log;
mod pace;
mod places;
mod run;
mod start;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use thiserror::Error;

use self::places::{Found, Home, Places};
use crate::admin::AdminToken;
use crate::clock;
use crate::config::{self, Config, Problems, Settings, Sources, default_file};
use crate::decision::decide::EnforcementMode;
use crate::metrics;
use crate::proxy::ca::Ca;

/// A forward proxy that makes any crawler polite.
#[derive(Debug, Parser)]
#[command(
    version,
    about,
    after_help = "\
Example: politesse run -- curl https://example.com/

The configuration is the file that --config names, else POLITESSE_CONFIG, else
~/.config/politesse/politesse.toml (XDG_CONFIG_HOME), else
/etc/politesse/politesse.toml, else the built-in defaults. Paths in it are relative
to its folder. Certificates, record and token of the user's file, and those without a
file, are in ~/.local/state/politesse (XDG_STATE_HOME). `politesse config show` tells
which file it is."
)]
struct Arguments {
    /// The configuration file.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Leaves the user's folders alone: without a configuration file, certificates and the
    /// record are in this folder.
    #[arg(long, global = true, overrides_with = "here")]
    here: bool,
    /// Sets one key over the file and the environment.
    #[arg(long = "set", global = true, value_name = "SECTION.KEY=VALUE")]
    overrides: Vec<String>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the proxy; what happens without a command.
    #[command(after_help = "Example: politesse --set proxy.listen='[\"127.0.0.1:8080\"]' serve")]
    Serve(start::Serve),
    /// Shows what the proxy does: a small site, a proxy that knows it, and lines to try.
    #[command(after_help = "\
Example: politesse demo

Site and proxy listen on 127.0.0.1 alone, on ports 3128 and 3129 if they are free,
and keep all they write in a temporary folder. Ctrl-C ends both and removes it. No
configuration is read; --set changes the demo's own.")]
    Demo,
    /// Decides URLs by a robots.txt, saved or fetched.
    #[command(after_help = "\
Example: politesse check --agent FooBot --robots robots.txt https://site.example/a

Files that are fetched are judged by the configuration, as for `serve`: entries of
`crawler` that ask for no address, `enforcement`, `robots.dialect` and
`robots.override`. Those that you bring (--robots, --batch, --robots-dir) are judged
by the standard alone, unless a configuration is named with --config. --dialect
counts before both.

--robots-dir takes the file of https://site.example/a from DIR/site.example,
DIR/site.example.txt or DIR/site.example/robots.txt, and that of another port than
the scheme's from DIR/site.example:8080 or DIR/site.example_8080, with the same two
endings. Names are in lower case. Out come JSON Lines, one a URL and in order.

Exit codes: 0 all allowed, 1 something disallowed or not understood, 3 something
could not be found out: robots.txt is unreachable, or DIR has none.")]
    Check(check::Check),
    /// Tells which robots directives of a page are in force, as the proxy would.
    #[command(after_help = "\
Example: politesse directives --agent FooBot --header 'X-Robots-Tag: noindex' page.html

The page is read as if it came whole and in time, by the configuration: entries of
`crawler` that ask for no address, and `directives`. Without FILE the fields alone
are read, as of the answer to HEAD. A page without a type is HTML if it begins so.

--batch takes an object a line, {\"id\":1,\"headers\":[[\"X-Robots-Tag\",\"noindex\"]],
\"body\":\"<title>…\",\"content_type\":\"text/html\",\"agent\":\"FooBot\"}, with \"body_b64\" in
place of \"body\", and with \"method\", \"status\", \"now\", \"field_limit\" and \"scan_limit\" if
you like. Out comes an object a line, in order.

Exit codes: 0 told, whatever is in force; 1 a line of the batch was not understood;
3 the page cannot be read.")]
    Directives(directives::Directives),
    /// The certificate authority that crawlers must trust.
    #[command(subcommand, after_help = "Example: politesse ca export > ca.pem")]
    Ca(CaCommand),
    /// Runs a command whose requests go through the proxy.
    #[command(after_help = "\
Example: politesse run -- scrapy crawl shop

The proxy is found by the record (audit.store). If no process holds the record, a
proxy is started for this command, on free ports. If one does, with the same
configuration, the command goes through that one; with another configuration `run`
ends and names both. The counts at the end are of this command's requests alone.

Exit codes: the command's own, or 128 and the number of the signal that ended it;
1 there is no proxy, or no seal; 2 usage or configuration, or no such command.")]
    Run(run::Run),
    /// Becomes a command inside the namespaces of `run --sealed`.
    #[cfg(target_os = "linux")]
    #[command(name = run::seal::ENTER, hide = true)]
    EnterSeal(run::seal::enter::Enter),
    /// What was decided, and whether the record still says so.
    #[command(
        subcommand,
        after_help = "Example: politesse audit list --verdict disallow"
    )]
    Audit(audit::AuditCommand),
    /// How fast hosts are asked, and what waits: the proxy that runs tells.
    #[command(subcommand, after_help = "Example: politesse pace show")]
    Pace(pace::PaceCommand),
    /// The pages for people and monitoring at admin.listen.
    #[command(subcommand, after_help = "Example: politesse admin token")]
    Admin(AdminCommand),
    /// The configuration.
    #[command(
        subcommand,
        after_help = "Example: politesse config default > politesse.toml"
    )]
    Config(ConfigCommand),
    /// Prints a chapter of the reference in docs/reference, as the program's tables have it.
    #[command(subcommand, hide = true)]
    Reference(ReferenceCommand),
}

#[derive(Debug, Subcommand)]
enum CaCommand {
    /// Makes the certificate and its key; never overwrites.
    #[command(after_help = "Example: politesse ca init")]
    Init,
    /// Tells where it is, and its fingerprint.
    #[command(after_help = "Example: politesse ca show")]
    Show,
    /// Prints the certificate in PEM.
    #[command(after_help = "Example: politesse ca export > ca.pem")]
    Export,
}

#[derive(Debug, Subcommand)]
enum AdminCommand {
    /// Prints the token that pages with host names want.
    #[command(after_help = "\
Example: curl -u admin:$(politesse admin token) http://127.0.0.1:3129/api/v1/pace

The proxy makes the token when it first starts, in admin.token_file. For another one,
remove that file and send the proxy SIGHUP.")]
    Token,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Reports every problem of the configuration at once.
    #[command(after_help = "Example: politesse --config politesse.toml config check")]
    Check,
    /// Prints every key in force, and where its value comes from.
    #[command(after_help = "Example: politesse --set robots.ttl=12h config show")]
    Show,
    /// Prints a commented file with every default.
    #[command(after_help = "Example: politesse config default > politesse.toml")]
    Default,
}

#[derive(Debug, Subcommand)]
enum ReferenceCommand {
    /// The keys of the configuration.
    Keys,
    /// The metrics.
    Metrics,
}

/// How a command ended, as an exit code; of several things, the greatest is how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Exit {
    Done,
    Not,
    Unknown,
    Child(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Done => Self::SUCCESS,
            Exit::Not => Self::from(1),
            Exit::Unknown => Self::from(3),
            Exit::Child(code) => Self::from(code),
        }
    }
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// For programs.
    Json,
    /// For people.
    Columns,
}

impl From<bool> for Form {
    /// The form that `--json` asks for.
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Columns }
    }
}

/// What ends with code 2: the caller has to change something.
#[derive(Debug, Error)]
enum Usage {
    /// The configuration has problems.
    #[error("{0}")]
    Configuration(#[from] Problems),
    /// The configuration file cannot be read.
    #[error("cannot read {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Arguments that do not go together, or mean nothing.
    #[error("{0}")]
    Arguments(String),
}

/// Runs the command that the process was started with.
pub fn run() -> ExitCode {
    match command(&Arguments::parse()) {
        Ok(exit) => exit.into(),
        // A reader that has seen enough (`| head`) is no failure.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let code = if error.is::<Usage>() { 2 } else { 1 };
            report(&error);
            ExitCode::from(code)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// The error and its causes, a line each; none twice.
fn report(error: &anyhow::Error) {
    let mut said = error.to_string();
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "politesse: {said}");
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        if !said.contains(&text) {
            let _ = writeln!(stderr, "  because: {text}");
        }
        said = text;
    }
}

fn command(arguments: &Arguments) -> anyhow::Result<Exit> {
    let settings = || configuration(arguments).map(|config| config.settings().clone());
    let serve = Command::Serve(start::Serve::default());
    match arguments.command.as_ref().unwrap_or(&serve) {
        Command::Serve(options) => start::serve(options, &|| Ok(settings()?)),
        Command::Demo => match &arguments.config {
            None => demo::demo(&arguments.overrides),
            Some(_) => {
                let text = "the demo brings its own configuration: leave --config out";
                Err(Usage::Arguments(text.to_owned()).into())
            }
        },
        Command::Check(check) => check::check(
            check,
            &check::Configuration {
                is_named: arguments.config.is_some(),
                read: settings,
            },
        ),
        Command::Directives(question) => directives::directives(question, &settings()?),
        Command::Ca(command) => ca(command, &settings()?),
        Command::Run(run) => run::run(run, &|| Ok(settings()?)),
        #[cfg(target_os = "linux")]
        Command::EnterSeal(enter) => run::seal::enter::enter(enter),
        Command::Audit(command) => audit::audit(command, &settings()?),
        Command::Pace(command) => pace::pace(command, &settings()?),
        Command::Admin(AdminCommand::Token) => token(&settings()?),
        Command::Config(ConfigCommand::Default) => print(&default_file()),
        Command::Config(ConfigCommand::Show) => print(&shown(arguments)?),
        Command::Reference(ReferenceCommand::Keys) => print(&config::reference()),
        Command::Reference(ReferenceCommand::Metrics) => print(&metrics::reference()),
        Command::Config(ConfigCommand::Check) => print(&good(configuration(arguments)?.settings())),
    }
}

/// That nothing is wrong, and what is without effect all the same.
fn good(settings: &Settings) -> String {
    let now = clock::now();
    let overrides = settings.policy.overrides().iter();
    let ended = overrides.filter(|entry| entry.has_ended(now)).map(|entry| {
        let until = entry.action.until().map(|end| end.to_string());
        let action = entry.action.as_str();
        let until = until.unwrap_or_default();
        format!(
            "the {action} of robots.override for {} ended at {until}: it is not in force\n",
            entry.origin
        )
    });
    let mut text = "the configuration is good\n".to_owned();
    if settings.policy.mode() == EnforcementMode::Report {
        text.push_str("enforcement.mode is \"report\": nothing is refused by robots.txt\n");
    }
    text.extend(ended);
    text
}

fn print(text: &str) -> anyhow::Result<Exit> {
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

/// The configuration from its file, the environment and the command line.
fn configuration(arguments: &Arguments) -> Result<Config, Usage> {
    found(arguments).and_then(|found| read(arguments, found))
}

/// The configuration file of every command.
fn found(arguments: &Arguments) -> Result<Found, Usage> {
    let home = if arguments.here {
        Home::Here
    } else {
        Home::User
    };
    Places::new(arguments.config.as_deref(), home).find()
}

fn read(arguments: &Arguments, found: Found) -> Result<Config, Usage> {
    Ok(Config::read(&Sources {
        file: found.file,
        environment: std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        overrides: &arguments.overrides,
        working_directory: working_directory(),
        data_directory: found.data,
    })?)
}

fn working_directory() -> PathBuf {
    std::env::current_dir().unwrap_or_default()
}

/// Every key in force, below the file and the folders that count.
fn shown(arguments: &Arguments) -> Result<String, Usage> {
    let found = found(arguments)?;
    let comment = found.comment(&working_directory());
    Ok(comment + &read(arguments, found)?.show())
}

fn ca(command: &CaCommand, settings: &Settings) -> anyhow::Result<Exit> {
    match command {
        CaCommand::Init => {
            Ca::create(&settings.ca)?;
            print(&format!(
                "made {} and {}\n",
                settings.ca.cert.display(),
                settings.ca.key.display()
            ))
        }
        CaCommand::Show => {
            let fingerprint = Ca::load(&settings.ca)?.fingerprint();
            print(&format!(
                "certificate {}\nkey {}\nsha256 {fingerprint}\n",
                settings.ca.cert.display(),
                settings.ca.key.display()
            ))
        }
        CaCommand::Export => print(Ca::load(&settings.ca)?.pem()),
    }
}

/// Prints the token. None is made: under another configuration than that of the
/// proxy which runs it would be a token that no proxy takes.
fn token(settings: &Settings) -> anyhow::Result<Exit> {
    let token = AdminToken::read(&settings.admin.token_file)?;
    print(&format!("{}\n", token.as_str()))
}

/// The runtime of commands that speak to the network.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}
