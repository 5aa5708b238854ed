//! Check that all that was sent is on record: compares the count of requests,
//! which events state, with the endings of decisions.
//!
//! `upstream` counts a request before a connection gets it, and its decision has a
//! number by then. A count is read while the event gets its number. So of one
//! process, by the time of each event,
//!
//! - the endings with lower numbers were counted: their sum is the least that the
//!   count can be;
//! - whatever was counted has a decision with a lower number: the sum over those
//!   decisions, whenever they ended, is the most that it can be.
//!
//! The two differ by the exchanges that were under way, and where a process stopped
//! in order by nothing. A count above the second sum tells of requests without a
//! decision. A process that ended without a stop took its count with it: nothing is
//! concluded for the time after its last event.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::columns::{TableRow as _, count, signed};
use super::decision_row::CheckedRecord;
use super::events::{EventRow, ProcessEventKind};
use super::filter::EventFilter;
use super::pruned::PrunedEnd;
use super::reader::AuditReader;
use politesse_decision::decide::Permit;
use politesse_decision::reason::Verdict;
use politesse_decision::record::{Effect, StoredRuling};

/// Numbers of two events that state a count: what was found lies between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountRange {
    pub(super) after: i64,
    pub(super) until: i64,
}

/// Finding about the count of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SentFinding {
    /// So many requests were sent that have no decision.
    Unrecorded { count: u64, counts: CountRange },
    /// Endings say that so many more requests were sent than were counted.
    Uncounted { count: u64, counts: CountRange },
    /// The decision refused the request, and its ending says that it was sent.
    WithoutPermit(u64),
    /// A process ended without a stop; its last count is in this event.
    Unknown { after: i64 },
}

/// One process, as far as its decisions have come.
#[derive(Debug, Default)]
struct ProcessCount {
    /// Its count at the event with which it begins here: 0 at its start.
    base: i64,
    /// Requests of its decisions: the sum of what their endings say.
    recorded: i64,
    /// Requests that decisions without an ending may have sent.
    open: i64,
    /// Endings of exchanges that were under way at the last number: their numbers,
    /// and how often each request was sent.
    under_way: BinaryHeap<Reverse<(i64, i64)>>,
    under_way_sent: i64,
    /// Requests that were found not to be on record.
    unrecorded: i64,
    /// Requests on record that were found not to be counted.
    uncounted: i64,
    /// Events at which more may have been unrecorded than was found, and the one
    /// before them, from which on more may be: their numbers, and how many at most.
    doubtful: VecDeque<(i64, i64)>,
    last_event: i64,
    is_stopped: bool,
}

impl ProcessCount {
    fn started(seq: i64) -> Self {
        Self {
            doubtful: VecDeque::from([(seq, 0)]),
            last_event: seq,
            ..Self::default()
        }
    }

    /// Begins at the first count of a process whose start was removed because it
    /// was old. What was under way then may be counted by then, or later.
    fn resumed(before: &Self, event: &EventRow) -> Self {
        Self {
            base: sent_in(event),
            is_stopped: event.is(ProcessEventKind::Stopped),
            // Each may be handed over again after the count.
            open: before.under_way.len().try_into().unwrap_or(i64::MAX)
                * i64::from(Permit::SENDS_MAX)
                + before.open,
            ..Self::started(signed(event.seq))
        }
    }

    /// Takes in that all entries below `seq` are known.
    fn advance(&mut self, seq: i64) {
        while let Some(Reverse((ending, sent))) = self.under_way.peek().copied()
            && ending < seq
        {
            self.under_way.pop();
            self.under_way_sent -= sent;
        }
    }

    /// Takes in a decision.
    fn add(&mut self, seq: i64, row: &CheckedRecord) {
        self.advance(seq);
        let sent = row.record.sent.map_or(0, signed);
        match row.ending {
            Some(ending) if 0 < sent => {
                self.recorded += sent;
                self.under_way_sent += sent;
                self.under_way.push(Reverse((ending.first, sent)));
            }
            None if lets_through(&row.record.ruling) => self.open += i64::from(Permit::SENDS_MAX),
            Some(_) | None => {}
        }
    }

    /// Compares the count in `event` with what is on record.
    fn compare(&mut self, event: &EventRow, mut report: impl FnMut(SentFinding)) {
        let seq = signed(event.seq);
        self.advance(seq);
        // Each difference is told once: what was told before is set off here.
        let counted = sent_in(event) - self.base + self.uncounted;
        let counts = |after| CountRange { after, until: seq };
        let at_most = counted - (self.recorded - self.under_way_sent);
        if at_most < self.unrecorded {
            let short = self.unrecorded - at_most;
            self.uncounted += short;
            report(SentFinding::Uncounted {
                count: count(short),
                counts: counts(self.last_event),
            });
        }
        let at_least = counted - self.recorded - self.open;
        if self.unrecorded < at_least {
            // They were sent after the last event at which there were fewer for
            // certain.
            let after = self.doubtful.front().map_or(seq, |event| event.0);
            report(SentFinding::Unrecorded {
                count: count(at_least - self.unrecorded),
                counts: counts(after),
            });
            self.unrecorded = at_least;
        }
        self.doubtful.push_back((seq, at_most));
        let is_certain = |event: &(i64, i64)| event.1 <= self.unrecorded;
        if let Some(last) = self.doubtful.iter().rposition(is_certain) {
            self.doubtful.drain(..last);
        }
        self.last_event = seq;
        self.is_stopped = event.is(ProcessEventKind::Stopped);
    }
}

/// Check of the counts of a record. Decisions are to be given in order.
#[derive(Debug)]
pub(super) struct SentCheck {
    /// Events that are still to come.
    events: VecDeque<EventRow>,
    /// The process of the decisions; absent before the first start.
    process: Option<ProcessCount>,
    /// The process before that, if its start was removed.
    unstarted: Option<ProcessCount>,
}

impl SentCheck {
    /// Begins before the first decision. There is an event an hour, so that all of
    /// them are read.
    pub(super) fn new(reader: &AuditReader) -> rusqlite::Result<Self> {
        let mut events = VecDeque::new();
        let pruned = PrunedEnd::read(&reader.connection)?;
        let mut scan = reader.event_scan(&EventFilter::default())?;
        while let Some(page) = scan.next_page(EventRow::read)? {
            let is_counted =
                |event: &EventRow| event.sent.is_some() && pruned.last < signed(event.seq);
            events.extend(page.into_iter().filter(is_counted));
        }
        Ok(Self {
            events,
            process: None,
            unstarted: (0 < pruned.last).then(ProcessCount::default),
        })
    }

    /// Takes in the next decision, with its ending.
    pub(super) fn add(&mut self, row: &CheckedRecord, mut report: impl FnMut(SentFinding)) {
        let seq = signed(row.record.seq);
        self.settle(seq, &mut report);
        if row.record.sent.is_some_and(|sent| 0 < sent) && !lets_through(&row.record.ruling) {
            report(SentFinding::WithoutPermit(row.record.seq));
        }
        if let Some(process) = self.process.as_mut().or(self.unstarted.as_mut()) {
            process.add(seq, row);
        }
    }

    /// Ends behind the last decision.
    pub(super) fn end(mut self, mut report: impl FnMut(SentFinding)) {
        self.settle(i64::MAX, &mut report);
    }

    /// Looks at the events below `seq`.
    fn settle(&mut self, seq: i64, report: &mut impl FnMut(SentFinding)) {
        while let Some(event) = self.events.pop_front_if(|event| signed(event.seq) < seq) {
            if event.is(ProcessEventKind::Started) {
                if let Some(before) = self.process.take()
                    && !before.is_stopped
                {
                    let after = before.last_event;
                    report(SentFinding::Unknown { after });
                }
                self.unstarted = None;
                self.process = Some(ProcessCount::started(signed(event.seq)));
            } else if let Some(mut before) = self.unstarted.take() {
                before.advance(signed(event.seq));
                self.process = Some(ProcessCount::resumed(&before, &event));
            // Without a start there is nothing to count from; that it is gone is a
            // finding about numbers.
            } else if let Some(process) = &mut self.process {
                process.compare(&event, &mut *report);
            }
        }
    }
}

/// Returns the count that an event states.
fn sent_in(event: &EventRow) -> i64 {
    event.sent.map_or(0, signed)
}

/// Reports whether a request was permitted by a decision with this ruling.
fn lets_through(ruling: &StoredRuling) -> bool {
    let is_cached = ruling.effect == Effect::Cached.as_str();
    let is_allowed = ruling.verdict == Verdict::Allow.as_str();
    let is_reported = ruling.effect == Effect::Reported.as_str();
    (is_allowed || is_reported) && !is_cached
}
