//! System calls of a run, as summed up by `strace -c`.

use std::collections::BTreeMap;

/// Purpose of a system call, which its name shows.
///
/// The program uses different system calls for sockets and for files, so the name is
/// enough.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallGroup {
    SocketReads,
    SocketWrites,
    /// Opens, registers or closes connections.
    Connections,
    /// Lets a thread wait, or wakes another.
    Waits,
    /// Everything else: files, memory.
    Beside,
}

impl CallGroup {
    pub(crate) const ALL: [Self; 5] = [
        Self::SocketReads,
        Self::SocketWrites,
        Self::Connections,
        Self::Waits,
        Self::Beside,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SocketReads => "reads of sockets",
            Self::SocketWrites => "writes to sockets",
            Self::Connections => "connections",
            Self::Waits => "waits",
            Self::Beside => "beside these",
        }
    }

    fn of(call: &str) -> Self {
        match call {
            "recvfrom" | "recvmsg" | "readv" => Self::SocketReads,
            "sendto" | "sendmsg" | "writev" => Self::SocketWrites,
            "accept" | "accept4" | "socket" | "connect" | "bind" | "shutdown" | "close"
            | "setsockopt" | "getsockopt" | "getsockname" | "getpeername" | "epoll_ctl" => {
                Self::Connections
            }
            "epoll_wait" | "epoll_pwait" | "futex" | "sched_yield" | "nanosleep"
            | "clock_nanosleep" | "poll" => Self::Waits,
            _ => Self::Beside,
        }
    }
}

/// Number of system calls by name.
#[derive(Default, PartialEq, Debug)]
pub(crate) struct SystemCalls(BTreeMap<String, f64>);

impl SystemCalls {
    /// Parses the table of `strace -c`: the fourth column is the number of calls, the
    /// last one the name.
    pub(crate) fn parse(summary: &str) -> Self {
        let rows = summary.lines().filter_map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let calls: f64 = words.get(3)?.parse().ok()?;
            let name = *words.last()?;
            (name != "total").then(|| (name.to_owned(), calls))
        });
        Self(rows.collect())
    }

    /// Subtracts a shorter run and divides the rest by `requests`, the number of
    /// requests that this run has more. Returns the calls of one request.
    pub(crate) fn less(mut self, shorter: &Self, requests: f64) -> Self {
        for (name, calls) in &shorter.0 {
            *self.0.entry(name.clone()).or_default() -= calls;
        }
        for calls in self.0.values_mut() {
            *calls /= requests;
        }
        self
    }

    /// Returns the number of calls of a group.
    pub(crate) fn of_group(&self, group: CallGroup) -> f64 {
        self.in_group(group).map(|(_, calls)| calls).sum()
    }

    /// Lists the calls of a group as text, without calls that fewer than one request in
    /// twenty makes.
    pub(crate) fn describe(&self, group: CallGroup) -> String {
        let calls = self.in_group(group).filter(|(_, calls)| *calls >= 0.05);
        let texts: Vec<_> = calls
            .map(|(name, calls)| format!("{calls:.2} {name}"))
            .collect();
        texts.join(", ")
    }

    fn in_group(&self, group: CallGroup) -> impl Iterator<Item = (&str, f64)> {
        let calls = self.0.iter().map(|(name, calls)| (name.as_str(), *calls));
        calls.filter(move |(name, _)| CallGroup::of(name) == group)
    }
}
