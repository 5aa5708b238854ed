//! `check --robots-dir`: a list of URLs, each judged by the saved file of its
//! host, on all cores.
//!
//! Every worker takes the next piece of the list, judges it, and writes when
//! its turn has come. Within a piece the URLs of one origin are judged
//! together: a list in no order would bring in another file for each.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufRead, Write};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use serde::Serialize;

use super::answer::Members;
use super::folder::{Folder, Found};
use super::pieces::{EndOnPanic, InOrder, LINE_BYTES_MAX, Piece, Pieces, Written, locked};
use super::terms::Terms;
use super::{CheckArguments, target, worse};
use crate::cli::inert::append_json;
use crate::cli::lines::LineError;
use crate::cli::output::Exit;
use crate::decision::decide::{Inquiry, ruling};
use politesse_robots::origin::{Origin, Target};

/// The answer to a line.
#[derive(Serialize)]
struct Answer<'a> {
    url: &'a str,
    #[serde(flatten)]
    members: Members<'a>,
}

/// Judges every URL of `list` by the file for it in `folder`.
pub(super) fn listed(
    (check, terms): (&CheckArguments, &Terms),
    folder: &Path,
    list: impl BufRead + Send,
) -> anyhow::Result<Exit> {
    let folder = Folder::open(folder.to_owned(), terms)?;
    let pieces = Mutex::new(Pieces::of(list));
    let out = InOrder::new(io::stdout());
    let work = || {
        let _end = EndOnPanic(&out);
        let worker = Worker::new((check, terms), &folder);
        let end = worker.work(&pieces, &out);
        if end.is_err() {
            out.end();
        }
        end
    };
    let workers = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let ends: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let ends = running.into_iter().map(|worker| worker.join());
        ends.collect()
    });
    let mut exit = Exit::Done;
    for end in ends {
        let end = end.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        exit = exit.max(end?);
    }
    Ok(exit)
}

/// What judges pieces, one after the other.
struct Worker<'a> {
    check: &'a CheckArguments,
    terms: &'a Terms,
    folder: &'a Folder<'a>,
    /// For bringing together what belongs to one origin.
    hasher: RandomState,
    /// The question before, of which only the URL changes.
    inquiry: Option<Inquiry>,
    /// The origin asked about before.
    last: Option<(Origin, Found)>,
    /// The answers in the order in which they were found.
    found: Vec<u8>,
    exit: Exit,
}

/// A line of a piece.
struct Question<'a> {
    line: u64,
    url: &'a str,
    /// The URL; or why it is none.
    target: Result<Target, String>,
    /// Where its answer is.
    answer: Range<usize>,
}

impl<'a> Worker<'a> {
    fn new((check, terms): (&'a CheckArguments, &'a Terms), folder: &'a Folder<'a>) -> Self {
        Self {
            check,
            terms,
            folder,
            hasher: RandomState::new(),
            inquiry: None,
            last: None,
            found: Vec::new(),
            exit: Exit::Done,
        }
    }

    /// Judges what is left of the list, piece by piece.
    fn work<R: BufRead, W: Write>(
        mut self,
        pieces: &Mutex<Pieces<R>>,
        out: &InOrder<W>,
    ) -> anyhow::Result<Exit> {
        loop {
            let piece = locked(pieces).next_piece()?;
            let Some(piece) = piece else { break };
            let answers = self.judge(&piece)?;
            if out.write(piece.number, &answers)? == Written::Ended {
                break;
            }
        }
        Ok(self.exit)
    }

    /// The answers to all lines of a piece, in their order.
    fn judge(&mut self, piece: &Piece) -> serde_json::Result<Vec<u8>> {
        let lines = piece.text.split(|byte| *byte == b'\n');
        let mut questions: Vec<_> = (piece.line..)
            .zip(lines)
            .filter_map(|(line, text)| question(line, text.trim_ascii()))
            .collect();
        self.found.clear();
        for at in self.by_origin(&questions) {
            let Some(question) = questions.get_mut(at) else {
                continue;
            };
            let start = self.found.len();
            let target = std::mem::replace(&mut question.target, Err(String::new()));
            self.answer((question.line, question.url), target)?;
            self.found.push(b'\n');
            question.answer = start..self.found.len();
        }
        let mut answers = Vec::with_capacity(self.found.len());
        for question in questions {
            let answer = self.found.get(question.answer);
            answers.extend_from_slice(answer.unwrap_or_default());
        }
        Ok(answers)
    }

    /// The places of the questions, those of one origin together.
    fn by_origin(&self, questions: &[Question<'_>]) -> impl Iterator<Item = usize> + use<> {
        let origin = |question: &Question<'_>| match &question.target {
            Ok(target) => self.hasher.hash_one(&target.origin),
            Err(_) => 0,
        };
        let places = questions.iter().zip(0..);
        let mut places: Vec<(u64, usize)> = places
            .map(|(question, at)| (origin(question), at))
            .collect();
        places.sort_unstable();
        places.into_iter().map(|(_, at)| at)
    }

    /// Appends the answer to a question.
    fn answer(
        &mut self,
        (line, url): (u64, &str),
        target: Result<Target, String>,
    ) -> serde_json::Result<()> {
        let target = match target {
            Ok(target) => target,
            Err(error) => return self.unanswered((line, None), (Exit::Not, error)),
        };
        let snapshot = match self.snapshot(&target.origin) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                let error = error.to_string();
                return self.unanswered((line, Some(url)), (Exit::Unknown, error));
            }
        };
        let inquiry = self.inquiry.get_or_insert_with(|| Inquiry {
            crawler: self.terms.crawler(self.check.agent.as_deref()),
            target: target.clone(),
            method: "GET".to_owned(),
        });
        inquiry.target = target;
        let policy = self.check.policy(self.terms);
        let ruling = ruling(inquiry, &snapshot, policy, self.terms.at);
        self.exit = worse(self.exit, &ruling);
        let members = Members::of(&ruling, &inquiry.crawler);
        append_json(&mut self.found, &Answer { url, members })
    }

    fn snapshot(&mut self, origin: &Origin) -> Found {
        if let Some((last, found)) = &self.last
            && last == origin
        {
            return found.clone();
        }
        let found = self.folder.find(origin);
        self.last = Some((origin.clone(), found.clone()));
        found
    }

    /// Says why a line has no answer. One that is not understood counts as a
    /// refusal, a file that is not there as not knowing.
    fn unanswered(
        &mut self,
        (line, url): (u64, Option<&str>),
        (exit, error): (Exit, String),
    ) -> serde_json::Result<()> {
        self.exit = self.exit.max(exit);
        append_json(&mut self.found, &LineError { line, url, error })
    }
}

/// What a line asks, unless it is blank.
fn question(line: u64, text: &[u8]) -> Option<Question<'_>> {
    if text.is_empty() {
        return None;
    }
    let (url, target) = match written(text) {
        Ok(url) => (url, target(url).map_err(|error| error.to_string())),
        Err(error) => ("", Err(error)),
    };
    Some(Question {
        line,
        url,
        target,
        answer: 0..0,
    })
}

fn written(line: &[u8]) -> Result<&str, String> {
    if LINE_BYTES_MAX < line.len() as u64 {
        return Err(format!("a URL is longer than {LINE_BYTES_MAX} bytes"));
    }
    str::from_utf8(line).map_err(|error| format!("a URL that is not UTF-8: {error}"))
}
