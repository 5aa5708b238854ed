//! `audit`: shows and counts decisions and events of the record, and verifies the
//! record.

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
    /// The newest decisions; the newest first.
    #[command(after_help = format!("\
Examples:
  politesse audit list --host site.example --verdict disallow
  politesse audit list --from 1h --rule 'Disallow: /private'
  politesse audit list --url 'https://site.example/shop/*' --limit 0 --json

{FILTERS_HELP}

A URL is cut to the width of a terminal, and complete in a file or a pipe. --json has
every field, one row per line."))]
    List {
        #[command(flatten)]
        which: DecisionArguments,
        #[command(flatten)]
        rows: ListArguments,
    },
    /// Everything on record about one decision, with the robots.txt it is based on.
    #[command(after_help = "\
Examples:
  politesse audit show 17
  politesse audit show https://site.example/private/a
  politesse audit --archive show eu-1/17

The number is the first column of `list`, and is given in each refusal (`decision`). For
a URL the newest decision is shown; `others` is the number of further ones. Exit codes:
0 shown, 1 there is no such decision.")]
    Show {
        /// Number of a decision, with its node in an archive, or a URL.
        #[arg(value_name = "[NODE/]SEQ|URL")]
        subject: DecisionSubject,
        /// Prints one JSON object: the row of `list`, and everything that it refers to.
        #[arg(long)]
        json: bool,
    },
    /// The robots.txt of a host that was in force at a given time.
    #[command(after_help = "\
Examples:
  politesse audit robots site.example
  politesse audit robots site.example --at 2026-11-22T10:00:00Z > robots.txt
  politesse audit robots https://site.example:8443 --crawler FooBot
  politesse audit robots site.example --history

Only the bytes of the file go to stdout; their source goes to stderr. If several origins
or crawlers of the host had different files, they are listed, and you have to choose one
(exit code 2). Files are on record from the first decision that is based on them. Exit
codes: 0 printed, 1 there was no file, or none is on record.

--history shows each version of the file: when it was first and last fetched, its
SHA-256, the lines that changed, and how many requests each of its rules decided.")]
    Robots(RobotsArguments),
    /// When sites asked for fewer requests (429, 503) and were asked again, and events
    /// of the proxy: starts, stops, changes of its configuration. The newest first.
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

For a URL that was never requested, it says so, and what the proxy would decide with this
configuration and the robots.txt on record. --csv has one line per fact. Exit codes:
0 there is a decision, 1 there is none.")]
    Why(WhyArguments),
    /// Decisions counted by host, URL, crawler, rule, reason and hour; those with the
    /// most requests come first.
    #[command(after_help = format!("\
Examples:
  politesse audit stats --by host,crawler --from 1d
  politesse audit stats --by url,rule,crawler --host site.example --verdict disallow --from 1h
  politesse audit stats --by hour --host site.example --limit 0 --csv

Without --by all decisions are counted together. Columns: requests; refusals: disallowed
and not sent; reported: let through by report mode; later: put off; the time that
requests waited; bytes of bodies passed on; exchanges that ended with an error. Hours are
UTC.

{FILTERS_HELP}"))]
    Stats(StatsArguments),
    /// The rules, hosts or crawlers with the most refusals.
    #[command(after_help = format!("\
Examples:
  politesse audit top rules --from 1h
  politesse audit top hosts --crawler FooBot --limit 20

The columns are those of `stats`. Rows with equal refusals are ordered by the requests
that report mode let through, then by all requests.

{FILTERS_HELP}"))]
    Top(TopArguments),
    /// The URLs that a crawl requested and did not get, with reasons.
    #[command(after_help = format!("\
Examples:
  politesse audit missed --label shop-2026-11
  politesse audit missed --label shop-2026-11 --csv > missed.csv
  politesse audit missed --crawler FooBot --from 1d --json

A URL is missed if no request for it was answered. The newest decision about it gives the
reason: `refused` by a rule, by the operator or because robots.txt was unreachable;
`preference`: refused for the purposes of the crawler; `withheld`: fetched and not passed
on; `put_off` by the proxy or by the site (429, 503); `refused_by_site` (401, 402, 403,
451, a bot challenge); `error`: the site could not be reached, failed (5xx) or broke off,
or the client left early.
Redirects and pages that do not exist (404) are answers. HEAD is not counted.

{FILTERS_HELP}"))]
    Missed(MissedArguments),
    /// How fast crawlers sent requests, the fastest first, and which hosts asked for
    /// fewer.
    #[command(after_help = "\
Examples:
  politesse audit speed --from 1h
  politesse audit speed --by crawler --from 1d
  politesse audit speed --by host --host site.example --csv

Columns: requests sent, including repeats; the most within one minute of the clock; the
median pause between two requests; how often the host asked for fewer requests (429, 503)
in that time, from any crawler; and the end of the last such back-off. Requests for
robots.txt are not counted.")]
    Speed(SpeedArguments),
    /// Which past decisions another configuration would change.
    #[command(after_help = format!("\
Examples:
  politesse audit replay --with new.toml --from 7d
  politesse --set enforcement.mode=report audit replay --host site.example --csv
  politesse audit replay --with new.toml --against recorded

Each decision is made again from the data on record, with the policy (overrides, report
mode, dialect, readings, candidates, 401 and 403) and the names of crawlers of the other
configuration: --with FILE, or the current one with --set. It is compared with the
decision of the current configuration; with --against recorded, or without another
configuration, with the decision on record. --config chooses the record, as everywhere.
Pace and egress are not replayed: requests that were put off count by the rule that let
them through, and decisions without a robots.txt are counted as not decided again. Exit
codes: 0 nothing changes, 1 something changes, 3 nothing changes where it can be decided
again, and some decisions cannot be.

{FILTERS_HELP}"))]
    Replay(ReplayArguments),
    /// A page about a period, for readers: HTML without scripts that prints on A4.
    #[command(after_help = "\
Examples:
  politesse audit report --from 2026-11-01 --until 2026-12-01 -o november.html
  politesse audit report --for-site site.example --from 7d -o site.html

It shows what was requested, what was refused and by whose rule, how fast hosts were
asked, who asked for less, what could not be known, and how to check all of it.
--for-site makes a page for the owner of a site who asks who came: without other hosts
and without client addresses. Its decisions are verified as well. FILE must not exist
yet. Exit codes: 0 written, 1 written, but the record does not support it.")]
    Report(ReportArguments),
    /// Decisions as they are made, until interrupted.
    #[command(after_help = format!("\
Example: politesse audit tail --host site.example --verdict disallow

A decision is shown once it is on disk, usually without the status, which comes with the
end of its exchange.

{FILTERS_HELP}"))]
    Tail(TailArguments),
    /// Decisions for other programs, the oldest first: JSON Lines, CSV, WARC.
    #[command(after_help = format!("\
Examples:
  politesse audit export --as csv --from 2026-11-01 --until 2026-12-01 -o november.csv
  politesse audit export --as jsonl --from 1h | your-collector
  politesse audit export --as warc --host site.example -o site.warc.gz

jsonl is `list --json` with a version and more of the data behind a decision. warc has
each robots.txt as a response and each decision as a metadata record that refers to it;
if FILE ends in .gz, each record is compressed separately. FILE must not exist yet.

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
must not exist yet.")]
    Bundle(BundleArguments),
    /// Removes old entries; from an archive, old months.
    #[command(after_help = "\
Examples:
  politesse audit prune --before 400d --why 'kept for 400 days'
  politesse audit prune --before 400d --why 'kept for 400 days' --yes
  politesse audit --archive prune --before 2026-01-01 --why 'kept for a year'

Without --yes the command only shows which entries would be removed. Entries are removed
in parts of 8,192 numbers, once all of a part is older than that time, together with the
data that only they referred to. An event records who did it, and `verify` distinguishes
removed entries from missing ones. A running proxy does it step by step; otherwise the
command does it itself. To do it daily: audit.retention.

With --archive whole months (UTC) of all nodes are removed, once all of a month is older
than that time. An archive proves nothing: the records of the nodes stay unchanged.")]
    Prune(PruneArguments),
    /// Removes client and URL from decisions; all proofs stay valid.
    #[command(after_help = "\
Examples:
  politesse audit redact --url 'https://site.example/users/*' --why 'request of 22 November'
  politesse audit redact --client 192.0.2.7 --until 30d --why 'request of 22 November' --yes

Both are replaced by a hash that no guess can be checked against. Verdict, rule and
robots.txt stay, and with them the name of the host. An event records the numbers, the
reason and who did it; `verify` counts these decisions separately. Without --yes they are
only counted. Backups and exports are not touched.")]
    Redact(RedactArguments),
    /// Copies the record to a file, also while a proxy writes to it.
    #[command(after_help = "\
Example: politesse audit backup /backups/audit-2026-11-22.db

The file must not exist yet. It is a complete record as of one moment:
`--set audit.store=sqlite:FILE` lets every command read it, above all `verify`.")]
    Backup {
        /// File to create.
        file: PathBuf,
    },
    /// Replaces a damaged record with a backup.
    #[command(after_help = "\
Example: politesse audit restore /backups/audit-2026-11-22.db

The proxy must not be running. The remains of the record are set aside beside it
(audit.db.before-TIME). Numbers assigned after the backup are noted as lost, and an event
says so: none is assigned again. An intact record is not replaced. Exit codes: 0
restored, 1 not.")]
    Restore {
        /// Backup to restore.
        file: PathBuf,
    },
    /// Ships all entries to the archive, a PostgreSQL database for many nodes.
    #[cfg(feature = "postgres")]
    #[command(after_help = "\
Examples:
  politesse audit ship --once
  politesse audit ship --to postgres://db.example/politesse

A proxy with audit.archive ships on its own; this is for a record that no proxy writes to,
or for one without that key. Without --once it follows the record until interrupted.
Entries already shipped are not shipped again. Exit codes: 0 all have arrived, 1 not.")]
    Ship(ShipArguments),
    /// Decides again from the stored data, and reports what does not match.
    #[command(after_help = format!("\
Examples:
  politesse audit verify --from 2026-11-01
  politesse audit verify --key politesse.key --head heads.txt
  politesse audit verify site.jsonl.gz --key politesse.key

{FILTERS_HELP}

Without a filter the whole record is checked, including gaps, robots.txt bodies and heads.
--head compares it with exported heads (`audit head`, `audit.seal_to`), which should be
kept where no one with write access to the record can change them.

A bundle is verified without the record. The last line is OK, OK, but ..., or FAILED.
Exit codes: 0 nothing was found, 1 something does not match, 3 with --key some entries
have no checked signature (those after the newest head); a bundle matches and no --key
was given; or entries were removed by age meanwhile, which may explain the findings:
verify again."))]
    Verify(VerifyArguments),
    /// The public key that heads of the record are signed with.
    #[command(after_help = "\
Example: politesse audit key > politesse.key

Keep it away from the record: `audit verify --key` checks heads with it.")]
    Key,
    /// The newest signed head: the number of entries in the record, and the root of the
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
    // Opened only when needed, because `restore` is for a record that cannot be read.
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
                        heads (audit.seal_to) and its backups; leave out --archive";
            return Err(Usage::Arguments(text.to_owned()));
        }
        // Records are changed only where they are written.
        #[cfg(not(feature = "postgres"))]
        AuditCommand::Prune(_) => "prune",
        AuditCommand::Redact(_) | AuditCommand::Backup { .. } | AuditCommand::Restore { .. } => {
            let text = "this is done on the node, to its record: leave out --archive";
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
            let text =
                "a record is shipped from its own node: leave out --archive, or use --to URL";
            return Err(Usage::Arguments(text.to_owned()));
        }
    };
    Err(Usage::Arguments(format!(
        "the archive does not support {name}: use the record of a node, there and without --archive"
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

/// Prints everything on record about the decision that `subject` names.
fn show(
    source: &DecisionSource,
    subject: &DecisionSubject,
    form: OutputForm,
) -> anyhow::Result<Exit> {
    if let (DecisionSubject::Number(DecisionName { node: Some(_), .. }), false) =
        (subject, source.has_nodes())
    {
        let text = "the number of a decision is wanted: NODE/SEQ needs --archive";
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

/// Prints everything on record about an event.
fn print_event(event: &EventRow, form: OutputForm) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    match form {
        OutputForm::Json => write_json(&mut out, &event.json())?,
        OutputForm::Columns => {
            writeln!(out, "{}\n{}", event_layout().header, event_line(event))?;
            if let Some(configuration) = event.configuration() {
                // Line by line, because `inert` also escapes line ends.
                for line in configuration.text.lines() {
                    writeln!(out, "{}", inert(line))?;
                }
            }
        }
    }
    Ok(Exit::Done)
}

/// Prints to stderr which decisions exist instead.
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
                    "  entries up to {last} were removed, because they were old"
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
