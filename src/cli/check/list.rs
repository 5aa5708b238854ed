//! `check --robots-dir`: a list of URLs, each judged by the saved file of its host, on
//! all cores.
//!
//! The list is read in batches, so that memory stays bounded for any length. Does not
//! know how a file is found or what it says.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufRead, Write as _};
use std::path::Path;

use rayon::iter::ParallelIterator as _;
use rayon::slice::ParallelSlice as _;
use serde::Serialize;

use super::context::{CheckArguments, CheckContext, exit_of, target};
use super::saved::{SavedFolder, SavedResult};
use crate::cli::lines::{LineError, append_line};
use crate::cli::output::Exit;
use politesse_base::inert::append_json;
use politesse_decision::decide::{Inquiry, ruling};
use politesse_pages::explain::json::RulingJson;
use politesse_robots::origin::{Origin, Target};

/// Number of lines in the first batch. Each further batch has twice as many, up to
/// [`BATCH_LINES_MAX`]: a list from a pipe gets its first answers early, and in a long
/// list the cores wait for each other less often.
const FIRST_BATCH_LINES: usize = 512;
/// Maximum lines of a batch. Their answers are held until all are judged.
const BATCH_LINES_MAX: usize = 64 * 1024;
/// Maximum bytes of a batch, not counting its last line.
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Minimum lines that a core judges in a row, so that a short list also uses all cores.
const CHUNK_LINES_MIN: usize = 64;
/// Maximum lines that a core judges in a row. Lines of one origin are judged together,
/// so that longer runs need fewer files.
const CHUNK_LINES_MAX: usize = 4096;
/// Maximum length of a line, in bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Typical length of an answer, in bytes.
const ANSWER_BYTES: usize = 256;

/// Answer to a line.
#[derive(Serialize)]
struct ListAnswer<'a> {
    /// URL of the line, as written.
    url: &'a str,
    #[serde(flatten)]
    ruling: RulingJson<'a>,
}

/// Non-blank line of the list.
struct ListLine<'a> {
    /// Line number, counted from 1.
    number: u64,
    /// Text of the line, without white space around it.
    text: &'a [u8],
}

/// URL on a line.
struct ListedUrl<'a> {
    /// Line number, counted from 1.
    line: u64,
    /// Text of the line; empty if it is too long or not UTF-8.
    url: &'a str,
    /// Parsed URL, or the error of parsing it.
    target: Result<Target, String>,
}

/// Answers to several lines, in order.
struct JudgedLines {
    /// Answers, one a line.
    text: Vec<u8>,
    /// Greatest exit code of the lines.
    exit: Exit,
}

/// Judges every URL of `list` by its file in `folder`, and prints the answers in the
/// order of the list.
///
/// # Errors
///
/// The folder or the list cannot be read.
pub(super) fn list(
    arguments: &CheckArguments,
    context: &CheckContext,
    folder: &Path,
    list: impl BufRead,
) -> anyhow::Result<Exit> {
    let folder = SavedFolder::open(folder.to_owned(), context)?;
    let judge = ListJudge {
        agent: arguments.agent.as_deref(),
        context,
        folder: &folder,
        hasher: RandomState::new(),
    };
    let mut reader = BatchReader::new(list);
    let mut out = io::stdout().lock();
    let mut exit = Exit::Done;
    while let Some(batch) = reader.next_batch()? {
        for judged in judge.judge_batch(&batch)? {
            out.write_all(&judged.text)?;
            exit = exit.max(judged.exit);
        }
        out.flush()?;
    }
    Ok(exit)
}

/// Lines that are read before any of them is judged.
struct ListBatch {
    /// Line number of the first line, counted from 1.
    first_line: u64,
    /// Lines, each with its line end.
    text: Vec<u8>,
}

/// Reads the list in batches.
struct BatchReader<R> {
    list: R,
    /// Number of the next line to read.
    next_line: u64,
    /// Maximum lines of the next batch.
    batch_lines: usize,
}

impl<R: BufRead> BatchReader<R> {
    fn new(list: R) -> Self {
        Self {
            list,
            next_line: 1,
            batch_lines: FIRST_BATCH_LINES,
        }
    }

    /// Reads the next batch; `None` at the end of the list.
    fn next_batch(&mut self) -> io::Result<Option<ListBatch>> {
        let mut batch = ListBatch {
            first_line: self.next_line,
            text: Vec::new(),
        };
        let mut lines = 0;
        while lines < self.batch_lines
            && batch.text.len() < BATCH_BYTES_MAX
            && append_line(&mut self.list, &mut batch.text, LINE_BYTES_MAX)?
        {
            lines += 1;
        }
        self.next_line += lines as u64;
        self.batch_lines = (2 * self.batch_lines).min(BATCH_LINES_MAX);
        Ok((0 < lines).then_some(batch))
    }
}

impl ListBatch {
    /// Returns the non-blank lines.
    fn lines(&self) -> Vec<ListLine<'_>> {
        let lines = self.text.split(|byte| *byte == b'\n');
        (self.first_line..)
            .zip(lines.map(<[u8]>::trim_ascii))
            .filter(|(_, text)| !text.is_empty())
            .map(|(number, text)| ListLine { number, text })
            .collect()
    }
}

/// Parameters shared by all lines.
struct ListJudge<'a> {
    /// `User-Agent`, or the product token of the crawler.
    agent: Option<&'a str>,
    context: &'a CheckContext,
    folder: &'a SavedFolder<'a>,
    /// Hashes origins, to group lines of the same origin.
    hasher: RandomState,
}

/// State passed from one line to the next.
#[derive(Default)]
struct JudgeState {
    /// Inquiry of the previous line, of which only the URL changes.
    inquiry: Option<Inquiry>,
    /// Origin of the previous line, and its file.
    last: Option<(Origin, SavedResult)>,
}

impl ListJudge<'_> {
    /// Judges the lines of a batch on all cores.
    fn judge_batch(&self, batch: &ListBatch) -> serde_json::Result<Vec<JudgedLines>> {
        let lines = batch.lines();
        let share = lines.len().div_ceil(rayon::current_num_threads());
        lines
            .par_chunks(share.clamp(CHUNK_LINES_MIN, CHUNK_LINES_MAX))
            .map(|chunk| self.judge_chunk(chunk))
            .collect()
    }

    fn judge_chunk(&self, lines: &[ListLine<'_>]) -> serde_json::Result<JudgedLines> {
        let mut urls: Vec<_> = lines.iter().map(ListedUrl::read).collect();
        // In list order each line may need another file, so that files would be looked
        // up and read far more often.
        urls.sort_by_cached_key(|url| {
            let target = url.target.as_ref().ok();
            target.map(|target| self.hasher.hash_one(&target.origin))
        });
        let mut state = JudgeState::default();
        let mut answers = Vec::with_capacity(urls.len());
        let mut exit = Exit::Done;
        for url in urls {
            let mut text = Vec::with_capacity(ANSWER_BYTES);
            let line = url.line;
            exit = exit.max(self.judge(url, &mut state, &mut text)?);
            text.push(b'\n');
            answers.push((line, text));
        }
        answers.sort_unstable_by_key(|(line, _)| *line);
        let texts: Vec<_> = answers.into_iter().map(|(_, text)| text).collect();
        Ok(JudgedLines {
            text: texts.concat(),
            exit,
        })
    }

    /// Appends the answer to a line. A line that is not understood counts as a refusal;
    /// without a file the verdict is unknown.
    fn judge(
        &self,
        listed: ListedUrl<'_>,
        state: &mut JudgeState,
        text: &mut Vec<u8>,
    ) -> serde_json::Result<Exit> {
        let ListedUrl { line, url, target } = listed;
        let target = match target {
            Ok(target) => target,
            Err(error) => {
                let url = None;
                append_json(text, &LineError { line, url, error })?;
                return Ok(Exit::Not);
            }
        };
        let snapshot = match self.file(&target.origin, state) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                let (url, error) = (Some(url), error.to_string());
                append_json(text, &LineError { line, url, error })?;
                return Ok(Exit::Unknown);
            }
        };
        let inquiry = match &mut state.inquiry {
            Some(inquiry) => {
                inquiry.target = target;
                inquiry
            }
            none => none.insert(self.context.inquiry(self.agent, target)),
        };
        let ruling = ruling(inquiry, &snapshot, &self.context.policy, self.context.at);
        let answer = ListAnswer {
            url,
            ruling: RulingJson::new(&ruling, &inquiry.crawler),
        };
        append_json(text, &answer)?;
        Ok(exit_of(&ruling))
    }

    /// Finds the saved file of an origin. Consecutive lines often share it.
    fn file(&self, origin: &Origin, state: &mut JudgeState) -> SavedResult {
        if let Some((last, file)) = &state.last
            && last == origin
        {
            return file.clone();
        }
        let file = self.folder.find(origin);
        state.last = Some((origin.clone(), file.clone()));
        file
    }
}

impl<'a> ListedUrl<'a> {
    /// Parses the URL on a line.
    fn read(line: &ListLine<'a>) -> Self {
        let (url, target) = match url_text(line.text) {
            Ok(url) => (url, target(url).map_err(|error| error.to_string())),
            Err(error) => ("", Err(error)),
        };
        Self {
            line: line.number,
            url,
            target,
        }
    }
}

/// Returns the text of a line, unless it is too long (and thus perhaps cut) or not UTF-8.
fn url_text(line: &[u8]) -> Result<&str, String> {
    if LINE_BYTES_MAX < line.len() as u64 {
        return Err(format!("a URL is longer than {LINE_BYTES_MAX} bytes"));
    }
    str::from_utf8(line).map_err(|error| format!("a URL is not UTF-8: {error}"))
}
