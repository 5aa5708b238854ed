//! Requests of a past crawl, and the exchanges of an archive, in which request and
//! response are separate records.
//!
//! The records of one exchange refer to each other (`WARC-Concurrent-To`, ISO 28500,
//! section 5.7). Without that field they are matched by URL and time. Does not know the
//! decisions.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::mem;

use jiff::Timestamp;
use politesse_crawls::{ArchivedMessage, MessageSide};
use politesse_directives::ResponseStatements;
use serde::{Deserialize, Serialize};

/// Number of exchanges that are searched for the other side of a message. Writers put
/// both sides next to each other, or nearly so if they write several exchanges at a
/// time.
const WINDOW: usize = 1024;

/// Request of a past crawl.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PastRequest {
    /// Number of the file on the command line, counted from 0.
    pub(super) file: u32,
    /// Place in the file: byte offset in an archive, line number in a log.
    pub(super) place: u64,
    /// Time, if known.
    pub(super) at: Option<Timestamp>,
    /// URL as in the file.
    pub(super) url: String,
    /// Crawler.
    pub(super) agent: PastAgent,
    /// Status of the response, if known.
    pub(super) status: Option<u16>,
    /// Whether the request is a CONNECT to a proxy; then the URL is the host's.
    pub(super) is_tunnel: bool,
    /// Statements of the response, if it was read for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) statements: Option<Box<ResponseStatements>>,
}

impl PastRequest {
    /// Returns the approximate memory of the request, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let agent = match &self.agent {
            PastAgent::Named(name) => name.len(),
            PastAgent::Untold | PastAgent::Silent => 0,
        };
        let statements = self.statements.as_ref().map_or(0, |it| it.bytes());
        size_of::<Self>() + self.url.len() + agent + statements
    }

    /// Reports whether the crawl received a page, or still has it: the site did not
    /// answer with an error or a redirect.
    pub(super) fn got_page(&self) -> bool {
        !self.is_tunnel && matches!(self.status, None | Some(200..=299 | 304))
    }
}

/// Crawler of a past request, as the file names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum PastAgent {
    /// The file does not contain the `User-Agent` of its requests.
    Untold,
    /// The request had no `User-Agent`.
    Silent,
    /// The `User-Agent` had this value.
    Named(String),
}

/// Exchange of which one side or both have been read.
struct PastExchange {
    /// Request, with what the response tells about it. Without a request record, made from
    /// the response alone.
    request: PastRequest,
    /// Whether the request has been read.
    has_request: bool,
    /// Whether the response has been read.
    has_response: bool,
    /// Hashes for finding the other side ([`Exchanges::keys`]).
    keys: Vec<u64>,
}

/// Messages of one file, joined into exchanges.
pub(super) struct Exchanges {
    /// Number of the file on the command line.
    file: u32,
    /// `User-Agent` in the latest `warcinfo` record. Used for responses without a request.
    crawler: Option<String>,
    /// Latest exchanges, whose other side may still come.
    window: VecDeque<PastExchange>,
    /// Number of the first exchange in `window`.
    first: u64,
    /// Numbers of exchanges in `window`, by their keys.
    by_key: HashMap<u64, u64>,
    hasher: RandomState,
}

impl Exchanges {
    /// Makes the exchanges of file number `file`, before any message is read.
    pub(super) fn new(file: u32) -> Self {
        Self {
            file,
            crawler: None,
            window: VecDeque::new(),
            first: 0,
            by_key: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    /// Returns the number of the file.
    pub(super) fn file(&self) -> u32 {
        self.file
    }

    /// Adds a message. If the window is full, returns the request of the oldest
    /// exchange, whose other side is no longer expected.
    pub(super) fn add(
        &mut self,
        message: ArchivedMessage,
        statements: Option<Box<ResponseStatements>>,
    ) -> Option<PastRequest> {
        let keys = self.keys(&message);
        let (agent, status, is_request) = match message.side {
            MessageSide::Crawler { user_agent } => {
                self.crawler = user_agent;
                return None;
            }
            MessageSide::Request { user_agent } => {
                let agent = user_agent.map_or(PastAgent::Silent, PastAgent::Named);
                (agent, None, true)
            }
            MessageSide::Response { status, .. } => {
                let crawler = self.crawler.clone();
                let agent = crawler.map_or(PastAgent::Untold, PastAgent::Named);
                (agent, status, false)
            }
        };
        let side = PastExchange {
            request: PastRequest {
                file: self.file,
                place: message.place,
                at: message.at,
                url: message.url,
                agent,
                status,
                is_tunnel: false,
                statements,
            },
            has_request: is_request,
            has_response: !is_request,
            keys,
        };
        // A message joins the exchange that has its other side, if there is one.
        match self.find(&side) {
            Some(number) => {
                self.join(number, side);
                None
            }
            None => self.push(side),
        }
    }

    /// Returns the requests of the remaining exchanges, in order.
    pub(super) fn finish(&mut self) -> impl Iterator<Item = PastRequest> + use<> {
        self.by_key.clear();
        mem::take(&mut self.window)
            .into_iter()
            .map(|exchange| exchange.request)
    }

    /// Returns hashes of the values that both sides of an exchange share: identifiers
    /// of records, and URL with time.
    fn keys(&self, message: &ArchivedMessage) -> Vec<u64> {
        let ids = message.id.iter().chain(&message.concurrent_to);
        let mut keys: Vec<u64> = ids.map(|id| self.hasher.hash_one(id)).collect();
        keys.extend(
            message
                .at
                .map(|at| self.hasher.hash_one((at, &message.url))),
        );
        keys
    }

    /// Finds an exchange that lacks `side` and has one of its keys.
    fn find(&self, side: &PastExchange) -> Option<u64> {
        let numbers = side.keys.iter().filter_map(|key| self.by_key.get(key));
        numbers.copied().find(|number| {
            self.exchange(*number).is_some_and(|found| {
                let lacks = if side.has_request {
                    !found.has_request
                } else {
                    !found.has_response
                };
                // The identifiers alone do not suffice: records of one exchange may also
                // refer to records with another URL.
                lacks && found.request.url == side.request.url
            })
        })
    }

    /// Returns the exchange with this number, if it is in the window.
    fn exchange(&self, number: u64) -> Option<&PastExchange> {
        self.window
            .get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Adds the missing side to an exchange.
    fn join(&mut self, number: u64, mut side: PastExchange) {
        let index = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        let Some(found) = self.window.get_mut(index) else {
            return;
        };
        let status = found.request.status.or(side.request.status);
        let read = found.request.statements.take();
        let statements = read.or(side.request.statements.take());
        if side.has_request {
            // Only the request record has the `User-Agent`, and reports name its place.
            found.request = side.request;
        }
        found.request.status = status;
        found.request.statements = statements;
        found.has_request = true;
        found.has_response = true;
    }

    /// Adds an exchange to the window, and returns the request that no longer fits.
    fn push(&mut self, exchange: PastExchange) -> Option<PastRequest> {
        let number = self.first + self.window.len() as u64;
        for key in &exchange.keys {
            self.by_key.insert(*key, number);
        }
        self.window.push_back(exchange);
        if self.window.len() <= WINDOW {
            return None;
        }
        let oldest = self.window.pop_front()?;
        for key in &oldest.keys {
            // A later exchange may have the same URL and time.
            if self.by_key.get(key) == Some(&self.first) {
                self.by_key.remove(key);
            }
        }
        self.first += 1;
        Some(oldest.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, concurrent_to: &str, second: u8, side: MessageSide) -> ArchivedMessage {
        let ids = concurrent_to.split(' ').filter(|id| !id.is_empty());
        ArchivedMessage {
            place: 0,
            at: format!("2026-01-02T03:04:{second:02}Z").parse().ok(),
            url: "http://h.test/a".to_owned(),
            id: Some(id.to_owned()),
            concurrent_to: ids.map(str::to_owned).collect(),
            side,
        }
    }

    fn request(id: &str, concurrent_to: &str, second: u8) -> ArchivedMessage {
        let user_agent = Some("Foo".to_owned());
        message(
            id,
            concurrent_to,
            second,
            MessageSide::Request { user_agent },
        )
    }

    fn response(id: &str, concurrent_to: &str, second: u8) -> ArchivedMessage {
        let status = Some(200);
        let robots = None;
        message(
            id,
            concurrent_to,
            second,
            MessageSide::Response {
                status,
                robots,
                page: None,
            },
        )
    }

    fn joined(messages: Vec<ArchivedMessage>) -> Vec<PastRequest> {
        let mut exchanges = Exchanges::new(0);
        let mut requests: Vec<_> = messages
            .into_iter()
            .filter_map(|message| exchanges.add(message, None))
            .collect();
        requests.extend(exchanges.finish());
        requests
    }

    // ISO 28500, section 5.7; ours for URL and time.
    #[test]
    fn both_sides_of_an_exchange_are_one_request() {
        for (name, messages) in [
            (
                "the response names it",
                vec![request("1", "", 1), response("2", "1", 2)],
            ),
            (
                "the request names it",
                vec![request("1", "2", 1), response("2", "", 2)],
            ),
            (
                "the response comes first",
                vec![response("2", "", 2), request("1", "2", 1)],
            ),
            (
                "neither names the other",
                vec![request("1", "", 1), response("2", "", 1)],
            ),
        ] {
            let requests = joined(messages);
            assert_eq!(requests.len(), 1, "{name}");
            assert_eq!(
                requests[0].agent,
                PastAgent::Named("Foo".to_owned()),
                "{name}"
            );
            assert_eq!(requests[0].status, Some(200), "{name}");
        }
    }

    // Ours: a repeated request is counted as a separate one.
    #[test]
    fn messages_of_the_same_side_are_separate_requests() {
        assert_eq!(
            joined(vec![request("1", "", 1), request("2", "", 1)]).len(),
            2
        );
        let responses = joined(vec![response("1", "", 1), response("2", "", 1)]);
        assert_eq!(responses.len(), 2);
        assert_eq!(responses[0].agent, PastAgent::Untold);
        assert_eq!(
            joined(vec![request("1", "", 1), response("2", "", 3)]).len(),
            2
        );
    }

    // Ours: memory does not grow with the archive.
    #[test]
    fn a_full_window_releases_its_oldest_request() {
        let mut exchanges = Exchanges::new(0);
        let numbers = 0..2 * WINDOW;
        let left = numbers.filter_map(|number| {
            let mut other = request(&number.to_string(), "", 1);
            other.url = format!("http://h.test/{number}");
            exchanges.add(other, None)
        });
        assert_eq!(left.count(), WINDOW);
        assert_eq!(exchanges.by_key.len(), 2 * WINDOW);
    }

    // ISO 28500, section 6.2: `warcinfo` describes the records that follow it.
    #[test]
    fn a_response_without_a_request_belongs_to_the_crawler_in_warcinfo() {
        let user_agent = Some("InfoBot/1".to_owned());
        let info = message("0", "", 0, MessageSide::Crawler { user_agent });
        let requests = joined(vec![info, response("1", "", 1)]);
        assert_eq!(requests[0].agent, PastAgent::Named("InfoBot/1".to_owned()));
    }
}
