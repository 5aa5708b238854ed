//! `judge`: decides the requests of a past crawl by the robots.txt files that applied
//! then, and counts the outcomes.
//!
//! Decides like `check`. Does not know the formats of archives and logs.

mod archive_file;
mod counts;
mod gathering;
mod logs;
mod outcome;
mod page;
mod past_request;
mod progress;
mod purposes;
mod report;
mod robots_index;
mod rows;
mod scan;
mod spool;
mod statements;
mod verdicts;

use std::path::PathBuf;

use clap::Args;
use politesse_crawls::CrawlLogFormat;
use politesse_directives::{CrawlPurpose, DirectiveLimits, PurposeSet};
use politesse_robots::crawler::{Crawler, InvalidToken, ProductToken};
use politesse_robots::origin::{Origin, Target};

use self::archive_file::ArchiveFile;
use self::counts::JudgeCounts;
use self::gathering::{GatherLimits, gather};
use self::logs::{LogFile, LogItem};
use self::outcome::{JudgedRequest, PastVerdict};
use self::page::write_page;
use self::past_request::PastRequest;
use self::report::print_counts;
use self::robots_index::AnswerChoice;
use self::rows::RequestRows;
use self::verdicts::{PastJudge, PastRobotsSource};
use super::audit::export::require_new;
use super::audit::rows::{FormArguments, RowForm};
use super::check::context::{CheckContext, TermArguments};
use super::check::saved::SavedFolder;
use super::configuration::ConfigurationRequest;
use super::lines::open;
use super::output::{Exit, print_notice, unless_closed};

/// Number of requests of a log that are judged at a time.
const BATCH_REQUESTS: usize = 8192;

/// Arguments of `judge`.
#[derive(Debug, Args)]
pub(super) struct JudgeArguments {
    /// WARC files, plain or gzip, in any order; - for standard input.
    #[arg(long, value_name = "FILE", num_args = 1.., required_unless_present = "log")]
    warc: Vec<PathBuf>,
    /// Logs: Common or Combined Log Format, Scrapy's, Heritrix' crawl.log; - for standard input.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "warc", requires = "robots")]
    log: Vec<String>,
    /// A folder of saved robots.txt files, named by host as for `check`, to use instead
    /// of those in the archive.
    #[arg(long, value_name = "DIR")]
    robots: Option<PathBuf>,
    /// Crawler to assume for requests without one: a product token or a User-Agent.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Product tokens of crawlers, separated by commas: each request is judged for all
    /// of them, regardless of which made it, and is disallowed if it is for any.
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', conflicts_with = "agent", value_parser = token)]
    agents: Vec<ProductToken>,
    /// The site of a server's log, such as `https://site.example`.
    #[arg(long, value_name = "URL", requires = "log", value_parser = origin)]
    origin: Option<Origin>,
    /// Format of the logs, if it cannot be detected: common, combined, scrapy,
    /// heritrix.
    #[arg(long, value_name = "FORM", requires = "log")]
    format: Option<CrawlLogFormat>,
    /// Judges a request that no robots.txt precedes by the first one after it.
    #[arg(long, conflicts_with = "log")]
    nearest_after: bool,
    /// Purposes that the pages were fetched for, separated by commas: train-ai, search,
    /// ai-input, archive, images. Counts the pages for which robots.txt or the response
    /// denies every one.
    #[arg(long, value_name = "PURPOSES", value_delimiter = ',')]
    purpose: Vec<CrawlPurpose>,
    #[command(flatten)]
    terms: TermArguments,
    /// Lists the requests themselves instead of counts.
    #[arg(long)]
    requests: bool,
    /// Lists only the requests with this verdict: disallow, unknown or allow.
    #[arg(long, value_name = "VERDICT", requires = "requests", value_parser = verdict)]
    verdict: Option<PastVerdict>,
    /// Lists only the pages that are denied for the purposes.
    #[arg(long, requires = "requests", requires = "purpose")]
    denied: bool,
    /// Also writes a page for readers: HTML without scripts that prints on A4. The file
    /// must not exist yet.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Maximum number of rows in a table of counts; 0 means all.
    #[arg(long, default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    form: FormArguments,
}

impl JudgeArguments {
    fn purposes(&self) -> PurposeSet {
        PurposeSet::of(&self.purpose)
    }

    /// Reports whether to list a request.
    fn lists(&self, judged: &JudgedRequest) -> bool {
        self.verdict
            .is_none_or(|verdict| verdict == judged.verdict())
            && (!self.denied || judged.is_denied(self.purposes()))
    }
}

/// Parses the value of `--origin`.
fn origin(text: &str) -> Result<Origin, String> {
    let target: Target = text.parse().map_err(|error| format!("{error}"))?;
    if target.path_and_query() != "/" {
        return Err("it has no path".to_owned());
    }
    Ok(target.origin)
}

/// Parses one of the values of `--agents`.
fn token(text: &str) -> Result<ProductToken, InvalidToken> {
    ProductToken::new(text.trim())
}

/// Parses the value of `--verdict`.
fn verdict(text: &str) -> Result<PastVerdict, String> {
    let verdicts = [
        PastVerdict::Disallow,
        PastVerdict::Unknown,
        PastVerdict::Allow,
    ];
    let found = verdicts
        .into_iter()
        .find(|verdict| verdict.as_str() == text);
    found.ok_or_else(|| "one of disallow, unknown, allow".to_owned())
}

/// Judges the requests of archives or logs, and prints the counts or the requests.
///
/// # Errors
///
/// Invalid arguments, and files that cannot be read or have another format.
pub(super) fn judge(
    arguments: &JudgeArguments,
    configuration: ConfigurationRequest<'_>,
) -> anyhow::Result<Exit> {
    // Checked before hours of judging, not afterwards.
    if let Some(path) = &arguments.html {
        require_new(path)?;
    }
    let context = CheckContext::offline(&arguments.terms, configuration)?;
    let agents: Vec<Crawler> = arguments
        .agents
        .iter()
        .map(|token| context.crawler(Some(token.as_str())))
        .collect();
    let folder = match &arguments.robots {
        Some(path) => Some(SavedFolder::open(path.clone(), &context)?),
        None => None,
    };
    if let (Some(folder), [_, ..]) = (&folder, arguments.log.as_slice()) {
        let judge = PastJudge {
            context: &context,
            robots: PastRobotsSource::Folder(folder),
            agent: arguments.agent.as_deref(),
            agents: &agents,
            purposes: arguments.purposes(),
        };
        let mut judging = Judging::new(arguments, &arguments.log, JudgeCounts::default());
        judge_logs(arguments, &judge, &mut judging)?;
        return judging.end();
    }
    let opened = arguments.warc.iter().map(|path| ArchiveFile::open(path));
    let files = opened.collect::<Result<Vec<_>, _>>()?;
    let names: Vec<_> = files.iter().map(ArchiveFile::name).collect();
    let mut counts = JudgeCounts::default();
    let limits = GatherLimits {
        robots_bytes: context.bytes_max,
        page_bytes: (!arguments.purpose.is_empty())
            .then_some(DirectiveLimits::default().scan_limit),
    };
    let gathered = gather(&files, limits, &mut counts)?;
    let left_out = gathered.answers.left_out();
    if 0 < left_out {
        print_notice(&format!(
            "{left_out} robots.txt answers were too many and do not count"
        ));
    }
    let choice = if arguments.nearest_after {
        AnswerChoice::BeforeElseAfter
    } else {
        AnswerChoice::Before
    };
    let judge = PastJudge {
        context: &context,
        robots: match &folder {
            Some(folder) => PastRobotsSource::Folder(folder),
            None => PastRobotsSource::Archive(Box::new(gathered.answers.index(&context, choice))),
        },
        agent: arguments.agent.as_deref(),
        agents: &agents,
        purposes: arguments.purposes(),
    };
    let mut judging = Judging::new(arguments, &names, counts);
    for batch in gathered.requests.batches() {
        judging.judge(&judge, batch?)?;
    }
    judging.end()
}

/// Judges the requests of logs by saved robots.txt files.
fn judge_logs(
    arguments: &JudgeArguments,
    judge: &PastJudge<'_>,
    judging: &mut Judging<'_>,
) -> anyhow::Result<()> {
    let mut batch = Vec::new();
    for (number, name) in (0..).zip(&arguments.log) {
        let log = LogFile {
            name,
            number,
            format: arguments.format,
            origin: arguments.origin.as_ref(),
        };
        log.read(open(name)?, &mut |item| {
            match item {
                LogItem::Request(request) => batch.push(request),
                LogItem::Unread(part) => judging.counts.add_unread(part),
            }
            if batch.len() == BATCH_REQUESTS {
                judging.judge(judge, std::mem::take(&mut batch))?;
            }
            Ok(())
        })?;
    }
    judging.judge(judge, batch)
}

/// Judges one batch after the other, and holds the output.
struct Judging<'a> {
    arguments: &'a JudgeArguments,
    /// Paths of the files.
    files: &'a [String],
    counts: JudgeCounts,
    /// Writer of the requests; `None` if only counts are wanted.
    rows: Option<RequestRows<'a>>,
}

impl<'a> Judging<'a> {
    fn new(arguments: &'a JudgeArguments, files: &'a [String], mut counts: JudgeCounts) -> Self {
        counts.files = files.len();
        counts.agents = arguments.agents.iter().map(ToString::to_string).collect();
        let form = arguments.form.form();
        counts.purposes.purposes = arguments.purposes();
        let rows = arguments
            .requests
            .then(|| RequestRows::new(form, files, arguments.purposes()));
        Self {
            arguments,
            files,
            counts,
            rows,
        }
    }

    fn judge(&mut self, judge: &PastJudge<'_>, requests: Vec<PastRequest>) -> anyhow::Result<()> {
        for judged in judge.judge_all(requests) {
            self.counts.add(&judged);
            let is_wanted = self.arguments.lists(&judged);
            if let Some(rows) = self.rows.as_mut().filter(|_| is_wanted) {
                unless_closed(rows.write(&judged))?;
            }
        }
        Ok(())
    }

    /// Prints the counts, unless the requests were listed, and returns the exit code.
    fn end(self) -> anyhow::Result<Exit> {
        let counts = &self.counts;
        let form = self.arguments.form.form();
        let are_rows = self.rows.is_some() || form == RowForm::Csv;
        match self.rows {
            Some(rows) => unless_closed(rows.end())?,
            None => unless_closed(print_counts(counts, form, self.arguments.limit))?,
        }
        // Rows cannot show requests that are in none of them.
        for (number, of_what) in [
            (counts.unread, "parts of the files that were not read"),
            (counts.ungrouped.all(), "requests that are in no group"),
            (
                counts.overridden,
                "requests disallowed by robots.txt and allowed by robots.override",
            ),
        ] {
            if are_rows && 0 < number {
                print_notice(&format!("{of_what}: {number}"));
            }
        }
        if let Some(path) = &self.arguments.html {
            write_page(counts, self.files, path)?;
        }
        if counts.totals.all() == 0 {
            print_notice("there is no request to judge");
        }
        // Unlike in other commands, a disallowed request outweighs an unknown one:
        // nearly every archive has requests without a verdict.
        Ok(
            match (
                counts.totals.disallowed + counts.purposes.denied,
                counts.totals.unknown + counts.unread,
            ) {
                // An empty file proves nothing about a crawl.
                (0, 0) if 0 < counts.totals.all() => Exit::Done,
                (0, _) => Exit::Unknown,
                (_, _) => Exit::Not,
            },
        )
    }
}
