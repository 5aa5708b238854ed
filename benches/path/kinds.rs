//! Kinds of exchange that are measured.

/// Way from the client to the page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Plain,
    Intercepted,
}

/// Use of a connection of the client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connection {
    Kept,
    /// One for each request, with CONNECT and a full handshake if intercepted.
    New,
}

/// A kind of exchange, and how many are counted.
pub(crate) struct ExchangeKind {
    /// Column of the budget table.
    pub(crate) name: &'static str,
    pub(crate) scheme: Scheme,
    pub(crate) connection: Connection,
    /// First segment of the path, by which the origin knows the page.
    pub(crate) page: &'static str,
    /// Clients at the same time, so that the record batches as in life.
    pub(crate) clients: usize,
    /// Requests of a client in the shorter run, and those on top of them in the
    /// longer one.
    pub(crate) warm_up: usize,
    pub(crate) counted: usize,
}

const PLAIN: ExchangeKind = ExchangeKind {
    name: "plain 1 KiB",
    scheme: Scheme::Plain,
    connection: Connection::Kept,
    page: "1k",
    clients: 32,
    warm_up: 16,
    counted: 64,
};

/// All kinds, in the order of the tables.
pub(crate) const KINDS: [ExchangeKind; 6] = [
    PLAIN,
    ExchangeKind {
        name: "plain, new connection",
        connection: Connection::New,
        counted: 32,
        ..PLAIN
    },
    ExchangeKind {
        name: "TLS 10 KiB",
        scheme: Scheme::Intercepted,
        page: "10k",
        ..PLAIN
    },
    ExchangeKind {
        name: "TLS page 30 KiB",
        scheme: Scheme::Intercepted,
        page: "page",
        counted: 32,
        ..PLAIN
    },
    ExchangeKind {
        name: "TLS 1 MiB",
        scheme: Scheme::Intercepted,
        page: "1m",
        clients: 8,
        warm_up: 4,
        counted: 16,
        ..PLAIN
    },
    ExchangeKind {
        name: "TLS handshake",
        scheme: Scheme::Intercepted,
        connection: Connection::New,
        warm_up: 4,
        counted: 12,
        ..PLAIN
    },
];
