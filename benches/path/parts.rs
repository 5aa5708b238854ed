//! Parts of the program, as groups of source files.
//!
//! A source file counts for its part. Code of the standard library, of libc and
//! of small crates used everywhere has no part: it counts for the code that it is
//! inlined into, or for its caller (see `callgrind`).

/// Group of source files whose instructions are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Part {
    Record,
    Sqlite,
    Sha256,
    Tls,
    Copies,
    Allocation,
    Formatting,
    HashTables,
    Decision,
    RobotsCache,
    Pace,
    Heads,
    Forwarding,
    Annotation,
    Upstream,
    Http,
    Hyper,
    Tokio,
    Clock,
    Channels,
    Log,
    Rest,
}

impl Part {
    /// All parts, in the order of the tables.
    pub(crate) const ALL: [Self; 22] = [
        Self::Record,
        Self::Sqlite,
        Self::Sha256,
        Self::Tls,
        Self::Copies,
        Self::Allocation,
        Self::Formatting,
        Self::HashTables,
        Self::Decision,
        Self::RobotsCache,
        Self::Pace,
        Self::Heads,
        Self::Forwarding,
        Self::Annotation,
        Self::Upstream,
        Self::Http,
        Self::Hyper,
        Self::Tokio,
        Self::Clock,
        Self::Channels,
        Self::Log,
        Self::Rest,
    ];

    /// Returns the name of the part in the tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Sqlite => "sqlite3",
            Self::Sha256 => "SHA-256",
            Self::Tls => "TLS",
            Self::Copies => "copies of memory",
            Self::Allocation => "allocation",
            Self::Formatting => "formatting",
            Self::HashTables => "hash tables",
            Self::Decision => "decision",
            Self::RobotsCache => "robots cache",
            Self::Pace => "pace",
            Self::Heads => "reading requests",
            Self::Forwarding => "forwarding",
            Self::Annotation => "annotation",
            Self::Upstream => "upstream",
            Self::Http => "http (fields, URLs)",
            Self::Hyper => "hyper",
            Self::Tokio => "tokio",
            Self::Clock => "clocks and timers",
            Self::Channels => "channels",
            Self::Log => "log",
            Self::Rest => "the rest",
        }
    }
}

/// Effect of a file on the part that its code counts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileRole {
    /// Counts for this part, and so does the neutral code beside it.
    Owner(Part),
    /// Counts for this part wherever it is inlined, but does not decide about the code
    /// beside it. Example: an allocation in the middle of a decision.
    Service(Part),
    /// Counts for the part of the code beside it, or for its callers.
    Neutral,
}

use FileRole::{Neutral, Owner, Service};

/// Prefixes of paths as [`normal_path`] returns them. The first match applies.
const RULES: [(&str, FileRole); 76] = [
    ("politesse-record/", Owner(Part::Record)),
    ("rusqlite/", Owner(Part::Record)),
    ("hashlink/", Owner(Part::Record)),
    ("libsqlite3-sys/", Owner(Part::Sqlite)),
    ("aws-lc-rs/src/digest", Owner(Part::Sha256)),
    ("aws-lc-rs/", Owner(Part::Tls)),
    ("aws-lc-sys/", Owner(Part::Tls)),
    ("rustls", Owner(Part::Tls)),
    ("tokio-rustls/", Owner(Part::Tls)),
    ("rcgen/", Owner(Part::Tls)),
    ("yasna/", Owner(Part::Tls)),
    ("x509-parser/", Owner(Part::Tls)),
    ("politesse-net/tls", Owner(Part::Tls)),
    ("politesse-proxy/ca", Owner(Part::Tls)),
    ("politesse-proxy/certificate", Owner(Part::Tls)),
    ("tikv-jemalloc-sys/", Service(Part::Allocation)),
    ("tikv-jemallocator/", Service(Part::Allocation)),
    ("politesse/main.rs", Service(Part::Allocation)),
    ("library/alloc/src/alloc.rs", Service(Part::Allocation)),
    ("library/alloc/src/raw_vec", Service(Part::Allocation)),
    ("library/core/src/fmt/", Service(Part::Formatting)),
    ("library/alloc/src/fmt.rs", Service(Part::Formatting)),
    ("library/core/src/num/fmt.rs", Service(Part::Formatting)),
    ("itoa/", Service(Part::Formatting)),
    ("library/core/src/hash/", Service(Part::HashTables)),
    ("library/std/src/hash/", Service(Part::HashTables)),
    (
        "library/std/src/collections/hash/",
        Service(Part::HashTables),
    ),
    ("hashbrown/", Service(Part::HashTables)),
    ("foldhash/", Service(Part::HashTables)),
    ("indexmap/", Service(Part::HashTables)),
    ("dashmap/", Service(Part::HashTables)),
    ("moka/", Service(Part::HashTables)),
    ("library/std/src/time.rs", Service(Part::Clock)),
    ("library/std/src/sys/pal/unix/time.rs", Service(Part::Clock)),
    ("library/core/src/time.rs", Service(Part::Clock)),
    ("politesse-base/clock", Service(Part::Clock)),
    ("tokio/src/time/", Owner(Part::Clock)),
    ("tokio/src/runtime/time", Owner(Part::Clock)),
    ("library/std/src/sync/mp", Owner(Part::Channels)),
    ("tokio/src/sync/", Owner(Part::Channels)),
    ("futures-channel/", Owner(Part::Channels)),
    ("want/", Owner(Part::Channels)),
    ("library/", Neutral),
    ("smallvec/", Neutral),
    ("bytes/", Neutral),
    ("memchr/", Neutral),
    ("arc-swap/", Neutral),
    ("parking_lot", Neutral),
    ("lock_api/", Neutral),
    ("once_cell/", Neutral),
    ("pin-project-lite/", Neutral),
    ("either/", Neutral),
    ("slab/", Neutral),
    ("libc/", Neutral),
    ("rustix/", Neutral),
    ("jiff", Neutral),
    ("serde", Neutral),
    ("compiler_builtins/", Neutral),
    ("politesse-decision/", Owner(Part::Decision)),
    ("politesse-robots/", Owner(Part::Decision)),
    ("politesse-robots-cache/", Owner(Part::RobotsCache)),
    ("politesse-pace/", Owner(Part::Pace)),
    ("politesse-proxy/request", Owner(Part::Heads)),
    ("politesse-proxy/names", Owner(Part::Heads)),
    ("politesse-proxy/annot", Owner(Part::Annotation)),
    ("politesse-proxy/", Owner(Part::Forwarding)),
    ("politesse-directives/", Owner(Part::Annotation)),
    ("encoding_rs/", Owner(Part::Annotation)),
    ("sfv/", Owner(Part::Annotation)),
    ("url/", Owner(Part::Upstream)),
    ("politesse-net/", Owner(Part::Upstream)),
    ("http/", Owner(Part::Http)),
    ("tracing", Owner(Part::Log)),
    ("politesse/cli/log", Owner(Part::Log)),
    ("politesse-base/throttle", Owner(Part::Log)),
    ("sharded-slab/", Owner(Part::Log)),
];

/// Crates that belong to one part as a whole.
const CRATES: [(&str, Part); 12] = [
    ("hyper", Part::Hyper),
    ("hyper-util", Part::Hyper),
    ("httparse", Part::Hyper),
    ("http-body", Part::Hyper),
    ("http-body-util", Part::Hyper),
    ("httpdate", Part::Hyper),
    ("h2", Part::Hyper),
    ("tokio", Part::Tokio),
    ("tokio-util", Part::Tokio),
    ("mio", Part::Tokio),
    ("futures-core", Part::Tokio),
    ("futures-util", Part::Tokio),
];

/// Returns the role of a source file, given its path from the debug information.
pub(crate) fn role(path: &str) -> FileRole {
    if path.contains("/aws-lc/") || path.starts_with("aws-lc/") {
        let digest = path.contains("/sha") || path.contains("/digest");
        return Owner(if digest { Part::Sha256 } else { Part::Tls });
    }
    let file_name = path.rsplit('/').next().unwrap_or(path);
    if ["memmove", "memcpy", "memset"]
        .iter()
        .any(|name| file_name.starts_with(name))
    {
        return Service(Part::Copies);
    }
    let Some(path) = normal_path(path) else {
        return foreign_role(path);
    };
    let rule = RULES
        .iter()
        .find(|(beginning, _)| path.starts_with(beginning));
    let of_crate = || {
        let (name, _) = path.split_once('/')?;
        CRATES.iter().find(|(crate_name, _)| *crate_name == name)
    };
    match (rule, of_crate()) {
        (Some((_, role)), _) => *role,
        (None, Some((_, part))) => Owner(*part),
        (None, None) => Owner(Part::Rest),
    }
}

/// Returns the role of a file outside of every crate: a file of libc, or an unknown
/// one.
fn foreign_role(path: &str) -> FileRole {
    if path.contains("malloc/") {
        Service(Part::Allocation)
    } else if path.contains("clock_gettime") {
        Service(Part::Clock)
    } else {
        Neutral
    }
}

/// Returns the path as `CRATE/src/FILE`, without the version and the location on disk:
/// `library/core/src/…` for the standard library, and `politesse/FILE` and
/// `politesse-robots/FILE` for the crates of the workspace. `None` for any other file.
fn normal_path(path: &str) -> Option<String> {
    if let Some((_, rest)) = path.split_once("/registry/src/") {
        return Some(without_version(rest.split_once('/')?.1));
    }
    // Dependencies of the standard library.
    if let Some((_, rest)) = path.split_once("/rust/deps/") {
        return Some(without_version(rest));
    }
    // C sources that a build script copied and compiled.
    if let Some((folder, file)) = path.split_once("/out/build/") {
        let (_, package) = folder.rsplit_once('/')?;
        let (package, _hash) = package.rsplit_once('-')?;
        return Some(format!("{package}/{file}"));
    }
    if path.ends_with(".rs") && (path.contains("/library/") || path.starts_with("library/")) {
        let at = path.find("library/")?;
        return Some(path[at..].to_owned());
    }
    let (before, file) = path.split_once("src/").filter(|_| path.ends_with(".rs"))?;
    let package = before
        .rsplit_once("crates/")
        .map_or("politesse", |(_, package)| package.trim_end_matches('/'));
    Some(format!("{package}/{file}"))
}

/// Returns `hyper/src/body.rs` for `hyper-1.12.0/src/body.rs`.
fn without_version(path: &str) -> String {
    let (package, file) = path.split_once('/').unwrap_or((path, ""));
    let bytes = package.as_bytes();
    let version = bytes
        .windows(2)
        .position(|pair| pair[0] == b'-' && pair[1].is_ascii_digit());
    format!("{}/{file}", &package[..version.unwrap_or(package.len())])
}
