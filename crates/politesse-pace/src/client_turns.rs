//! Waiting requests of one kind at one host, in the order of their turns: by client,
//! then by crawler, then by arrival.
//!
//! Clients take turns, and within a client its crawlers do. The requests of a crawler form
//! a line, whose first request is the only one that is checked. Does not know which
//! requests may start, nor the other kinds.

use std::collections::VecDeque;

use super::request::{QueuePlace, RequestsAhead, TurnOwner, Waiter};
use super::schedule::Uptime;

/// Clients with waiting requests, in the order of their next turns; none is empty.
#[derive(Debug, Default)]
pub(super) struct ClientTurns(VecDeque<ClientLines>);

/// Waiting requests of one client: its crawlers in the order of their next turns; none
/// is empty. All robots.txt fetches of a client form one line.
#[derive(Debug, Default)]
struct ClientLines(VecDeque<CrawlerLine>);

/// Requests of one crawler, in order of arrival.
type CrawlerLine = VecDeque<Waiter>;

/// Position of a crawler's line.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LineIndex {
    /// Position of the client among the clients.
    client: usize,
    /// Position of the line among those of its client.
    crawler: usize,
}

impl LineIndex {
    /// Returns the position of the first line of the client.
    pub(super) fn first_of_client(self) -> Self {
        Self { crawler: 0, ..self }
    }

    /// Returns the position after this one.
    pub(super) fn next(self) -> Self {
        Self {
            crawler: self.crawler + 1,
            ..self
        }
    }
}

impl ClientLines {
    fn len(&self) -> usize {
        self.0.iter().map(VecDeque::len).sum()
    }

    fn is_of(&self, owner: &TurnOwner) -> bool {
        let first = self.first();
        first.is_some_and(|first| first.place.owner.has_client_of(owner))
    }

    fn first(&self) -> Option<&Waiter> {
        self.0.front().and_then(VecDeque::front)
    }

    /// Adds an upper bound of the client's requests that start before one of `owner`.
    fn add_ahead(&self, owner: &TurnOwner, arrival: u64, ahead: &mut RequestsAhead) {
        let own = self.0.iter().find(|line| is_of(line, owner));
        let own_before = own.map_or(0, |line| before(line, arrival));
        for line in &self.0 {
            // Each other crawler may have one turn before each request of this one.
            let count = if is_of(line, owner) {
                own_before
            } else {
                line.len().min(own_before + 1)
            };
            ahead.add(count, line.front());
        }
    }
}

impl ClientTurns {
    /// Returns the number of requests.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(ClientLines::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Inserts a request by its arrival number.
    pub(super) fn push(&mut self, waiter: Waiter) {
        let Some(line) = self.line_or_new(&waiter.place.owner) else {
            return;
        };
        let index = before(line, waiter.place.arrival);
        // Only the first request of a line is checked. A request that is no longer first
        // must not hold a place under a ceiling.
        if let Some(first) = line.front_mut().filter(|_| index == 0) {
            first.give_way();
        }
        line.insert(index, waiter);
    }

    /// Returns an upper bound of the requests that start before one that joins now.
    pub(super) fn ahead(&self, place: &QueuePlace) -> RequestsAhead {
        let (owner, mut ahead) = (&place.owner, RequestsAhead::default());
        if let Some(own) = self.0.iter().find(|client| client.is_of(owner)) {
            own.add_ahead(owner, place.arrival, &mut ahead);
        }
        let own_before = ahead.page_count();
        for client in self.0.iter().filter(|client| !client.is_of(owner)) {
            // Each other client may have one turn before each request of this one.
            ahead.add(client.len().min(own_before + 1), client.first());
        }
        ahead
    }

    /// Returns the first request of each line, whether it may start or not.
    pub(super) fn firsts(&self) -> impl Iterator<Item = &Waiter> {
        let lines = self.0.iter().flat_map(|client| &client.0);
        lines.filter_map(VecDeque::front)
    }

    /// Returns the first request of the line at `from` and of each line after it.
    pub(super) fn firsts_from(
        &mut self,
        from: LineIndex,
    ) -> impl Iterator<Item = (LineIndex, &mut Waiter)> {
        let clients = self.0.iter_mut().enumerate().skip(from.client);
        clients.flat_map(move |(client, own)| {
            let passed = if client == from.client {
                from.crawler
            } else {
                0
            };
            let lines = own.0.iter_mut().enumerate().skip(passed);
            lines.filter_map(move |(crawler, line)| {
                Some((LineIndex { client, crawler }, line.front_mut()?))
            })
        })
    }

    /// Returns the next request, whether it may start or not.
    pub(super) fn first_mut(&mut self) -> Option<&mut Waiter> {
        let mut firsts = self.firsts_from(LineIndex::default());
        firsts.next().map(|(_, first)| first)
    }

    /// Returns the first request that is due to be checked, in the line at `from` or
    /// after it.
    pub(super) fn next_due(
        &mut self,
        from: LineIndex,
        now: Uptime,
    ) -> Option<(LineIndex, &mut Waiter)> {
        let mut firsts = self.firsts_from(from);
        firsts.find(|(_, first)| first.not_before <= now)
    }

    /// Returns the earliest time at which one of the requests not due now has to be
    /// checked.
    pub(super) fn next_look(&self, now: Uptime) -> Uptime {
        let times = self.firsts().map(|first| first.not_before);
        times
            .filter(|time| now < *time)
            .min()
            .unwrap_or(Uptime::MAX)
    }

    /// Removes the first request of a line, which starts now. Its crawler becomes the
    /// last of its client, and its client the last of all.
    pub(super) fn pop(&mut self, index: LineIndex) -> Option<Waiter> {
        let mut own = self.0.remove(index.client)?;
        let mut line = own.0.remove(index.crawler)?;
        let waiter = line.pop_front();
        if !line.is_empty() {
            own.0.push_back(line);
        }
        if !own.0.is_empty() {
            self.0.push_back(own);
        }
        waiter
    }

    /// Removes the first request of a line without giving it a turn.
    pub(super) fn drop_first(&mut self, index: LineIndex) -> Option<Waiter> {
        let own = self.0.get_mut(index.client)?;
        let waiter = own.0.get_mut(index.crawler)?.pop_front();
        self.forget_empty();
        waiter
    }

    /// Removes a request to make room for one of `owner`. It is the latest request of
    /// the client with the most requests, from that client's longest line, provided
    /// that the client still has no fewer than this one afterwards. The crawlers of one
    /// client make room for each other in the same way.
    pub(super) fn make_room(&mut self, owner: &TurnOwner) -> Option<Waiter> {
        let own = self.0.iter().find(|client| client.is_of(owner));
        let own_requests = own.map_or(0, ClientLines::len);
        let own_line = own.and_then(|own| own.0.iter().find(|line| is_of(line, owner)));
        let own_len = own_line.map_or(0, VecDeque::len);
        let most = self.0.iter().map(ClientLines::len).max().unwrap_or(0);
        let is_from_other = own_requests + 1 < most;
        let mut clients = self.0.iter_mut();
        let gives_way = clients.find(|client| {
            if is_from_other {
                client.len() == most
            } else {
                client.is_of(owner)
            }
        });
        let lines = gives_way.map(|client| client.0.iter_mut());
        let longest = lines.and_then(|lines| lines.max_by_key(|line| line.len()));
        let latest = longest
            .filter(|line| is_from_other || own_len + 1 < line.len())
            .and_then(VecDeque::pop_back);
        self.forget_empty();
        latest
    }

    /// Removes a request that no longer waits.
    pub(super) fn remove(&mut self, place: &QueuePlace) -> Option<Waiter> {
        let owner = &place.owner;
        let lines = self.0.iter_mut().filter(|own| own.is_of(owner));
        let mut lines = lines.flat_map(|own| &mut own.0);
        let line = lines.find(|line| is_of(line, owner))?;
        let index = before(line, place.arrival);
        line.get(index)
            .filter(|waiter| waiter.place.arrival == place.arrival)?;
        let waiter = line.remove(index);
        self.forget_empty();
        waiter
    }

    /// Removes the requests for which `leaves` returns true.
    pub(super) fn remove_all(&mut self, leaves: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let mut gone = Vec::new();
        for line in self.lines_mut() {
            let (leaving, staying): (Vec<_>, Vec<_>) = line.drain(..).partition(&leaves);
            gone.extend(leaving);
            line.extend(staying);
        }
        self.forget_empty();
        gone
    }

    /// Returns every request.
    pub(super) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        let lines = self.0.iter().flat_map(|client| &client.0);
        lines.flatten()
    }

    /// Returns every line. Callers may change a line but must not leave it empty.
    pub(super) fn lines_mut(&mut self) -> impl Iterator<Item = &mut VecDeque<Waiter>> {
        self.0.iter_mut().flat_map(|client| &mut client.0)
    }

    /// Returns the line of `owner`, creating it if needed.
    fn line_or_new(&mut self, owner: &TurnOwner) -> Option<&mut CrawlerLine> {
        let known = self.0.iter().position(|own| own.is_of(owner));
        let client = known.unwrap_or_else(|| {
            self.0.push_back(ClientLines::default());
            self.0.len() - 1
        });
        let lines = &mut self.0.get_mut(client)?.0;
        let own = lines.iter().position(|line| is_of(line, owner));
        let crawler = own.unwrap_or_else(|| {
            lines.push_back(CrawlerLine::new());
            lines.len() - 1
        });
        lines.get_mut(crawler)
    }

    fn forget_empty(&mut self) {
        for client in &mut self.0 {
            client.0.retain(|line| !line.is_empty());
        }
        self.0.retain(|client| !client.0.is_empty());
    }
}

fn is_of(line: &CrawlerLine, owner: &TurnOwner) -> bool {
    let first = line.front();
    first.is_some_and(|first| first.place.owner.crawler == owner.crawler)
}

/// Returns how many requests of a line have a lower arrival number than `arrival`.
/// Arrival numbers rise within a line.
fn before(line: &CrawlerLine, arrival: u64) -> usize {
    line.partition_point(|waiter| waiter.place.arrival < arrival)
}
