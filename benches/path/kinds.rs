//! Kinds of exchange to measure.

/// Protocol between the client and the proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Plain,
    Intercepted,
}

/// Lifetime of a client's connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connection {
    Kept,
    /// A new one for each request, with CONNECT and a full handshake if intercepted.
    New,
}

/// Kind of exchange, and the number of requests to count.
pub(crate) struct ExchangeKind {
    /// Column of the budget table.
    pub(crate) name: &'static str,
    pub(crate) scheme: Scheme,
    pub(crate) connection: Connection,
    /// First segment of the path, which tells the origin the page to send.
    pub(crate) page: &'static str,
    /// Clients that send at the same time, so that the record commits in batches as it
    /// does in production.
    pub(crate) clients: usize,
    /// Requests of each client in the shorter run. The longer run adds `counted` more.
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

/// Every kind, in the order of the tables.
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
