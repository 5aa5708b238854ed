//! Requests to judge, read from a log.
//!
//! Does not know the robots.txt files that they are judged by: a log has none.

use std::fmt::Write as _;
use std::io::BufRead;

use anyhow::Context as _;
use politesse_crawls::{
    CrawlLogEntry, CrawlLogFormat, CrawlLogReader, LoggedAgent, LoggedRequest, LoggedUrl,
};
use politesse_robots::origin::Origin;

use super::counts::UnreadPart;
use super::past_request::{PastAgent, PastRequest};
use crate::cli::output::Usage;

/// Log file.
pub(super) struct LogFile<'a> {
    /// Path, as given by the user.
    pub(super) name: &'a str,
    /// Number of the file, counted from 0.
    pub(super) number: u32,
    /// Format of the log, if the user gave it.
    pub(super) format: Option<CrawlLogFormat>,
    /// Site of the server that wrote the log, if the user gave it.
    pub(super) origin: Option<&'a Origin>,
}

/// Part of a log.
pub(super) enum LogItem {
    /// Request of the crawl.
    Request(PastRequest),
    /// Line that is not understood.
    Unread(UnreadPart),
}

impl LogFile<'_> {
    /// Passes each request, and each malformed line, to `take`.
    ///
    /// # Errors
    ///
    /// [`Usage::Arguments`] if the log needs a site or a format that is not given; any
    /// error of reading the file, and of `take`.
    pub(super) fn read(
        &self,
        input: impl BufRead,
        take: &mut dyn FnMut(LogItem) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut lines = CrawlLogReader::new(input, self.format);
        // Latest name that the log gives for the crawler of its requests.
        let mut crawler = None;
        loop {
            let read = lines.next_entry();
            let entry = read.with_context(|| format!("cannot read {}", self.name))?;
            let place = lines.line_number();
            let unread = |place| {
                LogItem::Unread(UnreadPart {
                    file: self.name.to_owned(),
                    place,
                    cause: "the line is not understood".to_owned(),
                })
            };
            // Until the format was detected, it was unknown which lines are malformed. Those
            // that the format cannot parse are reported now.
            let before = lines.take_unread_before().unwrap_or_default();
            for number in 0..before.count {
                let number = usize::try_from(number).unwrap_or(usize::MAX);
                let known = before.places.get(number).or(before.places.last());
                take(unread(known.copied().unwrap_or(place)))?;
            }
            match entry {
                None => break,
                Some(CrawlLogEntry::Other) => {}
                Some(CrawlLogEntry::Crawler(name)) => crawler = Some(name),
                Some(CrawlLogEntry::Malformed) => take(unread(place))?,
                Some(CrawlLogEntry::Request(request)) => {
                    let request = self.request(request, place, crawler.as_deref())?;
                    take(LogItem::Request(request))?;
                }
            }
        }
        // Otherwise a log in another format would look like one without requests.
        if lines.format().is_none() && 0 < lines.line_number() {
            let text = format!(
                "{}: no line has a known format; set the format with --format",
                self.name
            );
            return Err(Usage::Arguments(text).into());
        }
        Ok(())
    }

    /// Converts a logged request. `crawler` is the latest crawler that the log itself names.
    fn request(
        &self,
        request: LoggedRequest,
        place: u64,
        crawler: Option<&str>,
    ) -> Result<PastRequest, Usage> {
        let is_tunnel = matches!(request.url, LoggedUrl::Tunnel(_));
        let url = match request.url {
            LoggedUrl::Whole(url) => url,
            LoggedUrl::Tunnel(host) => format!("https://{host}/"),
            LoggedUrl::Path(path) => match self.origin {
                Some(origin) => {
                    let mut url = origin.to_string();
                    url.write_str(&path).unwrap_or_default();
                    url
                }
                None => {
                    let text = format!(
                        "{}, line {place}: the log does not name its site; set it with --origin, \
                         such as --origin https://site.example",
                        self.name
                    );
                    return Err(Usage::Arguments(text));
                }
            },
        };
        let agent = match (request.user_agent, crawler) {
            (LoggedAgent::Named(name), _) => PastAgent::Named(name),
            (LoggedAgent::Silent, _) => PastAgent::Silent,
            (LoggedAgent::Untold, Some(name)) => PastAgent::Named(name.to_owned()),
            (LoggedAgent::Untold, None) => PastAgent::Untold,
        };
        Ok(PastRequest {
            file: self.number,
            place,
            at: request.at,
            url,
            agent,
            status: request.status,
            is_tunnel,
            statements: None,
        })
    }
}
