//! Table of configuration keys: section, name, type, default, kind, and purpose.
//!
//! The only place that states defaults and bounds. The commented default file, the
//! reference of keys, the checks and the type of every value are made from it, so a
//! new key is added here alone. Does not know what is done with a value.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, StatusCode};
use ipnet::IpNet;
use tracing::Level;

use super::clients::{ADMITTED, AdmittedNetworks, CLIENT_LIMITS, NETWORK};
use super::kinds::{
    Choice, Flag, Growing, GrowingPause, Kind, List, OneOrMore, Size, Span, SpanOrNone, WAIT,
    count, few, places, up_to,
};
use super::layers::{Key, Layers, Section};
use super::network::{
    ADMIN_HOST, ALLOW, ArchiveOrNone, BASE_PATH, CONTACT, DENY, FIELD_NAME, FLEET_NAME,
    FLEET_STORE, INTERNAL_NAME, LISTEN, LISTENERS, OPERATOR, PARENT, PATH, PATH_OR_NONE, PortRange,
    ROOTS, ResolveTable, SEAL_TARGET, STORE, TOKEN, USER_AGENT,
};
use super::pace::{BACK_OFF, CEILINGS, PACE_RULE, QUEUE, REQUISITES};
use super::problem::dotted;
use super::tables::{CRAWLER, OVERRIDE, PREFERENCE_MODE, TLS_EXCEPTION};
use politesse_archive::address::ArchiveAddress;
use politesse_base::clients::client::ClientLimits;
use politesse_base::tls::Roots;
use politesse_decision::decide::{Candidates, EnforcementMode, Readings, Unauthorized};
use politesse_decision::inquiry::Identity;
use politesse_decision::overrides::Override;
use politesse_decision::preferences::{PreferenceMode, UnknownPreferences};
use politesse_decision::tls_exception::TlsException;
use politesse_directives::{BothFields, MetaScope};
use politesse_fleet::membership::{FleetRules, OnLoss};
use politesse_fleet::options::StoreAddress;
use politesse_net::egress::{Allow, Deny, EgressPorts, Resolve};
use politesse_net::parent::Parent;
use politesse_pace::back_off::BackOffLimits;
use politesse_pace::options::{QueueLimits, RequisiteLimits};
use politesse_pace::policy::{PaceLimits, PaceRule, Profile};
use politesse_proxy::connect::HttpsMode;
use politesse_proxy::credentials::AuthMode;
use politesse_proxy::fields::AcceptEncoding;
use politesse_proxy::server::ListenAddress;
use politesse_record::SealTarget;
use politesse_record::privacy::{ClientAddresses, QueryStrings};
use politesse_robots::Dialect;
use politesse_robots::origin::Host;
use politesse_robots_cache::options::UserAgent;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest time for which entries of the record can be kept.
const CENTURY: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);
const THIRTY_DAYS: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Form of a log event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// [`LogFormat::Pretty`] on a terminal, otherwise [`LogFormat::Json`].
    Auto,
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// Returns the name of a key without the `r#` that Rust requires before its own
/// keywords (`r#override`).
const fn bare(identifier: &'static str) -> &'static str {
    match identifier.as_bytes() {
        [b'r', b'#', ..] => identifier.split_at(2).1,
        _ => identifier,
    }
}

/// Defines the three forms of the table: [`SECTIONS`] for printing and lookup, a
/// struct for each section with the values in their own types, and the functions
/// that read one into the other. The doc comments serve the code, the default file
/// and the reference; an empty one begins a new paragraph.
macro_rules! keys {
    ($(
        $(#[doc = $about:literal])+
        [$section:literal] $field:ident: $Section:ident {
            $(
                $(#[doc = $doc:literal])+
                $name:ident: $Value:ty = $default:literal, $kind:expr;
            )+
        }
    )+) => {
        /// All sections with their keys, in the order of printing.
        pub(super) static SECTIONS: &[Section] = &[$(
            Section {
                name: $section,
                about: &[$($about),+],
                keys: &[$(
                    Key {
                        section: $section,
                        name: bare(stringify!($name)),
                        default: $default,
                        doc: &[$($doc),+],
                        wanted: || $kind.wanted(),
                    },
                )+],
            },
        )+];

        /// The value in force of every key.
        pub(super) struct Effective {
            $(
                $(#[doc = $about])+
                pub(super) $field: $Section,
            )+
        }

        impl Effective {
            /// Reads the values in force, if all are valid. `layers` keeps the
            /// problems of those that are not.
            pub(super) fn read(layers: &mut Layers<'_>) -> Option<Self> {
                // All sections are read before the first invalid one ends this, so
                // that every problem is reported at once.
                $(let $field = $Section::read(layers);)+
                Some(Self { $($field: $field?,)+ })
            }
        }

        $(
            $(#[doc = $about])+
            pub(super) struct $Section {
                $(
                    $(#[doc = $doc])+
                    pub(super) $name: $Value,
                )+
            }

            impl $Section {
                fn read(layers: &mut Layers<'_>) -> Option<Self> {
                    $(let $name = layers.read(&dotted($section, bare(stringify!($name))), &$kind);)+
                    Some(Self { $($name: $name?,)+ })
                }
            }
        )+
    };
}

keys! {
    /// Keys outside every table.
    [""] root: Root {
        /// Crawlers and their product tokens. The first entry whose conditions all hold
        /// gives a request its tokens, in order. If no entry fits, the names in its
        /// User-Agent count.
        ///
        /// Conditions of an entry:
        /// - `user_agent`: text that the User-Agent contains, in any case.
        /// - `client`: networks that the request comes from.
        /// - `credential`: the SHA-256 of a token that the crawler sends in
        ///   Proxy-Authorization (see `proxy.auth`). `politesse crawler add` creates one.
        ///
        /// An entry without conditions fits every crawler. A name with a credential
        /// requires it, and a name with `client` cannot be used from other addresses.
        /// Each entry has its own copies of robots.txt.
        ///
        /// Optional keys of an entry:
        /// - `max_wait` replaces `pace.max_wait`, for a crawler that hangs up sooner, or
        ///   waits longer.
        /// - `label` is the label of its crawl in the record (`politesse audit missed`).
        /// - `purpose` is what its pages are used for: "train-ai", "search", "ai-input",
        ///   "archive", "images".
        /// - `preferences` replaces `preferences.enforce`.
        /// - `requisites = "follow"` lets the files that a page embeds share the turn of
        ///   the page (`pace.requisites`). With "turn", the default, each waits for its
        ///   own.
        ///
        /// For example
        /// `[{ token = "FooBot", user_agent = "foobot/", client = "10.0.0.0/8" }]`,
        /// or, in place of this line, tables that begin with `[[crawler]]`.
        // Each request is compared with one entry after the other.
        crawler: Vec<Identity> = "[]", List { of: CRAWLER, len: 0..=10_000 };
    }

    /// The listener for crawlers.
    ["proxy"] proxy: Proxy {
        /// Addresses that the proxy listens on for crawlers. The default is loopback,
        /// because anyone who can reach this port fetches in your name; to open it, set
        /// `clients` as well. Port 0 takes any free port. With https:// before it, as in
        /// `"https://0.0.0.0:3130"`, an address speaks TLS, with the certificate in
        /// `tls_cert`. A single address needs no list.
        listen: Vec<ListenAddress> = r#"["127.0.0.1:3128"]"#, LISTENERS;
        /// Certificate for the https:// addresses, in PEM, followed by the certificates
        /// that lead to its root. A reload reads the file again; open connections keep
        /// the previous certificate.
        tls_cert: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// Private key of `tls_cert`, in PEM; readable by this proxy alone (0600).
        tls_key: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// Name of this proxy in Via and Proxy-Status. Proxies in a chain need different
        /// names: a request that carries this proxy's own name has looped.
        name: String = r#""politesse""#, TOKEN;
        /// Whether forwarded requests and responses get a Via field, as RFC 9110, section
        /// 7.6.3, requires of proxies.
        via: bool = "true", Flag;
        /// Contact for people with questions about a refusal: a name, an e-mail address
        /// or a URL, shown on the page of the refusal. With "none" the page names the
        /// operator of this proxy.
        contact: Option<String> = r#""none""#, CONTACT;
        /// Host name under which this proxy serves its pages for clients, at
        /// `http://NAME/`: how to set up a client, `ca.pem` and `proxy.pac`. The name is
        /// never resolved or forwarded. "" turns these pages off.
        internal_name: Option<Host> = r#""politesse.internal""#, INTERNAL_NAME;
        /// Addresses that may use this proxy. Connections from other addresses are closed
        /// at once. An entry may also limit all of its addresses together, with the keys
        /// of `per_client`: `{ network = "2001:db8::/48", connections = 512 }`.
        // Each new connection is compared with one network after the other.
        clients: Vec<AdmittedNetworks> = r#"["loopback"]"#, List { of: ADMITTED, len: 1..=1024 };
        /// Addresses of load balancers that begin each connection with a PROXY protocol
        /// header, version 1 or 2 (`send-proxy-v2` in HAProxy). The client is then the
        /// address in the header: in `clients`, for limits and in the record. A
        /// connection from a load balancer is closed if its header does not arrive within
        /// `header_timeout`; from any other address, the header is a malformed request.
        /// At most `max_handshakes` connections wait for their header, and one more
        /// displaces the oldest.
        proxy_protocol_from: Vec<IpNet> = "[]", List { of: NETWORK, len: 0..=64 };
        /// Limits for each client: an address, an IPv6 /64, or a crawler with a
        /// credential. They set how many a client may hold of `connections`, TLS
        /// `handshakes`, `requests`, requests `waiting` for their turn, DNS `lookups`,
        /// `robots_fetches`, and `leaves` (certificates being signed). Clients are kept
        /// from starving each other without any of these: the client that holds most
        /// makes room when others arrive.
        ///
        /// `rate` is a quota of requests, such as "50/s". A request beyond it that would
        /// be sent gets 429 with reason `quota`. After a pause, a burst of the same
        /// number is allowed.
        per_client: ClientLimits = "{}", CLIENT_LIMITS;
        /// Treatment of credentials (`credential` of `crawler`).
        /// - "required": a request without a valid credential gets 407.
        /// - "optional": a request with a wrong credential gets 407. Without one, the
        ///   crawler is known by its User-Agent.
        /// - "off": credentials are ignored, and entries with a credential never fit.
        ///
        /// A crawler sends its credential as Proxy-Authorization: Basic NAME:TOKEN, or
        /// Bearer TOKEN.
        auth: AuthMode = r#""optional""#, Choice(&[
            ("optional", AuthMode::Optional),
            ("required", AuthMode::Required),
            ("off", AuthMode::Off),
        ]);
        /// Number of connections that may wait to be accepted, at each address. The
        /// system drops further ones, and their clients try again after a second. The
        /// system has a limit of its own (`net.core.somaxconn`); the log says at the
        /// start if that is lower. The number applies to `admin.listen`, too.
        backlog: NonZeroU32 = "4096", places(1..=1_000_000);
        /// Number of crawler connections that may be open. One more displaces a
        /// connection of the client that holds most: one that has no request, or whose
        /// requests wait. A client that holds as many itself gets 503 with Retry-After.
        ///
        /// Each connection counts as two file descriptors, its own and one to an origin.
        /// Together with `upstream.pool_idle_total`, `robots.max_fetches`, twice
        /// `upstream.dns_lookups` and some 200 more, that makes 10,900 by default. If the
        /// limit (`ulimit -Hn`) is lower, the log says so at the start, and how many
        /// connections it allows. The last 192 descriptors of the limit, or the last
        /// quarter of a low limit, are reserved for those 503 answers, the admin listener
        /// and the record.
        max_connections: NonZeroUsize = "4096", count(1..=1_000_000);
        /// Number of TLS handshakes with clients that may be in progress. One more
        /// displaces the oldest of the client that holds most.
        max_handshakes: NonZeroUsize = "1024", count(1..=1_000_000);
        /// Number of requests that may be in progress, from the head of the request to
        /// the end of the response. One more displaces a request that waits for its turn,
        /// of the client that holds most.
        max_requests: NonZeroUsize = "16384", count(1..=10_000_000);
        /// How long a request waits while `max_requests` are in progress, and a CONNECT
        /// while `max_handshakes` are. After that it gets 503 with Retry-After.
        place_wait: Duration = r#""5s""#, Span(Duration::ZERO..=HOUR);
        /// Number of `politesse run` commands that may use this proxy at the same time. A
        /// further command is not started.
        max_commands: NonZeroUsize = "64", count(1..=10_000);
        /// How long a crawler may take to send the head of a request, so that slow
        /// senders do not use up the connections. The time for the first head counts from
        /// the start of the connection, for later ones from their first byte. An
        /// incomplete head is answered with 408.
        header_timeout: Duration = r#""15s""#, up_to(HOUR);
        /// How long a crawler's connection may be idle between requests. An upload may
        /// stall for as long.
        idle_timeout: Duration = r#""60s""#, up_to(DAY);
        /// How much a crawler must at least send of an upload, or take of a response,
        /// within `progress_window`. Only time in which the proxy waits for the crawler,
        /// and for no one else, counts. A slower crawler is cut off. "0B" sets no
        /// minimum.
        min_progress: usize = r#""1KiB""#, Size(0..=MIB);
        /// Time in which a crawler must make the progress that `min_progress` sets.
        progress_window: Duration = r#""30s""#, up_to(HOUR);
        /// How long a stop waits for load balancers to stop sending requests. Meanwhile
        /// `/readyz` answers 503 with `draining`, and requests are still served, on
        /// connections that close after them. Requests that still wait for their turn
        /// then have `shutdown_timeout` for it. With "0s", for a proxy without a load
        /// balancer, they get 503 at once.
        drain_time: Duration = r#""0s""#, Span(Duration::ZERO..=HOUR);
        /// How long a stop waits for requests in progress, after `drain_time`. The
        /// default is a little less than the 30s that service managers wait before they
        /// kill a process.
        // Zero is allowed: a stop then cuts everything off at once.
        shutdown_timeout: Duration = r#""25s""#, Span(Duration::ZERO..=HOUR);
    }

    /// HTTPS. The proxy reads the requests inside a CONNECT, because rules are about
    /// URLs.
    ["https"] https: Https {
        /// Treatment of CONNECT: "intercept" answers with a certificate of the local
        /// authority, "refuse" rejects it. There is no blind tunnel, which would get
        /// around every rule.
        mode: HttpsMode = r#""intercept""#, Choice(&[("intercept", HttpsMode::Intercept), ("refuse", HttpsMode::Refuse)]);
        /// Certificate of the local authority, in PEM, which crawlers have to trust. At a
        /// node of a fleet: the node's own certificate from `politesse ca issue`,
        /// followed by the root that crawlers trust.
        ca_cert: PathBuf = r#""certs/ca.pem""#, PATH;
        /// Private key of `ca_cert`; readable by this proxy alone (0600).
        ca_key: PathBuf = r#""certs/ca.key""#, PATH;
        /// Root certificates that the certificates of origins are verified against: those
        /// that this system trusts ("system"), the built-in copy of Mozilla's list
        /// ("webpki"), or those in a PEM file. A list trusts the roots of all its
        /// entries: `["system", "company.pem"]`.
        upstream_roots: Vec<Roots> = r#""system""#, OneOrMore(List { of: ROOTS, len: 1..=16 });
        /// Number of certificates for host names that are kept in memory. The least used
        /// are dropped first.
        leaf_cache: NonZeroUsize = "10000", count(1..=1_000_000);
        /// How long a TLS handshake with a crawler may take.
        handshake_timeout: Duration = r#""10s""#, up_to(HOUR);
    }

    /// How robots.txt is fetched, and how long an answer is used (RFC 9309).
    ["robots"] robots: Robots {
        /// Standard that robots.txt files are read by: "rfc9309"; one of its
        /// predecessors, "draft-2019", "1996", "1994" and "conner-2.0"; or "google", the
        /// RFC with the answers of Google's open-source parser. In those from before
        /// 2019, a 401 or 403 for robots.txt disallows everything.
        dialect: Dialect = r#""rfc9309""#, Choice(&[
            ("rfc9309", Dialect::Rfc9309),
            ("draft-2019", Dialect::Draft2019),
            ("1996", Dialect::Draft1996),
            ("1994", Dialect::Consensus1994),
            ("conner-2.0", Dialect::Conner),
            ("google", Dialect::Google),
        ]);
        /// Readings of a URL that robots.txt must all allow.
        /// - "sent": the path as sent.
        /// - "dots": also without its dot segments (`/a/../b` is `/b`).
        /// - "server": also as servers may read it (`//b`, `/a/..%2fb`, `/a/..;/b`). A
        ///   rule `Disallow: /a%3Ab` then applies to `/a:b` as well.
        ///
        /// The reason: a server returns the file that its own reading of the path names.
        readings: Readings = r#""server""#, Choice(&[
            ("sent", Readings::Sent),
            ("dots", Readings::Dots),
            ("server", Readings::Server),
        ]);
        /// User-Agent that robots.txt is requested with: that of the crawler ("crawler"),
        /// since the answer of a site may depend on it, or always the one given here.
        user_agent: UserAgent = r#""crawler""#, USER_AGENT;
        /// Size up to which a robots.txt is read; the rest is ignored. RFC 9309, section
        /// 2.5, requires at least 500KiB.
        // 500KiB take up to 8 ms to read
        // (docs/decisions/006-bounded-judgement.md), so 16MiB take a quarter of
        // a second of one core for each file.
        max_bytes: usize = r#""500KiB""#, Size(500 * KIB..=16 * MIB);
        /// How long a robots.txt is used if its response does not say, and the longest
        /// that any is used. RFC 9309, section 2.4, advises against copies older than
        /// 24h.
        ttl: Duration = r#""24h""#, up_to(DAY);
        /// How long a robots.txt is used at least, even if its Cache-Control says less,
        /// so that a careless "no-store" does not double every request. Never more than
        /// `ttl`.
        ttl_min: Duration = r#""5m""#, up_to(DAY);
        /// How long a 4xx, which means that there is no robots.txt, is used; longer if
        /// its Cache-Control says so. Shorter than `ttl`, so that a new robots.txt is
        /// noticed soon.
        unavailable_ttl: Duration = r#""1h""#, up_to(DAY);
        /// Pauses before robots.txt is requested again after a failure (5xx, timeout,
        /// network error): the first pause, which doubles with each failure up to the
        /// second. Until then everything is disallowed, unless `stale` lets an earlier
        /// copy be used.
        retry: GrowingPause = r#"["30s", "30m"]"#, Growing(up_to(DAY));
        /// How long an earlier copy of robots.txt is used while the file cannot be
        /// fetched, counted from when the origin last sent or confirmed it. After that
        /// nothing is allowed (RFC 9309, section 2.3.1.4, leaves "reasonably long" open).
        stale: Duration = r#""30d""#, Span(Duration::ZERO..=THIRTY_DAYS);
        /// Number of redirects that are followed for a robots.txt. RFC 9309, section
        /// 2.3.1.2, requires at least five.
        // Each hop is a request to a site, and crawlers wait for all of them.
        // Browsers stop at 20 as well.
        redirects: u8 = "5", few(5..=20);
        /// How long the fetch of a robots.txt may take, redirects included.
        timeout: Duration = r#""30s""#, up_to(HOUR);
        /// Whether a crawler's own request for a robots.txt is answered from the proxy's
        /// copy.
        serve_cached: bool = "true", Flag;
        /// Number of robots.txt that may be requested at the same time. Further ones
        /// wait, for up to `timeout`. Each may hold `max_bytes` of memory. A client may
        /// hold no more of them than it leaves free, so that one that crawls only sites
        /// that hang leaves some for the others.
        max_fetches: NonZeroUsize = "1024", count(1..=1_000_000);
        /// Number of robots.txt fetches that may be in progress or waiting. Here, too, a
        /// client may hold no more than it leaves free. A request that needs one more is
        /// refused, and may be repeated a second later.
        max_waiting: NonZeroUsize = "16384", count(1..=1_000_000);
        /// Status that answers a request while robots.txt is unreachable and so disallows
        /// everything: 403 as for any refusal, or 503, since some crawlers drop a URL for
        /// good on a 403. Either answer says when to ask again.
        unreachable_answer: StatusCode = "403", Choice(&[("403", StatusCode::FORBIDDEN), ("503", StatusCode::SERVICE_UNAVAILABLE)]);
        /// Number of robots.txt copies that are kept in memory, one for each origin and
        /// crawler. The least recently used are dropped first.
        max_snapshots: NonZeroUsize = "50000", count(1..=10_000_000);
        /// Memory that all copies together may take, approximately. The least recently
        /// used are dropped first. Files from `/.well-known/tdmrep.json` may take a
        /// quarter as much in addition.
        // The lower bound leaves room for one file of the largest `max_bytes`:
        // otherwise each request would fetch it again.
        max_snapshot_bytes: usize = r#""256MiB""#, Size(16 * MIB..=16_384 * MIB);
        /// Number of product tokens that one client may use at an origin within an hour.
        /// The origin is asked for its robots.txt once for each of them, so a client that
        /// makes up names could have it asked without end. A request with one more is
        /// refused.
        max_names: NonZeroUsize = "64", count(1..=1_000_000);
        /// Your own rules in place of robots.txt. The first entry that fits and has not
        /// ended counts.
        /// - `origin`: one origin, or every name below one (`*.site.example` does not
        ///   include site.example itself).
        /// - `agent`: a product token, any of those that the crawler is known by.
        /// - `path`: a pattern as in robots.txt.
        /// - `until`: the end of the entry, which an allow requires.
        ///
        /// Neither /robots.txt nor what `egress` denies can be overridden.
        ///
        /// For example
        /// `[{ origin = "https://site.example", path = "/open/*", action = "allow",
        /// reason = "contract 114", until = 2027-01-31T00:00:00Z }]`,
        /// or, in place of this line, tables that begin with `[[robots.override]]`.
        // Each reading of each path is compared with one entry after the other.
        r#override: Vec<Override> = "[]", List { of: OVERRIDE, len: 0..=10_000 };
    }

    /// Meaning of a status of robots.txt where RFC 9309 leaves a choice.
    ["robots.status"] robots_status: RobotsStatus {
        /// Meaning of 401 and 403: "allow" as for every 4xx (RFC 9309, section 2.3.1.3),
        /// or "refuse" as in the standards before it.
        unauthorized: Unauthorized = r#""allow""#, Choice(&[("allow", Unauthorized::Allow), ("refuse", Unauthorized::Refuse)]);
    }

    /// How strictly robots.txt is enforced.
    ["enforcement"] enforcement: Enforcement {
        /// Treatment of requests that are not allowed: "enforce" refuses them; "report"
        /// forwards them and records what would have been refused, to find out what
        /// enforcing would cost. Addresses that `egress` denies, and names that `crawler`
        /// reserves for other clients, are refused in both modes.
        mode: EnforcementMode = r#""enforce""#, Choice(&[("enforce", EnforcementMode::Enforce), ("report", EnforcementMode::Report)]);
        /// Groups of robots.txt that bind a crawler with several names: those of its
        /// "first" name that robots.txt mentions, or those of "all" its names that are
        /// mentioned, each of which must allow the URL.
        candidates: Candidates = r#""first""#, Choice(&[("first", Candidates::First), ("all", Candidates::All)]);
    }

    /// Preferences of sites about how their pages are used, checked against the
    /// purposes that entries of `crawler`, or `politesse run --purpose`, declare.
    ["preferences"] preferences: Preferences {
        /// Treatment of a page that robots.txt allows, but whose site denies the purposes
        /// of the crawler.
        /// - "refuse": the request is refused, as by a rule, if robots.txt or
        ///   `/.well-known/tdmrep.json` denies them. If only fields or <meta> of the
        ///   response do, the response is withheld.
        /// - "report": request and response are forwarded, and the record says what would
        ///   have been refused or withheld.
        /// - "off": denials are only recorded.
        ///
        /// A crawler without a purpose is never refused for one.
        enforce: PreferenceMode = r#""off""#, PREFERENCE_MODE;
        /// Whether one denied purpose is enough. Otherwise a page is refused only if all
        /// purposes of the crawler are denied.
        any: bool = "false", Flag;
        /// Treatment of a page whose preferences are unknown, because the page cannot be
        /// read completely, or `/.well-known/tdmrep.json` is disallowed or fails. With
        /// "pass" the unknown part denies nothing; with "refuse" it denies every purpose
        /// that it could.
        unknown: UnknownPreferences = r#""pass""#, Choice(&[("pass", UnknownPreferences::Pass), ("refuse", UnknownPreferences::Refuse)]);
    }

    /// The field added to responses, which states the directives in force.
    ["directives"] directives: Directives {
        /// Name of the field. A field of this name that an origin sends is removed.
        header: HeaderName = r#""Robots-Directives""#, FIELD_NAME;
        /// How much of a page, decoded, is searched for <meta name="robots">. 0B leaves
        /// pages unread.
        scan_limit: usize = r#""512KiB""#, Size(0..=16 * MIB);
        /// How much of a page, as sent, may be held back during the search.
        hold_bytes: usize = r#""512KiB""#, Size(0..=16 * MIB);
        /// How long the head of a page may be held back during the search.
        // The crawler gets nothing of the page meanwhile, and its own timeout
        // runs.
        hold_time: Duration = r#""5s""#, Span(Duration::ZERO..=MINUTE);
        /// How much all pages together may hold back, including their decoders. A page
        /// that finds no room is passed on unread, with state=partial.
        hold_total: usize = r#""64MiB""#, Size(0..=16 * 1024 * MIB);
        /// How much of each Robots-Tag or X-Robots-Tag line is read. All lines together
        /// may have 32KiB, or this much if it is more. draft-illyes-repext-03 wants 8KiB
        /// or more.
        field_limit: usize = r#""32KiB""#, Size(8 * 1024..=MIB);
        /// Lines that count if an origin sends both fields: the "union" of both, or
        /// "robots-tag" alone.
        both_fields: BothFields = r#""union""#, Choice(&[("union", BothFields::Union), ("robots-tag", BothFields::RobotsTag)]);
        /// Where <meta name="robots"> is looked for: in the "head", or in all of the
        /// "prefix" that is scanned. With "prefix", those after the head are listed as
        /// outside=(...), and are never in force. "prefix" holds back all that is
        /// scanned, so the crawler waits for it.
        meta_scope: MetaScope = r#""head""#, Choice(&[("head", MetaScope::Head), ("prefix", MetaScope::Prefix)]);
        /// Whether the field also lists preferences about the use of content
        /// (Content-Usage, Content-Signal, TDMRep, RSL). The record has them in any case.
        preferences: bool = "false", Flag;
        /// Whether the field also lists, under the key *, the directives for every
        /// crawler.
        emit_general: bool = "false", Flag;
        /// Memory for the directives of earlier responses, so that a 304 can repeat them.
        known: usize = r#""16MiB""#, Size(0..=16 * 1024 * MIB);
        /// Content codings that origins are asked for: those of the crawler's that are
        /// "decodable" here, or the crawler's "as-is". A page in another coding is passed
        /// on unread, with state=partial.
        accept_encoding: AcceptEncoding = r#""decodable""#, Choice(&[("decodable", AcceptEncoding::Decodable), ("as-is", AcceptEncoding::AsIs)]);
    }

    /// How often sites are asked, and how long requests wait for that. What a site
    /// itself asks for (Crawl-delay, Request-rate, Visit-time, Retry-After) applies
    /// as well, in full.
    ["pace"] pace: Pace {
        /// Limits for each host.
        /// - "standard": 4 requests at the same time, 5 a second.
        /// - "archive": one request after the other. The pause after each is 5 times as
        ///   long as it took, 3s to 30s.
        /// - "owned": 32 requests at the same time.
        ///
        /// Values of `origin` and `rule` replace those of the profile.
        profile: Profile = r#""standard""#, Choice(&[
            ("standard", Profile::Standard),
            ("archive", Profile::Archive),
            ("owned", Profile::Owned),
        ]);
        /// How long a request may wait for its turn. If the wait would be longer, a 429
        /// says at once when to come again. A crawler may have a time of its own
        /// (`crawler`), and can shorten it with Prefer: wait=N. Scrapy gives up after
        /// 180s.
        max_wait: Duration = r#""120s""#, WAIT;
        /// How many times a GET or HEAD is sent again after a 429 or 503 with
        /// Retry-After. Each attempt waits for its turn, within `max_wait`, and is
        /// decided and recorded. 0 passes each 429 and 503 on.
        retry: u8 = "3", few(0..=10);
        /// Limits for each host, over all its schemes and ports, in place of the
        /// profile's: `{ in_flight = 4, rate = "5/s" }`. A rate is per s, m or h.
        origin: PaceLimits = "{}", CEILINGS;
        /// Limits for each crawler, over all hosts, so that one crawler leaves room for
        /// others.
        crawler: PaceLimits = "{}", CEILINGS;
        /// Limits for all crawlers and hosts together.
        total: PaceLimits = "{}", CEILINGS;
        /// Limits for all hosts of one registered domain (`a.site.example` and
        /// `b.site.example`), since they are often one server.
        domain: PaceLimits = "{}", CEILINGS;
        /// Limits for all hosts at one IP address. Some networks serve thousands of sites
        /// from one address.
        address: PaceLimits = "{}", CEILINGS;
        /// How many files may follow a page in its turn, and for how long after it, for
        /// crawlers with `requisites = "follow"`. They do not count toward the rates and
        /// pauses of this section. Where the site itself asks for a pause, each file
        /// waits for its own turn.
        // In alphabetical order, like `backoff`.
        requisites: RequisiteLimits = r#"{ files = 100, time = "60s" }"#, REQUISITES;
        /// How many requests may wait for one host (`origin`), of one crawler
        /// (`crawler`), and in all (`total`). Beyond that, the client with the most
        /// waiting requests loses its latest, which gets 429. Each waiting request takes
        /// some kilobytes and a socket. Files that follow a page are counted separately
        /// at a host.
        queue: QueueLimits = "{ crawler = 512, origin = 256, total = 10000 }", QUEUE;
        /// How long a host is left alone after a 429 or 503 that names no time: `first`,
        /// doubled each time up to `longest`, until the host has been quiet for
        /// `forgive`. Retry-After is obeyed up to `longest`.
        // The words of the default are in alphabetical order, because `config show`
        // prints tables that way and must show an unchanged value as written here.
        backoff: BackOffLimits = r#"{ first = "60s", forgive = "30m", longest = "24h" }"#, BACK_OFF;
        /// How long one response may keep other requests from its host, so that a crawler
        /// that reads slowly does not hold up all the others. A pause that the site asks
        /// for counts from then.
        max_turn: Duration = r#""2m""#, up_to(DAY);
        /// How long a client that takes or sends nothing keeps its turn while others wait
        /// for the host. Its response continues after that. Each 16 KiB that it takes or
        /// sends makes up for a second.
        ///
        /// The time is the sum over all turns of a client at the host. Once it is used
        /// up, each turn may stall for 50ms, until none has stalled for two minutes.
        max_stall: Duration = r#""5s""#, up_to(DAY);
        /// Number of hosts that the proxy keeps in memory. Idle hosts are dropped first.
        max_hosts: NonZeroUsize = "200000", count(1..=10_000_000);
        /// Limits for some hosts in place of those above. The first entry that fits
        /// counts.
        /// - `origin`: a host ("site.example"), an origin there, or every name below one
        ///   (`*.site.example`).
        /// - `hours`: time of day at which the hosts may be visited, in UTC.
        ///
        /// Limits that an entry leaves out are those above, or those of the `profile`
        /// that it names.
        ///
        /// For example
        /// `[{ origin = "*.museum.example", rate = "20/m", hours = "22:00-06:00",
        /// reason = "asked by its owner" }]`,
        /// or, in place of this line, tables that begin with `[[pace.rule]]`.
        // More entries than elsewhere are allowed: they are looked up by hash, not
        // compared one by one.
        rule: Vec<PaceRule> = "[]", List { of: PACE_RULE, len: 0..=100_000 };
    }

    /// Several proxies that act as one polite crawler. Limits for a host apply to all
    /// of them together; `pace.crawler`, `pace.total`, `pace.domain` and
    /// `pace.address` apply to each separately.
    ["fleet"] fleet: Fleet {
        /// The Redis or Valkey server that all nodes share, such as
        /// `["redis://store.example:6379"]`. Several addresses are servers that take over
        /// from each other; the nodes find the primary. Empty: no fleet.
        store: Vec<StoreAddress> = "[]", List { of: FLEET_STORE, len: 0..=8 };
        /// File with the user name and password for the store, as user:password; readable
        /// by this proxy alone (0600).
        store_auth: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// Certificates, in PEM, that the store's certificate is verified against. "none"
        /// uses those of the system.
        store_ca: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// File with a secret that is the same at every node, such as
        /// `openssl rand -hex 32` makes; readable by this proxy alone (0600). With it,
        /// one node fetches a robots.txt for all; with "none", each node fetches its own.
        key: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// Name of the fleet. Its keys in the store begin with this name.
        name: String = r#""politesse""#, FLEET_NAME;
        /// Name of this node, unique in the fleet. "auto" takes the name of the machine.
        node: String = r#""auto""#, FLEET_NAME;
        /// What happens when the store cannot be reached. With "degrade" each node
        /// continues by itself, with pauses long enough for all nodes together; with
        /// "closed" requests get 503.
        on_loss: OnLoss = r#""degrade""#, Choice(&[("degrade", OnLoss::Degrade), ("closed", OnLoss::Closed)]);
        /// How long a node may send requests to a host without contacting the store. A
        /// node that dies keeps the host from the others for as long.
        lease: Duration = r#""2s""#, Span(Duration::from_millis(500)..=FleetRules::LEASE_MAX);
        /// How long a node waits for an answer of the store, at most a quarter of
        /// `fleet.lease`.
        timeout: Duration = r#""200ms""#, Span(Duration::from_millis(10)..=Duration::from_secs(5));
        /// How long after its last contact a node is forgotten. Until then the others
        /// leave room for it, since it may still run without the store.
        forget: Duration = r#""10m""#, Span(MINUTE..=THIRTY_DAYS);
    }

    /// Connections to origins.
    ["upstream"] upstream: Upstream {
        /// How long it may take to connect, TLS included.
        connect_timeout: Duration = r#""10s""#, up_to(HOUR);
        /// How long an origin may take to begin its response.
        first_byte_timeout: Duration = r#""60s""#, up_to(HOUR);
        /// How long a body may stall, in either direction.
        idle_timeout: Duration = r#""60s""#, up_to(HOUR);
        /// Whether HTTP/2 is offered to origins.
        http2: bool = "true", Flag;
        /// How long an unused connection is kept. Shorter than most servers keep theirs,
        /// so that few requests meet a connection that is just being closed.
        pool_idle_timeout: Duration = r#""15s""#, up_to(HOUR);
        /// Number of unused connections that are kept to one origin.
        pool_idle_per_origin: NonZeroUsize = "32", count(1..=1024);
        /// Number of unused connections that are kept to all origins. Half as many more
        /// may be kept for clients whose connections are authenticated (NTLM, Negotiate).
        pool_idle_total: NonZeroUsize = "1024", count(1..=1_000_000);
        /// How long a resolved name is used; a name without an address, 5s at most.
        dns_ttl: Duration = r#""30s""#, up_to(DAY);
        /// How long it may take to resolve a name.
        dns_timeout: Duration = r#""5s""#, up_to(HOUR);
        /// Number of names that are resolved at the same time. Each takes a thread that
        /// cannot be stopped, and that an unresponsive name server keeps for ten seconds
        /// or more. A client may hold no more lookups than it leaves free.
        // The runtime has 1024 threads for blocking calls (`cli::process`). Half of
        // them stay free for files and for the record.
        dns_lookups: NonZeroUsize = "256", count(1..=512);
        /// Number of lookups at the same time for one client in one zone, that is, one
        /// registered domain. Names whose name servers do not answer then wait for each
        /// other, and do not hold up other names.
        dns_zone_lookups: NonZeroUsize = "8", count(1..=512);
        /// Number of resolved names that are kept, and of names that may wait to be
        /// resolved.
        dns_cache: NonZeroUsize = "10000", count(1..=1_000_000);
        /// Addresses for names, in place of those in DNS, like curl's --resolve; an entry
        /// with a port takes precedence. Exempt from `egress.deny`, and with a port also
        /// from `egress.ports`.
        ///
        /// For example
        /// `{ "site.example" = "127.0.0.1", "site.example:443" = "127.0.0.1:8443" }`.
        resolve: Vec<Resolve> = "{}", ResolveTable;
        /// Proxy that all requests go through, except for the names in `resolve`, such as
        /// `http://proxy.example:3128`; "none" connects directly. The parent resolves the
        /// names, so `egress` only covers ports, names and literal addresses.
        parent: Option<Parent> = r#""none""#, PARENT;
        /// File with one line, user:password, the credentials for the parent; readable by
        /// its owner alone (0600).
        parent_auth: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// Exceptions for sites with broken certificates. The first entry that fits
        /// counts.
        /// - `host`: a host, or every name below one (`*.site.example`).
        /// - `verify = false` accepts every certificate: anyone on the way to the site
        ///   can read and change what is sent.
        /// - `roots`: a PEM file with certificates to verify the host against, in place
        ///   of `https.upstream_roots`.
        /// - `min_version`: "1.2" or "1.3".
        ///
        /// The start warns of hosts that are not verified, and each decision about a host
        /// shows its exception with the `reason`.
        ///
        /// For example
        /// `[{ host = "old.museum.example", verify = false,
        /// reason = "expired in 2024" }]`,
        /// or, in place of this line, tables that begin with `[[upstream.tls]]`.
        // Each new connection compares its host with one entry after the other.
        tls: Vec<TlsException> = "[]", List { of: TLS_EXCEPTION, len: 0..=1024 };
    }

    /// Addresses that the proxy may connect to. It never connects to its own
    /// listeners.
    ["egress"] egress: Egress {
        /// Addresses that the proxy does not connect to, since a crawler follows links
        /// that strangers wrote. "default" is loopback, private, link-local and all other
        /// addresses that are not of the public Internet, and names such as localhost and
        /// those of cloud metadata services.
        // Each address that a name leads to is compared with one entry after
        // the other.
        deny: Vec<Deny> = r#"["default"]"#, List { of: DENY, len: 0..=1024 };
        /// Addresses and hosts that the proxy may connect to although `deny` covers them.
        allow: Vec<Allow> = "[]", List { of: ALLOW, len: 0..=1024 };
        /// Ports that the proxy may connect to. "default" is 80, 443, and 1024-65535
        /// except those of well-known databases.
        ports: Vec<EgressPorts> = r#"["default"]"#, List { of: PortRange, len: 1..=1024 };
    }

    /// The record of every decision.
    ["audit"] audit: Audit {
        /// Database of the record.
        store: PathBuf = r#""sqlite:data/audit.db""#, STORE;
        /// Number of places for decisions that wait to be written and for open exchanges.
        /// Each exchange keeps a place so that its end can be written, too. Without a
        /// place a request is refused: nothing is sent unrecorded.
        // At least two: an exchange takes both of its places at once, one for its
        // row and one for its ending.
        queue: NonZeroUsize = "20000", count(2..=1_000_000);
        /// Size that the write-ahead log of the database (audit.db-wal) may reach. A
        /// program that reads the database and keeps its transaction open makes it grow.
        /// At this size every request is refused until that program has ended.
        // A batch may exceed the bound, which therefore has to be larger than a few
        // batches.
        wal_max: usize = r#""256MiB""#, Size(16 * MIB..=16_384 * MIB);
        /// Age at which entries are removed, with everything that only they refer to.
        /// They are removed 8,192 at a time, once the youngest of these is older than
        /// that. "none" keeps them.
        retention: Option<Duration> = r#""none""#, SpanOrNone(Span(Duration::from_secs(1)..=CENTURY));
        /// Person or organisation that runs this proxy. The name is recorded with each
        /// configuration that comes into force, and appears in reports.
        operator: Option<String> = r#""none""#, OPERATOR;
        /// How the query string of a URL is recorded.
        /// - "full": all of it.
        /// - "keyed": an HMAC with a key of the record, data/privacy.key, so that equal
        ///   query strings can be recognised.
        /// - "omitted": only that there was one.
        ///
        /// Without the full query string, a decision that may depend on a rule about
        /// query strings cannot be replayed.
        query_strings: QueryStrings = r#""full""#, Choice(&[("full", QueryStrings::Full), ("keyed", QueryStrings::Keyed), ("omitted", QueryStrings::Omitted)]);
        /// How the address of a client is recorded: all of it ("full"), its network
        /// ("shortened": /24 of IPv4, /48 of IPv6), or an HMAC with the same key
        /// ("keyed").
        client_addresses: ClientAddresses = r#""full""#, Choice(&[("full", ClientAddresses::Full), ("shortened", ClientAddresses::Shortened), ("keyed", ClientAddresses::Keyed)]);
        /// Private key that signs heads of the record, readable by its owner alone
        /// (0600). Created at the first start; "none" is seal.key in the folder of the
        /// record. `politesse audit key` prints the public key.
        seal_key: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// Number of entries after which a head is signed. Entries before a signed head
        /// cannot be changed unnoticed.
        // A start after a crash reads every entry that no head covers.
        seal_entries: NonZeroUsize = "65536", count(1..=1_048_576);
        /// How long an entry may wait for a head that covers it.
        seal_interval: Duration = r#""10m""#, Span(Duration::from_secs(1)..=DAY);
        /// Destinations of each signed head, somewhere that no one with write access to
        /// the record can reach: a file that the head is appended to, "exec:COMMAND" for
        /// a shell command that reads it on standard input, or a URL that it is posted
        /// to.
        // Each target has a task, and gets only the newest head.
        seal_to: Vec<SealTarget> = "[]", List { of: SEAL_TARGET, len: 0..=16 };
        /// PostgreSQL database that all entries are shipped to, beside those of other
        /// nodes: "postgres://db.example/politesse". The connection uses TLS, unless
        /// "?sslmode=disable" follows. Old entries are removed here only after they have
        /// arrived there.
        archive: Option<ArchiveAddress> = r#""none""#, ArchiveOrNone;
        /// File with the user name and password for the archive, as user:password;
        /// readable by this proxy alone (0600).
        archive_auth: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// Certificates, in PEM, that the archive's certificate is verified against.
        /// "none" uses those of the system.
        archive_ca: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// How long each of these may take: a connection to the archive, the shipment of
        /// 4,096 entries, and a query of a command.
        archive_timeout: Duration = r#""30s""#, Span(Duration::from_secs(1)..=HOUR);
    }

    /// The listener for people and monitoring.
    ["admin"] admin: Admin {
        /// Address of /healthz, /readyz, /metrics and the API.
        listen: SocketAddr = r#""127.0.0.1:3129""#, LISTEN;
        /// Path under which browsers see the pages, such as "/politesse", for a reverse
        /// proxy that serves other pages beside them. Requests are accepted with this
        /// path and without it.
        base_path: String = r#""/""#, BASE_PATH;
        /// Names under which the listener may be requested, besides "localhost" and
        /// addresses. Requests under other names are refused: a page of another site
        /// could make a browser send them here.
        // Each request is compared with one name after the other.
        hosts: Vec<String> = "[]", List { of: ADMIN_HOST, len: 0..=64 };
        /// Addresses of reverse proxies whose X-Forwarded-Host, X-Forwarded-Proto and
        /// X-Forwarded-For fields are trusted.
        trusted_proxies: Vec<IpNet> = "[]", List { of: NETWORK, len: 0..=64 };
        /// Certificate of the listener, in PEM, followed by the certificates that lead to
        /// its root. With it, other machines must use https://; programs on this machine
        /// may still connect without TLS.
        tls_cert: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// Private key of `tls_cert`, in PEM; readable by this proxy alone (0600).
        tls_key: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// Number of browsers that may be signed in. One more ends the oldest session.
        sessions: NonZeroUsize = "100", count(1..=10_000);
        /// How long a sign-in lasts before the token is required again.
        session_lifetime: Duration = r#""12h""#, Span(MINUTE..=THIRTY_DAYS);
        /// File with the token for the dashboard and everything else that names hosts: 64
        /// hexadecimal digits, readable by this proxy alone (0600). Created at the first
        /// start; `politesse admin token` prints it.
        token_file: PathBuf = r#""data/admin-token""#, PATH;
    }

    /// The log, on stderr.
    ["log"] log: Log {
        /// "pretty" for people, "json" for programs, or "auto": pretty on a terminal,
        /// else JSON. With "json" the start is an event, too, in place of lines on
        /// stdout; "auto" keeps those lines.
        format: LogFormat = r#""auto""#, Choice(&[("auto", LogFormat::Auto), ("pretty", LogFormat::Pretty), ("json", LogFormat::Json)]);
        /// Least urgent events that are written. "debug" has a line for each exchange.
        level: Level = r#""info""#, Choice(&[("error", Level::ERROR), ("warn", Level::WARN), ("info", Level::INFO), ("debug", Level::DEBUG), ("trace", Level::TRACE)]);
        /// Whether each exchange has a line at every level. The record has all exchanges
        /// in any case.
        exchanges: bool = "false", Flag;
        /// Number of lines of one kind that are written at once, for events that anyone
        /// who reaches the proxy can cause: connections turned away, failed handshakes, a
        /// lack of descriptors. Beyond that, one line a second says how many were left
        /// out.
        burst: NonZeroU32 = "5", places(1..=1_000_000);
    }
}
