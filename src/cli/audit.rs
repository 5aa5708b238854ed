//! `audit`: shows and counts decisions and events of the record, and verifies it.

mod archive;
#[cfg(feature = "postgres")]
mod archive_source;
mod arguments;
mod bundle;
pub(super) mod export;
mod heads;
mod listing;
mod missed;
mod order;
mod prune;
mod redact;
mod replay;
mod report;
mod robots;
pub(super) mod rows;
mod sections;
#[cfg(feature = "postgres")]
mod ship;
mod source;
mod speed;
mod stats;
mod tail;
mod verification;
mod versions;
mod warc;
mod why;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use self::archive::ArchiveArguments;
#[cfg(feature = "postgres")]
use self::archive::prune_archive;
use self::arguments::{
    DecisionArguments, DecisionName, DecisionSubject, EventArguments, FILTERS_HELP,
};
use self::bundle::BundleArguments;
use self::export::ExportArguments;
use self::listing::{Screen, event_layout, event_line, record_line};
use self::missed::MissedArguments;
use self::prune::PruneArguments;
use self::redact::RedactArguments;
use self::replay::ReplayArguments;
use self::report::ReportArguments;
use self::robots::RobotsArguments;
use self::rows::{ListArguments, Listing, RowForm, RowWriter, write_json};
#[cfg(feature = "postgres")]
use self::ship::ShipArguments;
use self::source::DecisionSource;
use self::speed::SpeedArguments;
use self::stats::{StatsArguments, TopArguments};
use self::tail::TailArguments;
use self::verification::VerifyArguments;
use self::why::WhyArguments;
use super::configuration::{ConfigurationRequest, check_owner};
use super::output::{Exit, OutputForm, Usage};
use crate::config::Settings;
use politesse_base::inert::inert;
use politesse_decision::row_json::row_json;
use politesse_record::AuditError;
use politesse_record::Direction;
use politesse_record::backup;
use politesse_record::events::EventRow;
use politesse_record::filter::DecisionFilter;
use politesse_record::reader::AuditReader;

/// Arguments of `audit`.
#[derive(Debug, Args)]
pub(super) struct AuditArguments {
    #[command(flatten)]
    archive: ArchiveArguments,
    #[command(subcommand)]
    command: AuditCommand,
}

/// Commands that read the record.
#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// The newest decisions, the newest first.
    #[command(after_help = format!("\
Examples:
  politesse audit list --host site.example --verdict disallow
  politesse audit list --from 1h --rule 'Disallow: /private'
  politesse audit list --url 'https://site.example/shop/*' --limit 0 --json

{FILTERS_HELP}

A URL is cut to the width of a terminal, and whole in a file or a pipe. --json has
every field, a row a line."))]
    List {
        #[command(flatten)]
        which: DecisionArguments,
        #[command(flatten)]
        rows: ListArguments,
    },
    /// All that is on record of one decision, with the robots.txt it rests on.
    #[command(after_help = "\
Examples:
  politesse audit show 17
  politesse audit show https://site.example/private/a
  politesse audit --archive show eu-1/17

The number is the first column of `list`, and stands on each refusal (`decision`). Of
a URL the newest decision is shown; `others` says how many more there are. Exit codes:
0 shown, 1 there is no such decision.")]
    Show {
        /// The number of a decision, with its node in an archive, or a URL.
        #[arg(value_name = "[NODE/]SEQ|URL")]
        subject: DecisionSubject,
        /// One JSON object: the row of `list`, and what it refers to.
        #[arg(long)]
        json: bool,
    },
    /// The robots.txt of a host that was in force at a time.
    #[command(after_help = "\
Examples:
  politesse audit robots site.example
  politesse audit robots site.example --at 2026-11-22T10:00:00Z > robots.txt
  politesse audit robots https://site.example:8443 --crawler FooBot
  politesse audit robots site.example --history

The bytes of the file go to stdout, and nothing else; where it is from goes to stderr.
Where several origins or crawlers of the host had different files, they are listed,
and one has to be asked for (exit code 2). Files are on record from the first decision
that rests on them. Exit codes: 0 printed, 1 there was no file, or none is on record.

--history tells of each version of the file: when it was first and last fetched, its
SHA-256, the lines that changed, and how many requests each of its rules decided.")]
    Robots(RobotsArguments),
    /// When sites asked for less (429, 503) and were asked again, and what the proxy
    /// did: started, stopped, changed its configuration. The newest first.
    #[command(after_help = "\
Examples:
  politesse audit events --host site.example --from 7d
  politesse audit events --kind configuration --limit 1 --json

Times and hosts are given as for `list`.")]
    Events {
        #[command(flatten)]
        which: EventArguments,
        #[command(flatten)]
        rows: ListArguments,
    },
    /// Why a URL was allowed, refused or put off: the latest decision about it, with
    /// the lines of the robots.txt that decided.
    #[command(after_help = "\
Examples:
  politesse audit why https://site.example/private/a
  politesse audit why https://site.example/private/a --agent FooBot --at 2026-11-22T10:00

Of a URL that was never asked for, it says so, and what the proxy would decide by this
configuration and the robots.txt on record. --csv has a line for each fact. Exit codes:
0 there is a decision, 1 there is none.")]
    Why(WhyArguments),
    /// Decisions counted by host, URL, crawler, rule, reason and hour, those with most
    /// requests first.
    #[command(after_help = format!("\
Examples:
  politesse audit stats --by host,crawler --from 1d
  politesse audit stats --by url,rule,crawler --host site.example --verdict disallow --from 1h
  politesse audit stats --by hour --host site.example --limit 0 --csv

Without --by all decisions are counted together. Columns: requests; refusals, which
were disallowed and not sent; reported, which report mode let through; later, which
were put off; the time that requests waited; bytes of bodies passed on; exchanges that
ended with an error. Hours are UTC.

{FILTERS_HELP}"))]
    Stats(StatsArguments),
    /// The rules, hosts or crawlers with most refusals.
    #[command(after_help = format!("\
Examples:
  politesse audit top rules --from 1h
  politesse audit top hosts --crawler FooBot --limit 20

The columns are those of `stats`. Those with as many refusals are in the order of what
report mode let through, then of requests.

{FILTERS_HELP}"))]
    Top(TopArguments),
    /// The URLs that a crawl asked for and did not get, and why.
    #[command(after_help = format!("\
Examples:
  politesse audit missed --label shop-2026-11
  politesse audit missed --label shop-2026-11 --csv > missed.csv
  politesse audit missed --crawler FooBot --from 1d --json

A URL is missed if no request for it was answered. The newest decision about it says why:
`refused` by a rule, by the operator or because robots.txt was unreachable; `preference`:
refused for the purposes of the crawler; `withheld`: fetched and not passed on; `put_off` by
the proxy or by the site (429, 503); `refused_by_site` (401, 402, 403, 451, a bot
challenge); `error`: the site could not be reached, failed (5xx) or broke off, or the client
left before the end.
Redirects and pages that do not exist (404) are answers. HEAD is not counted.

{FILTERS_HELP}"))]
    Missed(MissedArguments),
    /// How fast crawlers asked, the fastest first, and which hosts asked for less.
    #[command(after_help = "\
Examples:
  politesse audit speed --from 1h
  politesse audit speed --by crawler --from 1d
  politesse audit speed --by host --host site.example --csv

Columns: requests that were sent, repeats included; the most within a minute of the
clock; the usual pause between two, which is the one in the middle if all are put in
order; how often the host asked for less (429, 503) in the time, whoever asked; until
when it was to be left alone the last time. Requests for robots.txt are not counted.")]
    Speed(SpeedArguments),
    /// Which past decisions another configuration would change.
    #[command(after_help = format!("\
Examples:
  politesse audit replay --with new.toml --from 7d
  politesse --set enforcement.mode=report audit replay --host site.example --csv
  politesse audit replay --with new.toml --against recorded

Each decision is made again from what is on record, with the policy (overrides, report
mode, dialect, readings, candidates, 401 and 403) and the names of crawlers of the other
configuration: --with FILE, or that of now with --set. It is compared with what the
configuration of now decides; with --against recorded, or without another configuration,
with the decisions as they were. --config chooses the record, as everywhere. Pace and
egress are not replayed: what was put off counts by the rule that let it through, what
rests on no robots.txt is counted as not decided again. Exit codes: 0 nothing changes, 1 something
does, 3 nothing does of what can be decided again, and some cannot.

{FILTERS_HELP}"))]
    Replay(ReplayArguments),
    /// A page about a time, for people: HTML without scripts, that prints on A4.
    #[command(after_help = "\
Examples:
  politesse audit report --from 2026-11-01 --until 2026-12-01 -o november.html
  politesse audit report --for-site site.example --from 7d -o site.html

What was asked, what was refused and by whose rule, how fast hosts were asked, who asked
for less, what could not be known, and how all of it can be checked. --for-site is the
page for the owner of a site who asks who came: it has nothing of other hosts and no
address of a client. Its decisions are verified meanwhile. FILE must not be there yet.
Exit codes: 0 written, 1 written, and the record does not bear it out.")]
    Report(ReportArguments),
    /// Decisions as they are made, until it is interrupted.
    #[command(after_help = format!("\
Example: politesse audit tail --host site.example --verdict disallow

A decision is shown when it is on disk, most without the status, which comes with the
end of its exchange.

{FILTERS_HELP}"))]
    Tail(TailArguments),
    /// Decisions for other programs, the oldest first: JSON Lines, CSV, WARC.
    #[command(after_help = format!("\
Examples:
  politesse audit export --as csv --from 2026-11-01 --until 2026-12-01 -o november.csv
  politesse audit export --as jsonl --from 1h | your-collector
  politesse audit export --as warc --host site.example -o site.warc.gz

jsonl is `list --json` with a version and more of what a decision rests on. warc has
each robots.txt as a response and each decision as a metadata record that refers to it;
with .gz at the end of FILE, each record is compressed alone. FILE must not be there
yet.

{FILTERS_HELP}"))]
    Export(ExportArguments),
    /// Decisions with the proof that they are on record, in one file to hand over.
    #[command(after_help = "\
Examples:
  politesse audit bundle --from 2026-11-22 --until 2026-11-23 -o day.jsonl.gz
  politesse audit bundle --host site.example -o site.jsonl.gz

The file is gzipped JSON Lines: the rows with the values that they share, each robots.txt,
one proof for all rows, the newest head, the public key. `politesse audit verify FILE --key
KEY` checks it on another machine. Decisions that no head covers yet are left out. FILE
must not be there yet.")]
    Bundle(BundleArguments),
    /// Removes entries that are old; of the archive, months.
    #[command(after_help = "\
Examples:
  politesse audit prune --before 400d --why 'kept for 400 days'
  politesse audit prune --before 400d --why 'kept for 400 days' --yes
  politesse audit --archive prune --before 2026-01-01 --why 'kept for a year'

Without --yes the command says which entries would go. They go by parts of 8,192
numbers, each when all of it is from before that time, and with them what they alone
referred to. An event says who did it, and `verify` tells what was removed from what is
missing. The proxy that runs does it bit by bit; without one the command does it itself.
Each day by itself: audit.retention.

With --archive whole months (UTC) of all nodes go, each when all of it is from before
that time. An archive proves nothing: the records of the nodes stay as they are.")]
    Prune(PruneArguments),
    /// Takes client and URL away from decisions; all proofs go on holding.
    #[command(after_help = "\
Examples:
  politesse audit redact --url 'https://site.example/users/*' --why 'request of 22 November'
  politesse audit redact --client 192.0.2.7 --until 30d --why 'request of 22 November' --yes

What is left of both is a hash that proves nothing about them to anybody. Verdict, rule
and robots.txt stay, and with them the name of the host. An event has the numbers, the
reason and who did it; `verify` counts these decisions apart. Without --yes they are
only counted. Backups and exports are not touched.")]
    Redact(RedactArguments),
    /// Copies the record to a file, while a proxy writes to it.
    #[command(after_help = "\
Example: politesse audit backup /backups/audit-2026-11-22.db

The file must not be there yet. It is a record of its own, as of one moment:
`--set audit.store=sqlite:FILE` lets every command read it, `verify` first of all.")]
    Backup {
        /// The file to be made.
        file: PathBuf,
    },
    /// Puts a backup in the place of a record of which something is missing.
    #[command(after_help = "\
Example: politesse audit restore /backups/audit-2026-11-22.db

The proxy must not run. What is left of the record is set aside beside it
(audit.db.before-TIME). Numbers that were given after the backup was made are noted as
lost, and an event says so: none is given again. A record that is whole stays. Exit
codes: 0 restored, 1 not.")]
    Restore {
        /// The backup.
        file: PathBuf,
    },
    /// Ships all entries to the archive, a PostgreSQL database for many nodes.
    #[cfg(feature = "postgres")]
    #[command(after_help = "\
Examples:
  politesse audit ship --once
  politesse audit ship --to postgres://db.example/politesse

A proxy with audit.archive ships by itself; this is for a record that none writes to, or
for one without that key. Without --once it follows the record until it is interrupted.
What was shipped already is not shipped again. Exit codes: 0 all has arrived, 1 not.")]
    Ship(ShipArguments),
    /// Decides again from what is stored, and tells what does not fit.
    #[command(after_help = format!("\
Examples:
  politesse audit verify --from 2026-11-01
  politesse audit verify --key politesse.key --head heads.txt
  politesse audit verify site.jsonl.gz --key politesse.key

{FILTERS_HELP}

Without a filter the whole record is looked at, gaps, robots.txt bodies and heads
included. --head compares it with heads that were exported (`audit head`,
`audit.seal_to`) and are kept where whoever can write to the record cannot.

A bundle is verified without the record. The last line is OK, OK, but ..., or FAILED.
Exit codes: 0 nothing was found, 1 something does not fit, 3 with --key some entries have
no checked signature (those after the newest head); a bundle fits and no --key was given;
or entries were removed by age meanwhile, which may be what was found: verify again."))]
    Verify(VerifyArguments),
    /// The public key by which heads of the record are signed.
    #[command(after_help = "\
Example: politesse audit key > politesse.key

Keep it away from the record: `audit verify --key` holds heads against it.")]
    Key,
    /// The newest signed head: how many entries the record has, and the root of the
    /// tree over them.
    #[command(after_help = "\
Example: politesse audit head >> heads.txt

Keep it away from the record: `audit verify --head` proves that nothing before it was
changed, removed or inserted, and that nothing was cut off. Exit codes: 0 printed, 1
there is none yet.")]
    Head,
}

/// Answers a command from the record, or from the archive.
pub(super) fn audit(
    arguments: &AuditArguments,
    configuration: ConfigurationRequest<'_>,
) -> anyhow::Result<Exit> {
    let settings = configuration.settings()?;
    if arguments.archive.is_asked() {
        require_answer(&arguments.command)?;
    }
    let is_reading =
        |error: &anyhow::Error| matches!(error.downcast_ref(), Some(AuditError::Read(_)));
    answer(arguments, &settings, configuration).map_err(|error| match is_reading(&error) {
        true => error.context(format!("in {}", settings.audit.path.display())),
        false => error,
    })
}

fn answer(
    arguments: &AuditArguments,
    settings: &Settings,
    configuration: ConfigurationRequest<'_>,
) -> anyhow::Result<Exit> {
    let AuditArguments { archive, command } = arguments;
    let source = || archive.source(settings);
    let path = &settings.audit.path;
    // Not before it is needed: `restore` is for a record that cannot be read.
    let reader = || AuditReader::open(path);
    match command {
        AuditCommand::List { which, rows } => list(&source()?, &which.try_into()?, rows),
        AuditCommand::Show { subject, json } => show(&source()?, subject, OutputForm::from(*json)),
        AuditCommand::Robots(asked) => robots::robots(&reader()?, asked),
        AuditCommand::Events { which, rows } => {
            let mut out = Listing::new(rows, event_layout());
            reader()?.visit_events(&which.try_into()?, |event| {
                out.row(|| event.json(), || event_line(&event))
            })?;
            out.end()
        }
        AuditCommand::Stats(asked) => stats::print_stats(&source()?, asked),
        AuditCommand::Speed(asked) => speed::print_speeds(&reader()?, asked),
        AuditCommand::Top(asked) => stats::print_top(&source()?, asked),
        AuditCommand::Missed(asked) => missed::print_missed(&source()?, asked),
        AuditCommand::Why(asked) => why::why(&source()?, asked, settings),
        AuditCommand::Replay(asked) => replay::replay(settings, asked, configuration),
        AuditCommand::Report(asked) => report::print_report(&reader()?, asked, settings),
        AuditCommand::Tail(asked) => tail::tail(&source()?, asked),
        AuditCommand::Export(asked) => export::export(&source()?, asked),
        AuditCommand::Bundle(asked) => bundle::bundle(&reader()?, asked),
        AuditCommand::Verify(asked) => verification::print_verification(reader, asked),
        AuditCommand::Key => heads::print_key(&reader()?, &settings.audit),
        AuditCommand::Head => heads::print_head(&reader()?),
        #[cfg(feature = "postgres")]
        AuditCommand::Prune(asked) if archive.is_asked() => prune_archive(archive, asked, settings),
        AuditCommand::Prune(asked) => prune::prune(asked, settings),
        AuditCommand::Redact(asked) => redact::redact(asked, settings),
        #[cfg(feature = "postgres")]
        AuditCommand::Ship(asked) => ship::ship(asked, settings),
        AuditCommand::Backup { file } => back_up(path, file),
        AuditCommand::Restore { file } => {
            check_owner(settings)?;
            restore(path, file)
        }
    }
}

/// Prints each decision of the record at `path` as it is made.
///
/// # Errors
///
/// The record cannot be read, or stdout is closed.
pub(super) fn follow(path: &Path) -> anyhow::Result<Exit> {
    let source = DecisionSource::of_record(AuditReader::open(path)?)?;
    let rows = RowWriter::new(RowForm::Columns, source.layout());
    tail::follow(&source, &DecisionFilter::default(), 0, rows)
}

/// Refuses a command that the archive cannot answer.
fn require_answer(command: &AuditCommand) -> Result<(), Usage> {
    let name = match command {
        AuditCommand::Events { .. } => "events",
        AuditCommand::Speed(_) => "speed",
        AuditCommand::Replay(_) => "replay",
        AuditCommand::Report(_) => "report",
        AuditCommand::Bundle(_) => "bundle",
        AuditCommand::Robots(_) => "robots",
        AuditCommand::Verify(_) | AuditCommand::Key | AuditCommand::Head => {
            let text = "the archive proves nothing: each node's record does, with its exported \
                        heads (audit.seal_to) and its backups; leave --archive out";
            return Err(Usage::Arguments(text.to_owned()));
        }
        // What changes a record is done where it is written.
        #[cfg(not(feature = "postgres"))]
        AuditCommand::Prune(_) => "prune",
        AuditCommand::Redact(_) | AuditCommand::Backup { .. } | AuditCommand::Restore { .. } => {
            let text = "this is done at the node, to its record: leave --archive out";
            return Err(Usage::Arguments(text.to_owned()));
        }
        AuditCommand::List { .. }
        | AuditCommand::Show { .. }
        | AuditCommand::Why(_)
        | AuditCommand::Stats(_)
        | AuditCommand::Top(_)
        | AuditCommand::Missed(_)
        | AuditCommand::Tail(_)
        | AuditCommand::Export(_) => return Ok(()),
        #[cfg(feature = "postgres")]
        AuditCommand::Prune(_) => return Ok(()),
        #[cfg(feature = "postgres")]
        AuditCommand::Ship(_) => {
            let text = "a record is shipped where it is: leave --archive out, or say --to URL";
            return Err(Usage::Arguments(text.to_owned()));
        }
    };
    Err(Usage::Arguments(format!(
        "the archive does not answer {name}: ask the record of a node, there and without --archive"
    )))
}

fn back_up(path: &Path, file: &Path) -> anyhow::Result<Exit> {
    let backup = backup::back_up(path, file)?;
    writeln!(
        io::stdout(),
        "{}: entries 1 to {} of the record {}, {} bytes\n  check it: politesse audit verify --set \
         'audit.store=\"sqlite:{}\"'",
        file.display(),
        backup.last,
        backup.record,
        backup.bytes,
        file.display(),
    )?;
    Ok(Exit::Done)
}

fn restore(path: &Path, file: &Path) -> anyhow::Result<Exit> {
    let restored = backup::restore(path, file)?;
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{}: entries 1 to {} of the record {}",
        path.display(),
        restored.last,
        restored.record,
    )?;
    if restored.last < restored.lost_until {
        writeln!(
            out,
            "  numbers {} to {} may have been given after the backup, and are noted as lost",
            restored.last + 1,
            restored.lost_until,
        )?;
    }
    Ok(Exit::Done)
}

fn list(
    source: &DecisionSource,
    filter: &DecisionFilter,
    rows: &ListArguments,
) -> anyhow::Result<Exit> {
    let screen = Screen::of_stdout();
    let mut out = Listing::new(rows, source.layout());
    source.visit(filter, Direction::NewestFirst, |record| {
        out.row(|| row_json(&record), || record_line(&record, screen))
    })?;
    let exit = out.end()?;
    source.tell_removals(filter, rows.form())?;
    Ok(exit)
}

/// Prints everything that the record has on the decision that `subject` names.
fn show(
    source: &DecisionSource,
    subject: &DecisionSubject,
    form: OutputForm,
) -> anyhow::Result<Exit> {
    if let (DecisionSubject::Number(DecisionName { node: Some(_), .. }), false) =
        (subject, source.has_nodes())
    {
        let text = "the number of a decision is wanted: NODE/SEQ goes with --archive";
        return Err(Usage::Arguments(text.to_owned()).into());
    }
    let Some(explanation) = source.explain(subject)? else {
        if let Some(event) = source.event(subject)? {
            return print_event(&event, form);
        }
        report_missing(source, subject)?;
        return Ok(Exit::Not);
    };
    let mut out = io::stdout().lock();
    match form {
        OutputForm::Json => write_json(&mut out, &explanation.json())?,
        OutputForm::Columns => sections::write(&explanation, Screen::of_stdout(), &mut out)?,
    }
    Ok(Exit::Done)
}

/// Prints everything that the record has on an event.
fn print_event(event: &EventRow, form: OutputForm) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    match form {
        OutputForm::Json => write_json(&mut out, &event.json())?,
        OutputForm::Columns => {
            writeln!(out, "{}\n{}", event_layout().header, event_line(event))?;
            if let Some(configuration) = event.configuration() {
                // Line by line: `inert` makes the end of a line visible, too.
                for line in configuration.text.lines() {
                    writeln!(out, "{}", inert(line))?;
                }
            }
        }
    }
    Ok(Exit::Done)
}

/// Says on stderr which decisions there are instead.
fn report_missing(source: &DecisionSource, subject: &DecisionSubject) -> anyhow::Result<()> {
    let wanted = match subject {
        DecisionSubject::Number(name) => name.to_string(),
        DecisionSubject::Url(target) => format!("about {target}"),
    };
    let mut stderr = io::stderr().lock();
    match source {
        DecisionSource::Record { reader, .. } => {
            let range = match reader.seq_range()? {
                None => "the record is empty".to_owned(),
                Some(range) => format!("its decisions are {} to {}", range.first, range.last),
            };
            writeln!(
                stderr,
                "politesse: there is no decision {wanted} on record; {range}"
            )?;
            if let last @ 1.. = reader.pruned_until()? {
                writeln!(
                    stderr,
                    "  entries up to {last} were removed, since they were old"
                )?;
            }
        }
        #[cfg(feature = "postgres")]
        DecisionSource::Archive(_) => writeln!(
            stderr,
            "politesse: there is no decision {wanted} in the archive; the newest of each node \
             may not have arrived yet"
        )?,
    }
    if let DecisionSubject::Url(target) = subject {
        let beginning = &target.origin;
        writeln!(stderr, "  try: politesse audit list --url '{beginning}/*'")?;
    }
    Ok(())
}
