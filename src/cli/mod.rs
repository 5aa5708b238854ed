//! Command line: the arguments, and the function that runs each command.
//!
//! Results go to stdout, logs and errors to stderr. Exit codes: 0 success; 1 a negative
//! result (something disallowed, a mismatch, a failure); 2 usage or configuration; 3
//! the result could not be determined.
//!
//! Does not know how a command does its work: each has a file of its own.

mod admin_api;
mod admin_tls;
mod audit;
mod authority;
mod check;
mod clients;
mod configuration;
mod crawler;
mod dashboard;
mod demo;
mod directives;
mod doctor;
mod fleet;
mod judge;
mod lines;
mod log;
mod output;
mod pace;
mod process;
mod reference;
mod run;
mod serve;
mod start_failure;
mod trust;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use self::configuration::{ConfigurationRequest, Home};
use self::output::{Exit, Usage, print, report};
use crate::config::{Settings, default_file};
use politesse_admin::AdminToken;
use politesse_base::inert::inert;

/// A forward proxy that makes any crawler polite.
#[derive(Debug, Parser)]
#[command(
    version = env!("POLITESSE_VERSION"),
    about,
    after_help = "\
Example: politesse run -- curl https://example.com/

The configuration is the file that --config names, else POLITESSE_CONFIG, else
~/.config/politesse/politesse.toml (XDG_CONFIG_HOME), else
/etc/politesse/politesse.toml, else the built-in defaults. Paths in it are relative
to its folder. Certificates, record and token of the user's file, and those without a
file, are in ~/.local/state/politesse (XDG_STATE_HOME). `politesse config show` prints
which file is in use."
)]
struct Arguments {
    /// The configuration file.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Leaves the user's folders alone: without a configuration file, certificates and
    /// the record are in the current folder, or in DIR.
    #[arg(
        long, global = true, overrides_with = "here", value_name = "DIR",
        num_args = 0..=1, require_equals = true, default_missing_value = "."
    )]
    here: Option<PathBuf>,
    /// Sets one key, overriding the file and the environment.
    #[arg(long = "set", global = true, value_name = "SECTION.KEY=VALUE")]
    overrides: Vec<String>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the proxy; the default if no command is given.
    #[command(after_help = "Example: politesse --set proxy.listen='[\"127.0.0.1:8080\"]' serve")]
    Serve(serve::ServeArguments),
    /// Demonstrates the proxy with a small site, and prints commands to try.
    #[command(after_help = "\
Example: politesse demo

Site and proxy listen on 127.0.0.1 only, on ports 3128 and 3129 if they are free, and
write only to a temporary folder. Ctrl-C stops both and removes it. No configuration
is read; --set changes the demo's own.")]
    Demo,
    /// Checks URLs against a robots.txt, saved or fetched.
    #[command(after_help = "\
Example: politesse check --agent FooBot --robots robots.txt https://site.example/a

Files that are fetched are judged by the configuration, as for `serve`: entries of
`crawler` that ask for no address or credential, `enforcement`, `robots.dialect` and
`robots.override`. Those that you bring (--robots, --batch, --robots-dir) are judged
by the standard alone, unless a configuration is named with --config. --dialect
counts before both.

--robots-dir takes the file of https://site.example/a from DIR/site.example,
DIR/site.example.txt or DIR/site.example/robots.txt, and that of another port than
the scheme's from DIR/site.example:8080 or DIR/site.example_8080, with the same two
endings. Names are in lower case. The output is JSON Lines, one per URL and in order.

Exit codes: 0 all allowed, 1 something disallowed or not understood, 3 something
is unknown: robots.txt is unreachable, or DIR has none.")]
    Check(check::CheckArguments),
    /// Checks the requests of a past crawl against the robots.txt files of its archive.
    #[command(after_help = "\
Example: politesse judge --warc crawl-00001.warc.gz crawl-00002.warc.gz

Each request of a WARC archive is judged by the robots.txt of its origin that was
fetched last before it, in any of the files: 4xx allows, 5xx disallows, up to five
redirects are followed within the archive. Requests and responses of one exchange
count once. The crawler is the User-Agent of the request, else the one that
`warcinfo` names, else --agent. A log has no robots.txt, so it takes --robots DIR,
whose files are named as for `check --robots-dir`. All is judged by the standard
alone, unless a configuration is named with --config.

Counts are grouped by host, crawler and rule; --requests lists the requests themselves,
with the members of `check --batch`. Some requests are neither allowed nor disallowed,
but unknown: no robots.txt came before the request, or its crawler is not named.

Exit codes: 0 all allowed, 1 something disallowed, 3 nothing disallowed and something
unknown or unreadable, or no request at all.")]
    Judge(judge::JudgeArguments),
    /// Shows which robots directives of a page are in force, as the proxy would.
    #[command(after_help = "\
Example: politesse directives --agent FooBot --header 'X-Robots-Tag: noindex' page.html

The page is read as if it arrived complete and in time, with the configuration's entries of
`crawler` that ask for no address or credential, and its `directives`. Without FILE only the
fields are read, as for a response to HEAD. A page without a type is HTML if it begins so.

--batch takes one object per line, {\"id\":1,\"headers\":[[\"X-Robots-Tag\",\"noindex\"]],
\"body\":\"<title>…\",\"content_type\":\"text/html\",\"agent\":\"FooBot\"}, with \"body_b64\" in
place of \"body\", and optionally with \"method\", \"status\", \"now\", \"field_limit\" and
\"scan_limit\". The output is one object per line, in order.

Exit codes: 0 answered, whatever is in force; 1 a line of the batch was not understood;
3 the page cannot be read.")]
    Directives(directives::DirectivesArguments),
    /// The certificate authority that crawlers must trust.
    #[command(subcommand, after_help = "Example: politesse ca export > ca.pem")]
    Ca(authority::CaCommand),
    /// Runs a command whose requests go through the proxy.
    #[command(after_help = "\
Example: politesse run -- scrapy crawl shop

The proxy is found by the record (audit.store). If no process holds the record, a
proxy is started for this command, on free ports. If one does, with the same
configuration, the command goes through that one; with another configuration `run`
ends and names both. The counts at the end cover this command's requests only.

Exit codes: the command's own, or 128 plus the number of the signal that ended it;
1 there is no proxy, or no seal; 2 usage or configuration, or no such command.")]
    Run(run::RunArguments),
    /// Becomes a command inside the namespaces of `run --sealed`.
    #[cfg(target_os = "linux")]
    #[command(name = run::seal::ENTER, hide = true)]
    EnterSeal(run::seal::enter::EnterArguments),
    /// Decisions in the record, and whether the record is intact.
    #[command(after_help = "\
Examples:
  politesse audit list --verdict disallow
  politesse audit --archive list --host site.example --node eu-1")]
    Audit(Box<audit::AuditArguments>),
    /// Crawlers that the configuration names, and the tokens that prove a name.
    #[command(
        subcommand,
        after_help = "Example: politesse crawler add FooBot --comment 'shop team'"
    )]
    Crawler(crawler::CrawlerCommand),
    /// The pace of the running proxy: how often it asks each host, and what waits.
    #[command(subcommand, after_help = "Example: politesse pace show")]
    Pace(pace::PaceCommand),
    /// The nodes that crawl as one with the running proxy.
    #[command(subcommand, after_help = "Example: politesse fleet status")]
    Fleet(fleet::FleetCommand),
    /// Clients of the running proxy: the shares that each holds, waits for and was
    /// refused.
    #[command(after_help = "\
Example: politesse clients --limit 20

It asks the proxy that runs with this configuration, at admin.listen, with the token
in admin.token_file.")]
    Clients(clients::ClientsArguments),
    /// Access to the pages for operators and monitoring at admin.listen.
    #[command(subcommand, after_help = "Example: politesse admin token")]
    Admin(AdminCommand),
    /// Prints a link that signs a browser in to the dashboard of the running proxy.
    #[command(after_help = "\
Examples:
  politesse dashboard
  politesse dashboard --open

The link works once, within ten minutes. It is for the proxy that holds the record of
this configuration.")]
    Dashboard(dashboard::DashboardArguments),
    /// Looks for problems that keep the proxy or a client from working, and suggests
    /// fixes.
    #[command(after_help = "\
Examples:
  politesse doctor
  politesse doctor --for chromium

It changes nothing, and contacts no other host. Exit codes: 0 no fault, 1 a fault,
2 configuration.")]
    Doctor(doctor::DoctorArguments),
    /// Reports whether the running proxy is ready, for health checks.
    #[command(after_help = "\
Example: politesse health

It asks /readyz of the proxy that runs with this configuration, at admin.listen.

Exit codes: 0 ready, possibly with a note on problems; 1 not ready, or no proxy.")]
    Health,
    /// Prints the completions for a shell.
    #[command(after_help = "\
Examples:
  politesse completions bash > ~/.local/share/bash-completion/completions/politesse
  politesse completions zsh > ~/.zfunc/_politesse
  politesse completions fish > ~/.config/fish/completions/politesse.fish")]
    Completions(reference::CompletionsArguments),
    /// Prints the manual page, or writes the pages of all commands into a folder.
    #[command(after_help = "Example: politesse man | man -l -")]
    Man(reference::ManArguments),
    /// The configuration.
    #[command(
        subcommand,
        after_help = "Example: politesse config default > politesse.toml"
    )]
    Config(ConfigCommand),
    /// Prints a chapter of docs/reference, generated from the program's tables.
    #[command(subcommand, hide = true)]
    Reference(reference::ReferenceCommand),
}

#[derive(Debug, Subcommand)]
enum AdminCommand {
    /// Prints the token that protects the pages with host names.
    #[command(after_help = "\
Example: curl -u admin:$(politesse admin token) http://127.0.0.1:3129/api/v1/pace

The proxy makes the token when it first starts, in admin.token_file. To replace it,
remove that file and send the proxy SIGHUP.")]
    Token,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Reports every problem of the configuration at once.
    #[command(after_help = "Example: politesse --config politesse.toml config check")]
    Check,
    /// Prints every key with the value in force, and the source of the value.
    #[command(after_help = "Example: politesse --set robots.ttl=12h config show")]
    Show,
    /// Prints a commented file with all defaults.
    #[command(after_help = "Example: politesse config default > politesse.toml")]
    Default,
}

/// Runs the command given on the command line.
pub fn run() -> ExitCode {
    match run_command(&Arguments::parse()) {
        Ok(exit) => exit.into(),
        // A reader that closes the pipe early (`| head`) is no failure.
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

fn run_command(arguments: &Arguments) -> anyhow::Result<Exit> {
    let request = ConfigurationRequest {
        file: arguments.config.as_deref(),
        home: arguments.here.as_deref().map_or(Home::User, Home::Folder),
        overrides: &arguments.overrides,
    };
    if !matches!(arguments.command, Some(Command::Demo)) {
        request.install();
    }
    let serve = Command::Serve(serve::ServeArguments::default());
    match arguments.command.as_ref().unwrap_or(&serve) {
        Command::Serve(arguments) => serve::serve(arguments, request),
        // `--config` would have no effect here, and the user would wonder why.
        Command::Demo if arguments.config.is_some() => {
            let text = "the demo has its own configuration: leave out --config";
            Err(Usage::Arguments(text.to_owned()).into())
        }
        Command::Demo => demo::demo(&arguments.overrides),
        Command::Check(arguments) => check::check(arguments, request),
        Command::Judge(arguments) => judge::judge(arguments, request),
        Command::Directives(arguments) => directives::directives(arguments, &request.settings()?),
        Command::Ca(command) => authority::authority(command, &request.settings()?),
        Command::Run(arguments) => run::run(arguments, request),
        #[cfg(target_os = "linux")]
        Command::EnterSeal(arguments) => run::seal::enter::enter(arguments),
        Command::Audit(arguments) => audit::audit(arguments, request),
        Command::Crawler(command) => crawler::crawler(command, request),
        Command::Pace(command) => pace::pace(command, &request.settings()?),
        Command::Fleet(command) => fleet::fleet(command, &request.settings()?),
        Command::Clients(arguments) => clients::clients(arguments, &request.settings()?),
        Command::Admin(AdminCommand::Token) => admin_token(&request.settings()?),
        Command::Dashboard(arguments) => dashboard::dashboard(arguments, &request.settings()?),
        Command::Doctor(arguments) => doctor::doctor(arguments, request),
        Command::Health => health(&request.settings()?),
        Command::Completions(arguments) => reference::completions(arguments, Arguments::command()),
        Command::Man(arguments) => reference::man(arguments, Arguments::command()),
        Command::Config(ConfigCommand::Default) => print(&default_file()),
        Command::Config(ConfigCommand::Show) => print(&request.show()?),
        Command::Config(ConfigCommand::Check) => print(&request.check()?),
        Command::Reference(command) => reference::reference(command),
    }
}

/// Prints the running proxy's answer about its readiness.
fn health(settings: &Settings) -> anyhow::Result<Exit> {
    let answer = admin_api::ask_readiness(settings)?;
    let text = inert(String::from_utf8_lossy(&answer).trim_end());
    print(&format!("{text}\n"))
}

/// Prints the token, and never creates one: if this configuration is not the running
/// proxy's, that proxy would refuse it.
fn admin_token(settings: &Settings) -> anyhow::Result<Exit> {
    let token = AdminToken::read(&settings.admin.token_file)?;
    print(&format!("{}\n", token.as_str()))
}
