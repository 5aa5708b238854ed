//! Table of keys: section, name, type, default, kind, and purpose.
//!
//! The one place of defaults and bounds. From it come the commented default file,
//! the reference of keys, the checks, and the type of every value: a key added here
//! is known everywhere. What is done with a value is not known here.

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
/// As long as anything is to be kept.
const CENTURY: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);
const THIRTY_DAYS: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Form of a log event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// [`LogFormat::Pretty`] on a terminal, else [`LogFormat::Json`].
    Auto,
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// Name of a key without the `r#` that Rust wants before its own words
/// (`r#override`).
const fn bare(identifier: &'static str) -> &'static str {
    match identifier.as_bytes() {
        [b'r', b'#', ..] => identifier.split_at(2).1,
        _ => identifier,
    }
}

/// Writes the table's three forms: [`SECTIONS`] for printing and looking up,
/// a struct per section with the values in their own types, and the reading of
/// one into the other. The doc comments serve both the code and the file.
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

        /// Values in force of all keys.
        pub(super) struct Effective {
            $(
                $(#[doc = $about])+
                pub(super) $field: $Section,
            )+
        }

        impl Effective {
            /// Reads the values in force, if all are right; the layers keep the
            /// problems of all.
            pub(super) fn read(layers: &mut Layers<'_>) -> Option<Self> {
                // All are read before the first wrong one counts.
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
    /// Keys that stand outside every table.
    [""] root: Root {
        /// Names of crawlers. The first entry whose conditions all hold says by which product
        /// tokens a crawler is known, in order; no entry: by those in its User-Agent.
        /// `user_agent` is a part of the User-Agent, in any case, `client` where the
        /// crawler asks from, `credential` the SHA-256 of a token that it shows in
        /// Proxy-Authorization (`proxy.auth`), which `politesse crawler add` makes; an
        /// entry with none of them fits all. A name with a credential cannot be used
        /// without it, and one with `client` not from elsewhere. Each entry has its own
        /// copies of robots.txt. `max_wait` is in place of `pace.max_wait`
        /// for a crawler that hangs up sooner, or waits longer, `label` the label of its
        /// crawl in the record (`politesse audit missed`), `purpose` what its pages are for
        /// ("train-ai", "search", "ai-input", "archive", "images"), and `preferences` is
        /// in place of `preferences.enforce`. `requisites = "follow"` lets
        /// the files that a page embeds go in the turn of the page (`pace.requisites`);
        /// "turn", the default, gives each a turn of its own. For example
        /// `[{ token = "FooBot", user_agent = "foobot/", client = "10.0.0.0/8" }]`,
        /// or, in place of this line, tables that begin with `[[crawler]]`.
        // Each request is compared with one entry after the other.
        crawler: Vec<Identity> = "[]", List { of: CRAWLER, len: 0..=10_000 };
    }

    /// The listener for crawlers.
    ["proxy"] proxy: Proxy {
        /// Addresses to listen on for crawlers. Loopback, because whoever reaches this
        /// port fetches in your name; open it together with `clients`. Port 0 takes
        /// any free one. With https:// before it, as in "https://0.0.0.0:3130", the
        /// proxy shows `tls_cert` there, and the way to it is encrypted. One address
        /// needs no list.
        listen: Vec<ListenAddress> = r#"["127.0.0.1:3128"]"#, LISTENERS;
        /// The certificate of the addresses with https://, in PEM, followed by those
        /// that lead to its root. A reload reads it again; connections that are open
        /// keep the one before.
        tls_cert: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// Its private key, in PEM; readable by this proxy alone (0600).
        tls_key: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// The name of this proxy in Via and Proxy-Status. Proxies in a chain need
        /// different names: a request that carries our own has looped.
        name: String = r#""politesse""#, TOKEN;
        /// Whether requests and responses that are passed on say so in Via, as
        /// RFC 9110, section 7.6.3, asks of proxies.
        via: bool = "true", Flag;
        /// A contact for people who ask about a refusal: a name, an e-mail address or a URL, which
        /// the page of a refusal names. With "none" it names the operator of this proxy.
        contact: Option<String> = r#""none""#, CONTACT;
        /// The name under which this proxy serves its pages for clients, at `http://NAME/`:
        /// how to point one here, `ca.pem` and `proxy.pac`. It is never resolved or passed on.
        /// With "" there is none.
        internal_name: Option<Host> = r#""politesse.internal""#, INTERNAL_NAME;
        /// Addresses that may use this proxy; connections from others are closed at once.
        /// An entry may set limits for all of its addresses together, by the names of
        /// `per_client`: `{ network = "2001:db8::/48", connections = 512 }`.
        // Each new connection is compared with one network after the other.
        clients: Vec<AdmittedNetworks> = r#"["loopback"]"#, List { of: ADMITTED, len: 1..=1024 };
        /// Addresses of load balancers, whose connections begin with a header of the PROXY
        /// protocol, version 1 or 2 (`send-proxy-v2` of HAProxy): the client is the one that it
        /// names, in `clients`, for limits and in the record. A connection from there that
        /// does not begin with it within `header_timeout` is closed; from anywhere else it
        /// is a malformed request. As many connections as `max_handshakes` may wait for
        /// theirs; one more takes the place of the oldest.
        proxy_protocol_from: Vec<IpNet> = "[]", List { of: NETWORK, len: 0..=64 };
        /// Limits for each client, an address or an IPv6 /64: the most that it may hold
        /// of `connections`, `handshakes`, `requests`, `waiting`, `lookups`,
        /// `robots_fetches` and `leaves`. None is needed to keep clients from each other:
        /// who holds most gives way when others come. `rate` is a quota of requests, such as
        /// "50/s": of those beyond it, what would be sent is answered with 429 and reason
        /// `quota`. After a pause as many may come at once.
        per_client: ClientLimits = "{}", CLIENT_LIMITS;
        /// Treatment of credentials (`credential` of `crawler`), which come as
        /// Proxy-Authorization: Basic NAME:TOKEN, or Bearer TOKEN. With "required" all
        /// without a valid one is answered with 407; with "optional" only a wrong one,
        /// and who sends none is known by User-Agent; with "off" none is looked at, and
        /// entries with a credential fit nobody.
        auth: AuthMode = r#""optional""#, Choice(&[
            ("optional", AuthMode::Optional),
            ("required", AuthMode::Required),
            ("off", AuthMode::Off),
        ]);
        /// How many connections may wait to be accepted, at each address: the system
        /// drops what comes beyond that, and its client tries again after a second. Not
        /// more than the system allows (`net.core.somaxconn`); the log says at the start
        /// if that is less. Counts for `admin.listen`, too.
        backlog: NonZeroU32 = "4096", places(1..=1_000_000);
        /// How many connections of crawlers may be open. The next takes the place of
        /// one without a request, or whose requests wait, of the client that holds most;
        /// a client that holds as many itself gets 503 with Retry-After.
        /// Each counts for two descriptors, its own and one to an origin.
        /// With `upstream.pool_idle_total`, `robots.max_fetches`, twice
        /// `upstream.dns_lookups` and some 200 more they make 10,900 by default; the log
        /// says at the start if the limit (`ulimit -Hn`) is lower, and what it suffices for. The
        /// last 192 of the limit, or the last quarter of a low one, are kept for those
        /// answers, the admin listener and the record.
        max_connections: NonZeroUsize = "4096", count(1..=1_000_000);
        /// How many TLS handshakes with clients may be under way. The next takes the
        /// place of the oldest of the client that holds most.
        max_handshakes: NonZeroUsize = "1024", count(1..=1_000_000);
        /// How many requests may be under way, from their head to the end of their
        /// response. The next takes the place of one that waits for its turn, of the
        /// client that holds most.
        max_requests: NonZeroUsize = "16384", count(1..=10_000_000);
        /// How long a request waits while `max_requests` are under way, and a CONNECT
        /// while `max_handshakes` are; then it gets 503 with Retry-After.
        place_wait: Duration = r#""5s""#, Span(Duration::ZERO..=HOUR);
        /// How many commands of `politesse run` may go through this proxy at one time;
        /// the next is not started.
        max_commands: NonZeroUsize = "64", count(1..=10_000);
        /// How long a crawler may take to send the head of a request, so that slow
        /// senders do not use up the connections: the first from the beginning of its
        /// connection, another from its first byte. A part of a head is answered with 408.
        header_timeout: Duration = r#""15s""#, up_to(HOUR);
        /// How long a crawler's connection may lie idle between requests.
        idle_timeout: Duration = r#""60s""#, up_to(DAY);
        /// The least that a crawler sends of an upload, or takes of a response, in
        /// `progress_window` of the time in which nobody else is waited for. Who is
        /// slower is cut off. "0B" for no minimum.
        min_progress: usize = r#""1KiB""#, Size(0..=MIB);
        /// See `min_progress`.
        progress_window: Duration = r#""30s""#, up_to(HOUR);
        /// How long a stop leaves to load balancers until they send nothing more: `/readyz`
        /// says `draining` with 503 meanwhile, and requests are served, on connections that
        /// end with them. Requests that still wait for their turn then have
        /// `shutdown_timeout` for it. "0s", for a proxy without a balancer, answers them with
        /// 503 at once.
        drain_time: Duration = r#""0s""#, Span(Duration::ZERO..=HOUR);
        /// How long a stop waits for requests under way, after `drain_time`. A little below
        /// the 30s that service managers wait before they kill.
        // Zero is a choice here: a stop that cuts everything off at once.
        shutdown_timeout: Duration = r#""25s""#, Span(Duration::ZERO..=HOUR);
    }

    /// HTTPS: the inside of CONNECT is read, since rules are about URLs.
    ["https"] https: Https {
        /// Treatment of CONNECT: "intercept" with a certificate of the local
        /// authority, or "refuse". There is no blind tunnel; it would be a way round
        /// every rule.
        mode: HttpsMode = r#""intercept""#, Choice(&[("intercept", HttpsMode::Intercept), ("refuse", HttpsMode::Refuse)]);
        /// The certificate of the local authority, in PEM, which crawlers have to trust; at
        /// a node of a fleet its own from `politesse ca issue`, followed by the root that
        /// they trust.
        ca_cert: PathBuf = r#""certs/ca.pem""#, PATH;
        /// Its private key; readable by this proxy alone (0600).
        ca_key: PathBuf = r#""certs/ca.key""#, PATH;
        /// Roots that certificates of origins are verified by: those this system trusts, Mozilla's
        /// list as built in ("webpki"), or the ones in a file. A list trusts the roots of all its
        /// entries: ["system", "company.pem"].
        upstream_roots: Vec<Roots> = r#""system""#, OneOrMore(List { of: ROOTS, len: 1..=16 });
        /// How many certificates of host names are kept; the least used goes first.
        leaf_cache: NonZeroUsize = "10000", count(1..=1_000_000);
        /// How long a TLS handshake with a crawler may take.
        handshake_timeout: Duration = r#""10s""#, up_to(HOUR);
    }

    /// How robots.txt is asked for, and how long an answer holds (RFC 9309).
    ["robots"] robots: Robots {
        /// By which text files are read: "rfc9309"; the ones before it,
        /// "draft-2019", "1996", "1994" and "conner-2.0"; or "google", the RFC with
        /// the answers of Google's open-source parser. In the texts before 2019 a
        /// 401 or 403 for robots.txt refuses everything.
        dialect: Dialect = r#""rfc9309""#, Choice(&[
            ("rfc9309", Dialect::Rfc9309),
            ("draft-2019", Dialect::Draft2019),
            ("1996", Dialect::Draft1996),
            ("1994", Dialect::Consensus1994),
            ("conner-2.0", Dialect::Conner),
            ("google", Dialect::Google),
        ]);
        /// Which readings of a URL must be allowed: as "sent"; that and without "dots"
        /// (`/a/../b` is `/b`); or those and what else a "server" takes it for (`//b`,
        /// `/a/..%2fb`, `/a/..;/b`), since a server hands out the file that it reads;
        /// then `Disallow: /a%3Ab` is tried as `/a:b` as well.
        readings: Readings = r#""server""#, Choice(&[
            ("sent", Readings::Sent),
            ("dots", Readings::Dots),
            ("server", Readings::Server),
        ]);
        /// The User-Agent that asks for robots.txt: the crawler's own ("crawler"),
        /// since sites answer by it, or always this one.
        user_agent: UserAgent = r#""crawler""#, USER_AGENT;
        /// How much of a robots.txt is read; the rest is ignored. RFC 9309, section
        /// 2.5, wants 500KiB at least.
        // 500KiB take up to 8 ms to read
        // (docs/decisions/006-bounded-judgement.md), so 16MiB take a quarter of
        // a second of one core for each file.
        max_bytes: usize = r#""500KiB""#, Size(500 * KIB..=16 * MIB);
        /// How long a robots.txt holds if it does not say, and at most. RFC 9309,
        /// section 2.4, wants no copy older than 24h used.
        ttl: Duration = r#""24h""#, up_to(DAY);
        /// How long it holds at least, whatever its Cache-Control says, so that a
        /// careless "no-store" does not double every request. Never more than `ttl`.
        ttl_min: Duration = r#""5m""#, up_to(DAY);
        /// How long "there is none" (4xx) holds: shorter than `ttl`, since a new
        /// robots.txt should be noticed soon.
        unavailable_ttl: Duration = r#""1h""#, up_to(DAY);
        /// When to ask again after a failure (5xx, time-out, network error), which
        /// forbids everything meanwhile: the first pause, which doubles up to the
        /// second.
        retry: GrowingPause = r#"["30s", "30m"]"#, Growing(up_to(DAY));
        /// How long a robots.txt that was read before is used while it cannot be asked
        /// for, counted from when the origin last sent or confirmed it. Then nothing
        /// is allowed any more (RFC 9309, section 2.3.1.4, leaves "reasonably long").
        stale: Duration = r#""30d""#, Span(Duration::ZERO..=THIRTY_DAYS);
        /// How many redirects of a robots.txt are followed. RFC 9309, section
        /// 2.3.1.2, wants five at least.
        // Each hop is a request to a site, and crawlers wait for all of them;
        // browsers stop at 20, too.
        redirects: u8 = "5", few(5..=20);
        /// How long one robots.txt may take, redirects included.
        timeout: Duration = r#""30s""#, up_to(HOUR);
        /// Whether a crawler's own request for a robots.txt is answered from our copy.
        serve_cached: bool = "true", Flag;
        /// How many may be asked for at the same time; the next wait, for as long as
        /// `timeout`. Each may hold `max_bytes` meanwhile. No client has more of them
        /// than it leaves free, so that one which asks for nothing but sites that hang
        /// leaves the others some.
        max_fetches: NonZeroUsize = "1024", count(1..=1_000_000);
        /// How many may be under way or wait, for the crawlers that need them, again no
        /// more for one client than it leaves free; a request that needs one more is
        /// refused, and may be repeated a second later.
        max_waiting: NonZeroUsize = "16384", count(1..=1_000_000);
        /// The status of the answer to a request while robots.txt is unreachable, and so
        /// forbids everything: 403 as for any refusal, or 503, since some crawlers drop
        /// a URL for good on a 403. Either says when to ask again.
        unreachable_answer: StatusCode = "403", Choice(&[("403", StatusCode::FORBIDDEN), ("503", StatusCode::SERVICE_UNAVAILABLE)]);
        /// How many copies are kept in memory; the least used goes first. There is one
        /// for each origin and crawler.
        max_snapshots: NonZeroUsize = "50000", count(1..=10_000_000);
        /// How much they may take together, about; the least used goes first. The files
        /// `/.well-known/tdmrep.json` may take a quarter as much besides.
        // The lower bound leaves room for one file of the largest `max_bytes`:
        // otherwise each request would fetch it again.
        max_snapshot_bytes: usize = r#""256MiB""#, Size(16 * MIB..=16_384 * MIB);
        /// By how many names one client may come to an origin in an hour. For each of
        /// them the origin is asked for its robots.txt, so a client that makes up names
        /// could have it asked without end. What comes by one more is refused.
        max_names: NonZeroUsize = "64", count(1..=1_000_000);
        /// Your own rules in place of robots.txt: the first entry that fits and has not
        /// ended. `origin` is one origin, or every name below one
        /// ("*.site.example" is not site.example itself), `agent` a product token, any
        /// of those that the crawler is known by, `path` a pattern as in robots.txt.
        /// An allow needs an end. Neither /robots.txt nor what `egress` denies can be
        /// overridden. For example `[{ origin = "https://site.example", path = "/open/*",
        /// action = "allow", reason = "contract 114", until = 2027-01-31T00:00:00Z }]`,
        /// or, in place of this line, tables that begin with `[[robots.override]]`.
        // Each reading of each path is compared with one entry after the other.
        r#override: Vec<Override> = "[]", List { of: OVERRIDE, len: 0..=10_000 };
    }

    /// The meaning of a status of robots.txt where RFC 9309 leaves a choice.
    ["robots.status"] robots_status: RobotsStatus {
        /// The meaning of 401 and 403: "allow" as for every 4xx (RFC 9309, section
        /// 2.3.1.3), or "refuse" as in the texts before it.
        unauthorized: Unauthorized = r#""allow""#, Choice(&[("allow", Unauthorized::Allow), ("refuse", Unauthorized::Refuse)]);
    }

    /// How strictly crawlers are held to it.
    ["enforcement"] enforcement: Enforcement {
        /// Treatment of what may not be fetched: "enforce" refuses it, "report"
        /// forwards it all the same and records what would have been refused, to find
        /// out what enforcing would cost. What `egress` denies, and names
        /// that `crawler` pins to others, are refused in both.
        mode: EnforcementMode = r#""enforce""#, Choice(&[("enforce", EnforcementMode::Enforce), ("report", EnforcementMode::Report)]);
        /// The groups that bind a crawler of several names: those of the "first" one that
        /// robots.txt speaks to, or of "all" it speaks to, each of which must allow.
        candidates: Candidates = r#""first""#, Choice(&[("first", Candidates::First), ("all", Candidates::All)]);
    }

    /// Preferences of sites about what their pages are used for, and the purposes that
    /// entries of `crawler`, or `politesse run --purpose`, declare.
    ["preferences"] preferences: Preferences {
        /// Treatment of a page that robots.txt allows, where the site denies the purposes of
        /// the crawler: "refuse" refuses it like a rule if robots.txt or
        /// `/.well-known/tdmrep.json` says so, and withholds the response if only that says
        /// so (fields, <meta>). "report" forwards both and records what would have been
        /// refused or withheld. "off" only records what is denied. A crawler without a
        /// purpose is never refused for one.
        enforce: PreferenceMode = r#""off""#, PREFERENCE_MODE;
        /// Whether one denied purpose is enough. Otherwise a page is refused if each
        /// purpose of the crawler is denied.
        any: bool = "false", Flag;
        /// Treatment of a page if what its site states is not known, because the page cannot
        /// be read whole, or `/.well-known/tdmrep.json` is disallowed or fails. "pass" lets
        /// what is not known deny nothing, "refuse" has it deny every purpose that it could.
        unknown: UnknownPreferences = r#""pass""#, Choice(&[("pass", UnknownPreferences::Pass), ("refuse", UnknownPreferences::Refuse)]);
    }

    /// The field added to responses, which states the directives in force.
    ["directives"] directives: Directives {
        /// The field's name. A field of this name that an origin sends is removed.
        header: HeaderName = r#""Robots-Directives""#, FIELD_NAME;
        /// How much of a page, decoded, is searched for <meta name="robots">. 0B
        /// leaves pages unread.
        scan_limit: usize = r#""512KiB""#, Size(0..=16 * MIB);
        /// How much of a page, as sent, is held back for that.
        hold_bytes: usize = r#""512KiB""#, Size(0..=16 * MIB);
        /// How long the head of a page is held back for that.
        // The crawler gets nothing of the page meanwhile, and its own timeout
        // runs.
        hold_time: Duration = r#""5s""#, Span(Duration::ZERO..=MINUTE);
        /// How much all pages together may hold back, their decoders included. A page
        /// that finds no room is passed on unread, with state=partial.
        hold_total: usize = r#""64MiB""#, Size(0..=16 * 1024 * MIB);
        /// How much of each line of Robots-Tag and X-Robots-Tag is read; of all lines
        /// together 32KiB, or this. draft-illyes-repext-03 wants 8KiB or more.
        field_limit: usize = r#""32KiB""#, Size(8 * 1024..=MIB);
        /// The lines that count where an origin sends both of them: the "union", or
        /// "robots-tag" alone.
        both_fields: BothFields = r#""union""#, Choice(&[("union", BothFields::Union), ("robots-tag", BothFields::RobotsTag)]);
        /// Which <meta name="robots"> are looked for: those in the "head", or in all of
        /// the "prefix" that is scanned. Those behind the head are then told as
        /// outside=(...); they are never in force. "prefix" holds back all that is
        /// scanned, so that the crawler waits for it.
        meta_scope: MetaScope = r#""head""#, Choice(&[("head", MetaScope::Head), ("prefix", MetaScope::Prefix)]);
        /// Whether preferences about the use of content (Content-Usage, Content-Signal,
        /// TDMRep, RSL) are in the field, too. They are in the record anyway.
        preferences: bool = "false", Flag;
        /// Whether the field has what everyone is told, too, under the key *.
        emit_general: bool = "false", Flag;
        /// How much is kept of what pages said, so that a 304 can repeat it.
        known: usize = r#""16MiB""#, Size(0..=16 * 1024 * MIB);
        /// Which content codings are asked for: those of the crawler's that are
        /// "decodable" here, or the crawler's "as-is". A page in another coding is
        /// passed on unread, with state=partial.
        accept_encoding: AcceptEncoding = r#""decodable""#, Choice(&[("decodable", AcceptEncoding::Decodable), ("as-is", AcceptEncoding::AsIs)]);
    }

    /// How often sites are asked, and how long requests wait for that. What a site
    /// asks for (Crawl-delay, Request-rate, Visit-time, Retry-After) counts beside
    /// it, in full.
    ["pace"] pace: Pace {
        /// The values of keys that are absent: "standard", 4 requests to a host at the
        /// same time and 5 a second; "archive", one after the other, each 5 times as
        /// long after the last as that took, 3s to 30s; "owned", 32 at the same time.
        profile: Profile = r#""standard""#, Choice(&[
            ("standard", Profile::Standard),
            ("archive", Profile::Archive),
            ("owned", Profile::Owned),
        ]);
        /// How long a request may wait for its turn. If it would be longer, 429 says at
        /// once when to come again. A crawler may have a time of its own (`crawler`), and
        /// shortens it with Prefer: wait=N. Scrapy gives up after 180s.
        max_wait: Duration = r#""120s""#, WAIT;
        /// How often a GET or HEAD that gets a 429 or 503 with Retry-After is sent once
        /// more, in turn, if that is within `max_wait`. Each sending is decided and
        /// recorded. 0 passes each 429 and 503 on.
        retry: u8 = "3", few(0..=10);
        /// Ceilings of each host, over all its schemes and ports, in place of the
        /// profile's: `{ in_flight = 4, rate = "5/s" }`. A rate is per s, m or h.
        origin: PaceLimits = "{}", CEILINGS;
        /// Ceilings of each crawler, over all hosts, so that one leaves others some.
        crawler: PaceLimits = "{}", CEILINGS;
        /// Ceilings of all crawlers and hosts together.
        total: PaceLimits = "{}", CEILINGS;
        /// Ceilings of all hosts of one registered domain (`a.site.example` and
        /// `b.site.example`), since they are often one server.
        domain: PaceLimits = "{}", CEILINGS;
        /// Ceilings of all hosts at one IP address. Some networks serve thousands of
        /// sites from one.
        address: PaceLimits = "{}", CEILINGS;
        /// How many files may follow a page in its turn, and until when after it, for crawlers
        /// with `requisites = "follow"`. They count under no rate and pause of this section.
        /// Where the site asks for a pause itself, each file waits for its own turn.
        // In alphabetical order, as `backoff`.
        requisites: RequisiteLimits = r#"{ files = 100, time = "60s" }"#, REQUISITES;
        /// How many requests may wait for one host, of one crawler, and in all. Beyond
        /// that the client with the most of them loses its latest, which is answered with
        /// 429. Each takes some kilobytes and a socket meanwhile. Files that follow a page count
        /// apart from the others at a host.
        queue: QueueLimits = "{ crawler = 512, origin = 256, total = 10000 }", QUEUE;
        /// How long a host is left alone that answers with 429 or 503 and names no time:
        /// `first`, doubled each time up to `longest`, until it was quiet for `forgive`.
        /// Retry-After is obeyed up to `longest`.
        // The words of the default stand in alphabetical order, as `config
        // show` prints a table; so it shows an unchanged value as it is written
        // here.
        backoff: BackOffLimits = r#"{ first = "60s", forgive = "30m", longest = "24h" }"#, BACK_OFF;
        /// How long one response keeps others from its host: a crawler that reads slowly
        /// is not to hold up all. The pause that the site asks for counts from then.
        max_turn: Duration = r#""2m""#, up_to(DAY);
        /// How long a client that takes or sends nothing keeps its turn from others who
        /// wait for the host, in all. Each 16 KiB that it takes or sends makes up for a
        /// second. Its response goes on.
        /// It counts for all turns of a client at the host; after that they may stall for
        /// 50ms each, until none has for two minutes.
        max_stall: Duration = r#""5s""#, up_to(DAY);
        /// Of how many hosts something is known at a time; the idle ones go first.
        max_hosts: NonZeroUsize = "200000", count(1..=10_000_000);
        /// Ceilings of some hosts in place of the ones above, by the first entry that
        /// fits. `origin` is a
        /// host ("site.example"), an origin there, or every name below one
        /// ("*.site.example"). `hours` are UTC. What is absent is as above, or as in the
        /// `profile` that the entry names. For example `[{ origin = "*.museum.example",
        /// rate = "20/m", hours = "22:00-06:00", reason = "asked by its owner" }]`,
        /// or, in place of this line, tables that begin with `[[pace.rule]]`.
        // More entries than elsewhere: they are looked up by hash, not compared
        // one by one.
        rule: Vec<PaceRule> = "[]", List { of: PACE_RULE, len: 0..=100_000 };
    }

    /// Several proxies that are one polite crawler. Each limit of a host is that of all
    /// of them together; `pace.crawler`, `pace.total`, `pace.domain` and `pace.address`
    /// are those of each.
    ["fleet"] fleet: Fleet {
        /// The Redis or Valkey that all nodes share, as in
        /// `["redis://store.example:6379"]`. Several are servers of which one takes the
        /// place of another: the one that takes orders is found. Empty: no fleet.
        store: Vec<StoreAddress> = "[]", List { of: FLEET_STORE, len: 0..=8 };
        /// A file with the name and the password for the store, of the form user:password;
        /// readable by this proxy alone (0600).
        store_auth: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// Certificates by which that of the store is verified, in PEM. "none" are those of
        /// the system.
        store_ca: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// A file with a secret that is the same at every node, as `openssl rand -hex 32`
        /// makes one; readable by this proxy alone (0600). With it one node fetches a
        /// robots.txt for all; with "none" each fetches its own.
        key: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// The name of the fleet: keys in the store begin with it.
        name: String = r#""politesse""#, FLEET_NAME;
        /// The name of this node, which no other one has. "auto" is that of the machine.
        node: String = r#""auto""#, FLEET_NAME;
        /// What happens where the store cannot be reached: each node goes on with the
        /// pauses of all of them ("degrade"), or requests get a 503 ("closed").
        on_loss: OnLoss = r#""degrade""#, Choice(&[("degrade", OnLoss::Degrade), ("closed", OnLoss::Closed)]);
        /// How long a node may ask a host without a word to the store. A node that dies
        /// keeps the host from the others for as long.
        lease: Duration = r#""2s""#, Span(Duration::from_millis(500)..=FleetRules::LEASE_MAX);
        /// How long an answer of the store is waited for; a quarter of `fleet.lease` at most.
        timeout: Duration = r#""200ms""#, Span(Duration::from_millis(10)..=Duration::from_secs(5));
        /// After how long a node is forgotten that is not heard of. Until then the others
        /// leave room for it, since it may go on without the store.
        forget: Duration = r#""10m""#, Span(MINUTE..=THIRTY_DAYS);
    }

    /// Connections to origins.
    ["upstream"] upstream: Upstream {
        /// How long a connection may take to be made, TLS included.
        connect_timeout: Duration = r#""10s""#, up_to(HOUR);
        /// How long an origin may take to begin its response.
        first_byte_timeout: Duration = r#""60s""#, up_to(HOUR);
        /// How long a body may stall, either way.
        idle_timeout: Duration = r#""60s""#, up_to(HOUR);
        /// Whether HTTP/2 is offered to origins.
        http2: bool = "true", Flag;
        /// How long an unused connection is kept. Shorter than most servers keep
        /// theirs, so that few requests meet one that is just being closed.
        pool_idle_timeout: Duration = r#""15s""#, up_to(HOUR);
        /// How many unused connections are kept to one origin.
        pool_idle_per_origin: NonZeroUsize = "32", count(1..=1024);
        /// How many unused connections are kept to all origins. Half as many more may
        /// be kept for clients whose connections are authenticated (NTLM, Negotiate).
        pool_idle_total: NonZeroUsize = "1024", count(1..=1_000_000);
        /// How long a resolved name holds; one without an address 5s at most.
        dns_ttl: Duration = r#""30s""#, up_to(DAY);
        /// How long a name may take to be resolved.
        dns_timeout: Duration = r#""5s""#, up_to(HOUR);
        /// How many names are resolved at a time, each on a thread that cannot be
        /// stopped and that a name server which does not answer keeps for ten seconds
        /// or more. No client has more of them than it leaves free.
        // The runtime has 1024 threads for calls that block (`cli::process`). Half
        // of them stay free for files and for the record.
        dns_lookups: NonZeroUsize = "256", count(1..=512);
        /// How many of them for one client in one zone, the domain that somebody has
        /// registered: names whose name servers do not answer wait for each other, and
        /// not other names for them.
        dns_zone_lookups: NonZeroUsize = "8", count(1..=512);
        /// How many resolved names are kept, and how many may wait to be resolved.
        dns_cache: NonZeroUsize = "10000", count(1..=1_000_000);
        /// Addresses of names in place of those in DNS, like curl's --resolve; the entry
        /// with a port wins. Exempt from `egress.deny`, with a port from `egress.ports`
        /// too. For example
        /// { "site.example" = "127.0.0.1", "site.example:443" = "127.0.0.1:8443" }
        resolve: Vec<Resolve> = "{}", ResolveTable;
        /// A proxy that all but the names in `resolve` is asked through, such as
        /// `http://proxy.example:3128`; "none" goes direct. It resolves the names, so
        /// that `egress` holds for ports, names and literal addresses only.
        parent: Option<Parent> = r#""none""#, PARENT;
        /// A file with one line, user:password, that the parent is shown; readable by
        /// its owner alone (0600).
        parent_auth: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// Exceptions for sites with broken certificates: the first entry that fits.
        /// `host` is a host, or every name below one ("*.site.example"). With
        /// `verify = false` every certificate is accepted, and anyone on the way to the
        /// site can read and change what is sent. `roots` is a PEM file with certificates
        /// to verify the host by, in place of `https.upstream_roots`. `min_version` is
        /// "1.2" or "1.3". The start warns of hosts that are not verified, and each
        /// decision about a host shows its exception with the `reason`. For example
        /// `[{ host = "old.museum.example", verify = false, reason = "expired in 2024" }]`,
        /// or, in place of this line, tables that begin with `[[upstream.tls]]`.
        // Each new connection compares its host with one entry after the other.
        tls: Vec<TlsException> = "[]", List { of: TLS_EXCEPTION, len: 0..=1024 };
    }

    /// Which addresses may be dialled. Our own listeners never are.
    ["egress"] egress: Egress {
        /// Addresses that are not dialled. "default" is loopback, private, link-local and all
        /// other addresses that are not of the public Internet, and the names of
        /// cloud metadata services: a crawler follows links that strangers wrote.
        // Each address that a name leads to is compared with one entry after
        // the other.
        deny: Vec<Deny> = r#"["default"]"#, List { of: DENY, len: 0..=1024 };
        /// Addresses and hosts that are dialled although `deny` has them.
        allow: Vec<Allow> = "[]", List { of: ALLOW, len: 0..=1024 };
        /// Which ports may be asked for. "default" is 80, 443 and 1024-65535 but
        /// those of well-known databases.
        ports: Vec<EgressPorts> = r#"["default"]"#, List { of: PortRange, len: 1..=1024 };
    }

    /// The record of every decision.
    ["audit"] audit: Audit {
        /// The database.
        store: PathBuf = r#""sqlite:data/audit.db""#, STORE;
        /// How many decisions may wait to be written, and exchanges be open: each holds
        /// a place, so that its end can be written too. Without one a request is
        /// refused: nothing goes on unrecorded.
        // Two at least: an exchange takes both of its places at once, one for
        // its row and one for its ending.
        queue: NonZeroUsize = "20000", count(2..=1_000_000);
        /// How long the write-ahead log of the database (audit.db-wal) may become. A
        /// program that reads the database and keeps its transaction open makes it grow;
        /// at this length every request is refused until that program has ended.
        // One batch may go beyond the bound, so it has to be longer than a few
        // of them.
        wal_max: usize = r#""256MiB""#, Size(16 * MIB..=16_384 * MIB);
        /// How old entries become before they are removed, with what they alone refer to:
        /// 8,192 at a time, when the youngest of them is older. "none": they stay.
        retention: Option<Duration> = r#""none""#, SpanOrNone(Span(Duration::from_secs(1)..=CENTURY));
        /// The person or organisation that runs this proxy. It is written to the record
        /// with each configuration that comes in force, and stands in reports.
        operator: Option<String> = r#""none""#, OPERATOR;
        /// What is written of the query string of a URL: all of it ("full"), an HMAC by a
        /// key of the record, data/privacy.key, by which equal ones are told ("keyed"), or
        /// that there was one ("omitted"). Without it, a decision that may rest on a rule
        /// about query strings cannot be made again.
        query_strings: QueryStrings = r#""full""#, Choice(&[("full", QueryStrings::Full), ("keyed", QueryStrings::Keyed), ("omitted", QueryStrings::Omitted)]);
        /// What is written of the address of a client: all of it ("full"), its network
        /// ("shortened": /24 of IPv4, /48 of IPv6), or an HMAC by the same key ("keyed").
        client_addresses: ClientAddresses = r#""full""#, Choice(&[("full", ClientAddresses::Full), ("shortened", ClientAddresses::Shortened), ("keyed", ClientAddresses::Keyed)]);
        /// The private key by which heads of the record are signed, readable by its
        /// owner alone (0600). Made at the first start; "none" is seal.key in the folder
        /// of the record. `politesse audit key` prints the public key.
        seal_key: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// After how many entries a head is signed: what came before it cannot be
        /// changed unnoticed.
        // A start after a crash reads what no head covers.
        seal_entries: NonZeroUsize = "65536", count(1..=1_048_576);
        /// How long an entry may wait for a head that covers it.
        seal_interval: Duration = r#""10m""#, Span(Duration::from_secs(1)..=DAY);
        /// Where each head goes, out of reach of whoever could change the record: a file
        /// that it is appended to, "exec:COMMAND" for a command of the shell that reads it
        /// on standard input, or a URL that it is posted to.
        // Each has a task, and all get the newest head alone.
        seal_to: Vec<SealTarget> = "[]", List { of: SEAL_TARGET, len: 0..=16 };
        /// A PostgreSQL database to which all entries are shipped, those of other nodes
        /// beside them: "postgres://db.example/politesse". TLS is spoken, unless
        /// "?sslmode=disable" follows. Old entries are removed here once they have arrived
        /// there.
        archive: Option<ArchiveAddress> = r#""none""#, ArchiveOrNone;
        /// A file with the name and the password for the archive, of the form
        /// user:password; readable by this proxy alone (0600).
        archive_auth: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// Certificates by which that of the archive is verified, in PEM. "none" are those
        /// of the system.
        archive_ca: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// How long a connection to the archive may take, the shipment of 4,096 entries, and
        /// a query of a command.
        archive_timeout: Duration = r#""30s""#, Span(Duration::from_secs(1)..=HOUR);
    }

    /// The listener for people and monitoring.
    ["admin"] admin: Admin {
        /// The address of /healthz, /readyz, /metrics and the API.
        listen: SocketAddr = r#""127.0.0.1:3129""#, LISTEN;
        /// The path below which browsers see the pages, where a reverse proxy has others
        /// beside it, as in "/politesse". Requests are taken with it and without.
        base_path: String = r#""/""#, BASE_PATH;
        /// Names by which the listener may be asked, beside "localhost" and addresses.
        /// Under any other name a page of another site could ask in a browser.
        // Each request is compared with one name after the other.
        hosts: Vec<String> = "[]", List { of: ADMIN_HOST, len: 0..=64 };
        /// Addresses of reverse proxies whose X-Forwarded-Host, X-Forwarded-Proto and
        /// X-Forwarded-For count.
        trusted_proxies: Vec<IpNet> = "[]", List { of: NETWORK, len: 0..=64 };
        /// The certificate of the listener, in PEM, followed by those that lead to its
        /// root. With it the pages are https:// for other machines; programs on this one
        /// may go on without.
        tls_cert: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// Its private key, in PEM; readable by this proxy alone (0600).
        tls_key: Option<PathBuf> = r#""none""#, PATH_OR_NONE;
        /// How many browsers may be signed in; one more ends the oldest session.
        sessions: NonZeroUsize = "100", count(1..=10_000);
        /// How long somebody who has signed in may look, before the token is wanted again.
        session_lifetime: Duration = r#""12h""#, Span(MINUTE..=THIRTY_DAYS);
        /// The token of the dashboard and of what else names hosts: 64 hexadecimal digits, readable
        /// by this proxy alone (0600). Made at the first start; `politesse admin token`
        /// prints it.
        token_file: PathBuf = r#""data/admin-token""#, PATH;
    }

    /// The log, on stderr.
    ["log"] log: Log {
        /// "pretty" for people, "json" for programs, which get the start as an event,
        /// too, and not as lines on stdout; "auto" is pretty on a terminal, else JSON,
        /// and keeps those lines.
        format: LogFormat = r#""auto""#, Choice(&[("auto", LogFormat::Auto), ("pretty", LogFormat::Pretty), ("json", LogFormat::Json)]);
        /// The least urgent events that are written. "debug" has a line for each
        /// exchange.
        level: Level = r#""info""#, Choice(&[("error", Level::ERROR), ("warn", Level::WARN), ("info", Level::INFO), ("debug", Level::DEBUG), ("trace", Level::TRACE)]);
        /// Whether each exchange has a line, whatever the level. The record has
        /// all exchanges anyway.
        exchanges: bool = "false", Flag;
        /// How many lines of one kind are written at once, of those that whoever
        /// reaches the proxy can cause: connections turned away, failed handshakes, a
        /// lack of descriptors. Of more there is one line a second, which says how many
        /// were left out.
        burst: NonZeroU32 = "5", places(1..=1_000_000);
    }
}
