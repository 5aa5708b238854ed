//! Settings: the values in force, split into the `Options` of each module.
//!
//! Infallible, because every value was checked when it was parsed into its type.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::keys::{
    Admin, Audit, Directives, Effective, Egress, Fleet, Log, LogFormat, Pace, Preferences, Proxy,
    Robots, Upstream,
};
use super::layers::Folders;
use super::print::Values;
use politesse_admin::{ArrivalRules, SessionOptions, ShownKey};
use politesse_base::clients::client::ClientLimits;
use politesse_base::clients::directory::{self, NetworkLimits};
use politesse_base::tls::Roots;
use politesse_decision::decide::Policy;
use politesse_decision::inquiry::{Identities, Identity};
use politesse_decision::preferences::PreferenceDefaults;
use politesse_directives::denials::DenialRule;
use politesse_directives::{DirectiveLimits, GeneralKey, PreferenceListing};
use politesse_fleet::membership::FleetRules;
use politesse_net::client::TlsOptions;
use politesse_net::{client as upstream, egress};
use politesse_pace::options as pace;
use politesse_pace::policy::PacePolicy;
use politesse_proxy::fields::AcceptEncoding;
use politesse_proxy::places::EntryLimits;
use politesse_proxy::progress::MinimumProgress;
use politesse_proxy::upload::UploadLimits;
use politesse_proxy::{
    annotate, ca, connect, exchange, fields, listener_tls, request, server, turns,
};
use politesse_record::SealTarget;
use politesse_record::privacy::PrivacyOptions;
use politesse_robots::origin::{Host, Scheme};
use politesse_robots_cache::options as robots_cache;
use politesse_robots_cache::options::UserAgent;

/// Options of each module.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Configuration file that was read, if any.
    pub file: Option<PathBuf>,
    /// Options of the listener for crawlers.
    pub listener: server::Options,
    /// Options of one exchange.
    pub exchange: exchange::Options,
    /// Handling of CONNECT.
    pub connect: connect::Options,
    /// Options of the local certificate authority.
    pub ca: ca::Options,
    /// Options of the response field that states the directives in force.
    pub annotate: annotate::Options,
    /// Options of the robots.txt cache.
    pub robots: robots_cache::Options,
    /// Maximum number of product tokens that one client may use at an origin
    /// (`robots.max_names`). `None` with a fixed User-Agent, because then all crawlers
    /// share one robots.txt.
    pub max_names: Option<NonZeroUsize>,
    /// The operator's policy for decisions.
    pub policy: Policy,
    /// Options of the pace layer.
    pub pace: pace::Options,
    /// Options of the fleet.
    pub fleet: politesse_fleet::options::Options,
    /// Options of connections to origins.
    pub upstream: upstream::Options,
    /// Rules for the addresses that may be dialled.
    pub egress: egress::Options,
    /// Options of the record.
    pub audit: politesse_record::Options,
    /// Options of the archive.
    pub archive: politesse_archive::Options,
    /// Options of the admin listener.
    pub admin: politesse_admin::Options,
    /// Options of the log.
    pub log: LogOptions,
    /// Person or organisation that runs the proxy (`audit.operator`).
    pub operator: Option<String>,
    /// Every key with its value as TOML, without secrets, for the record.
    pub text: Arc<str>,
    /// All values as written, for finding out what a reload changes.
    pub values: Values,
    /// All keys as a page shows them, without secrets.
    pub keys: Arc<[ShownKey]>,
}

/// Time beyond the length of a lease that every request may wait for one.
const LEASE_PATIENCE: Duration = Duration::from_secs(1);

/// Options of the log. Used only by the command line, which sets up the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Format of an event.
    pub format: LogFormat,
    /// The least urgent level that is written.
    pub level: tracing::Level,
    /// Whether each exchange is logged, regardless of the level.
    pub exchanges: bool,
    /// Maximum burst of lines of one kind, for lines that clients can cause without
    /// limit.
    pub burst: NonZeroU32,
}

impl Settings {
    /// Describes conflicts between values that are each valid on their own.
    #[must_use]
    pub fn conflicts(&self) -> Vec<String> {
        let (listen, admin) = (&self.listener.listen, &self.admin.tls);
        let has_https = listen.iter().any(|listen| listen.scheme == Scheme::Https);
        let wants_tls = admin.cert.is_some() || admin.key.is_some();
        let missing = [
            self.listener.tls.missing().filter(|_| has_https),
            admin.missing().filter(|_| wants_tls),
        ];
        let mut conflicts: Vec<String> =
            missing.iter().flatten().map(ToString::to_string).collect();
        let mut earlier: Vec<SocketAddr> = Vec::new();
        let addresses = listen.iter().map(|listen| listen.address);
        for address in addresses.chain([self.admin.listen]) {
            if let Some(other) = earlier.iter().find(|other| overlap(address, **other)) {
                conflicts.push(format!(
                    "of {other} and {address}, in proxy.listen and admin.listen, only one can be \
                     listened on"
                ));
            }
            earlier.push(address);
        }
        conflicts
    }

    /// Splits `effective` into options. Relative paths start from `folders`.
    pub(super) fn new(mut effective: Effective, folders: &Folders) -> Self {
        let least_wait = wait_for_leases(&mut effective);
        let Folders { base, data } = folders;
        let Effective {
            proxy,
            https,
            mut robots,
            mut upstream,
            ..
        } = effective;
        let policy = Policy::new(effective.robots_status.unauthorized).with(|terms| {
            terms.dialect = robots.dialect;
            terms.readings = robots.readings;
            terms.candidates = effective.enforcement.candidates;
            terms.mode = effective.enforcement.mode;
            terms.overrides = std::mem::take(&mut robots.r#override);
            terms.tls.clone_from(&upstream.tls);
        });
        let tls = tls_options(https.upstream_roots, &mut upstream, base);
        let own_name = proxy.internal_name.clone();
        let longest_wait = longest_wait(&effective.root.crawler, effective.pace.max_wait);
        Self {
            file: None,
            exchange: exchange::Options {
                request: request::Options {
                    fields: fields_options(&proxy, effective.directives.accept_encoding),
                    upload: upload_limits(&proxy),
                    identities: Identities::new(effective.root.crawler)
                        .with_preferences(preference_defaults(&effective.preferences)),
                    auth: proxy.auth,
                    own_name: proxy.internal_name.clone(),
                },
                turns: turns_options(&robots, &effective.pace, least_wait),
                place_wait: proxy.place_wait,
                unreachable: robots.unreachable_answer,
                contact: proxy.contact.as_deref().map(Arc::from),
            },
            listener: listener_options(proxy, base),
            connect: connect::Options {
                mode: https.mode,
                handshake_timeout: https.handshake_timeout,
            },
            ca: ca::Options {
                cert: data.join(https.ca_cert),
                key: data.join(https.ca_key),
                leaf_cache: https.leaf_cache,
            },
            annotate: annotate_options(effective.directives),
            // With a fixed User-Agent all crawlers share one robots.txt, so another
            // name costs the origin nothing.
            max_names: (robots.user_agent == UserAgent::Crawler).then_some(robots.max_names),
            robots: robots_options(robots, &policy),
            policy,
            pace: pace_options(effective.pace, longest_wait),
            archive: archive_options(&effective.audit, &effective.fleet, base),
            fleet: fleet_options(effective.fleet, base),
            upstream: upstream_options(&upstream, tls, base),
            egress: egress_options(effective.egress, upstream, own_name),
            operator: effective.audit.operator.clone(),
            audit: audit_options(effective.audit, data),
            admin: admin_options(effective.admin, base, data),
            log: log_options(&effective.log),
            text: Arc::default(),
            values: Values::default(),
            keys: Arc::default(),
        }
    }
}

/// Returns the wait of the most patient crawler. A robots.txt is fetched for every
/// request that waits for it, so its own turn may take that long.
fn longest_wait(crawlers: &[Identity], max_wait: Duration) -> Duration {
    let own = crawlers.iter().filter_map(|entry| entry.max_wait);
    own.fold(max_wait, Duration::max)
}

fn turns_options(robots: &Robots, pace: &Pace, least_wait: Duration) -> turns::Options {
    turns::Options {
        serve_cached: robots.serve_cached,
        max_wait: pace.max_wait,
        retries: pace.retry,
        least_wait,
    }
}

fn admin_options(admin: Admin, base: &Path, data: &Path) -> politesse_admin::Options {
    politesse_admin::Options {
        listen: admin.listen,
        token_file: data.join(admin.token_file),
        base_path: admin.base_path.into(),
        arrival: ArrivalRules {
            hosts: admin.hosts,
            trusted_proxies: admin.trusted_proxies,
        },
        tls: listener_tls::Options {
            keys: listener_tls::TlsKeys::ADMIN,
            cert: admin.tls_cert.map(|path| base.join(path)),
            key: admin.tls_key.map(|path| base.join(path)),
        },
        sessions: SessionOptions {
            most: admin.sessions,
            lifetime: admin.session_lifetime,
        },
    }
}

fn tls_options(roots: Vec<Roots>, upstream: &mut Upstream, base: &Path) -> TlsOptions {
    let sources = roots.into_iter();
    TlsOptions {
        roots: sources.map(|source| absolute_roots(source, base)).collect(),
        exceptions: std::mem::take(&mut upstream.tls),
        folder: base.to_owned(),
        http2: upstream.http2,
    }
}

fn absolute_roots(source: Roots, base: &Path) -> Roots {
    match source {
        // A path in the file is relative to the file, not to the folder in which the
        // program was started.
        Roots::File(path) => Roots::File(base.join(path)),
        Roots::System | Roots::Webpki => source,
    }
}

fn fields_options(proxy: &Proxy, accept_encoding: AcceptEncoding) -> fields::Options {
    fields::Options {
        name: proxy.name.as_str().into(),
        via: proxy.via.then(|| fields::via_entry(&proxy.name)).flatten(),
        accept_encoding,
    }
}

fn audit_options(audit: Audit, data: &Path) -> politesse_record::Options {
    politesse_record::Options {
        path: data.join(audit.store),
        queue: audit.queue,
        wal_max: u64::try_from(audit.wal_max).unwrap_or(u64::MAX),
        retention: audit.retention,
        waits_for_archive: audit.archive.is_some(),
        privacy: PrivacyOptions {
            query_strings: audit.query_strings,
            client_addresses: audit.client_addresses,
        },
        seal: politesse_record::SealOptions {
            key: audit.seal_key.map(|path| data.join(path)),
            entries: audit.seal_entries,
            interval: audit.seal_interval,
            to: audit
                .seal_to
                .into_iter()
                .map(|target| match target {
                    SealTarget::File(path) => SealTarget::File(data.join(path)),
                    SealTarget::Command(_) | SealTarget::Url(_) => target,
                })
                .collect(),
        },
        new_record: false,
        accept_lost_heads: false,
    }
}

fn archive_options(audit: &Audit, fleet: &Fleet, base: &Path) -> politesse_archive::Options {
    let below_base = |path: &Option<PathBuf>| path.as_ref().map(|path| base.join(path));
    politesse_archive::Options {
        address: audit.archive.clone(),
        auth: below_base(&audit.archive_auth),
        ca: below_base(&audit.archive_ca),
        timeout: audit.archive_timeout,
        node: fleet.node.clone(),
    }
}

fn log_options(log: &Log) -> LogOptions {
    LogOptions {
        format: log.format,
        level: log.level,
        exchanges: log.exchanges,
        burst: log.burst,
    }
}

fn upload_limits(proxy: &Proxy) -> UploadLimits {
    UploadLimits {
        idle_timeout: proxy.idle_timeout,
        least: least_progress(proxy),
    }
}

fn least_progress(proxy: &Proxy) -> MinimumProgress {
    MinimumProgress {
        bytes: proxy.min_progress,
        window: proxy.progress_window,
    }
}

fn listener_options(proxy: Proxy, base: &Path) -> server::Options {
    let entries = proxy.clients.iter();
    let networks = entries.clone().flat_map(|entry| entry.networks.clone());
    let limited = entries.flat_map(|entry| {
        let with_limits = |limits: &ClientLimits| {
            let networks = entry.networks.iter();
            let limited = networks.map(|network| NetworkLimits {
                network: *network,
                limits: limits.clone(),
            });
            limited.collect::<Vec<_>>()
        };
        entry.limits.as_ref().map(with_limits).unwrap_or_default()
    });
    server::Options {
        clients: networks.collect(),
        least_progress: least_progress(&proxy),
        proxy_protocol_from: proxy.proxy_protocol_from,
        client_limits: directory::Options {
            each: proxy.per_client,
            networks: limited.collect(),
        },
        listen: proxy.listen,
        tls: listener_tls::Options {
            keys: listener_tls::TlsKeys::PROXY,
            cert: proxy.tls_cert.map(|path| base.join(path)),
            key: proxy.tls_key.map(|path| base.join(path)),
        },
        backlog: proxy.backlog,
        limits: EntryLimits {
            connections: proxy.max_connections,
            handshakes: proxy.max_handshakes,
            requests: proxy.max_requests,
        },
        max_commands: proxy.max_commands,
        header_timeout: proxy.header_timeout,
        idle_timeout: proxy.idle_timeout,
        drain_time: proxy.drain_time,
        shutdown_timeout: proxy.shutdown_timeout,
    }
}

fn annotate_options(directives: Directives) -> annotate::Options {
    annotate::Options {
        header: directives.header,
        limits: DirectiveLimits {
            field_limit: directives.field_limit,
            scan_limit: directives.scan_limit,
            both_fields: directives.both_fields,
            meta_scope: directives.meta_scope,
        },
        hold_bytes: directives.hold_bytes,
        hold_time: directives.hold_time,
        hold_total: directives.hold_total,
        known: directives.known,
        preferences: if directives.preferences {
            PreferenceListing::Yes
        } else {
            PreferenceListing::No
        },
        general: if directives.emit_general {
            GeneralKey::Beside
        } else {
            GeneralKey::Needed
        },
    }
}

fn preference_defaults(preferences: &Preferences) -> PreferenceDefaults {
    PreferenceDefaults {
        enforce: preferences.enforce,
        rule: match preferences.any {
            true => DenialRule::Any,
            false => DenialRule::Every,
        },
        unknown: preferences.unknown,
    }
}

fn robots_options(robots: Robots, policy: &Policy) -> robots_cache::Options {
    robots_cache::Options {
        user_agent: robots.user_agent,
        max_bytes: robots.max_bytes,
        ttl: robots.ttl,
        // The cap wins: an operator who wants copies of a minute only has to set one
        // key.
        ttl_min: robots.ttl_min.min(robots.ttl),
        unavailable_ttl: robots.unavailable_ttl,
        stale: robots.stale,
        retry_first: robots.retry.first,
        retry_longest: robots.retry.longest,
        redirects: robots.redirects,
        timeout: robots.timeout,
        max_fetches: robots.max_fetches,
        max_waiting: robots.max_waiting,
        max_snapshots: robots.max_snapshots,
        max_snapshot_bytes: robots.max_snapshot_bytes,
        policy: policy.clone(),
    }
}

fn pace_options(pace: Pace, max_wait: Duration) -> pace::Options {
    pace::Options {
        max_wait,
        queue: pace.queue,
        back_off: pace.backoff,
        crawler: pace.crawler,
        total: pace.total,
        domain: pace.domain,
        address: pace.address,
        max_turn: pace.max_turn,
        max_stall: pace.max_stall,
        max_hosts: pace.max_hosts,
        requisites: pace.requisites,
        policy: Arc::new(PacePolicy::new(pace.profile, &pace.origin, pace.rule)),
    }
}

/// Makes every request wait long enough for its host's lease, which it would otherwise
/// never get. Returns the minimum wait.
fn wait_for_leases(effective: &mut Effective) -> Duration {
    if effective.fleet.store.is_empty() {
        return Duration::ZERO;
    }
    let least = effective.fleet.lease.saturating_add(LEASE_PATIENCE);
    let own = effective.root.crawler.iter_mut();
    let waits = own.filter_map(|entry| entry.max_wait.as_mut());
    for max_wait in waits.chain([&mut effective.pace.max_wait]) {
        *max_wait = least.max(*max_wait);
    }
    least
}

fn fleet_options(fleet: Fleet, base: &Path) -> politesse_fleet::options::Options {
    politesse_fleet::options::Options {
        store: fleet.store,
        store_auth: fleet.store_auth.map(|path| base.join(path)),
        store_ca: fleet.store_ca.map(|path| base.join(path)),
        key: fleet.key.map(|path| base.join(path)),
        name: fleet.name,
        node: fleet.node,
        forget: fleet.forget,
        rules: FleetRules {
            lease: fleet.lease,
            timeout: fleet.timeout.min(FleetRules::answer_max(fleet.lease)),
            on_loss: fleet.on_loss,
        },
    }
}

/// Reports whether the same connection could be meant for both addresses. IPv4 and IPv6
/// are separate: whether `[::]` accepts IPv4 depends on a system setting.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    let is_same = one.ip() == other.ip() || is_any && one.is_ipv4() == other.is_ipv4();
    one.port() != 0 && one.port() == other.port() && is_same
}

fn egress_options(egress: Egress, upstream: Upstream, own_name: Option<Host>) -> egress::Options {
    egress::Options {
        deny: egress.deny,
        allow: egress.allow,
        ports: egress.ports,
        resolve: upstream.resolve,
        parent: upstream.parent,
        dns_ttl: upstream.dns_ttl,
        dns_timeout: upstream.dns_timeout,
        dns_lookups: upstream.dns_lookups,
        dns_zone_lookups: upstream.dns_zone_lookups,
        dns_cache: upstream.dns_cache,
        own_name,
    }
}

fn upstream_options(upstream: &Upstream, tls: TlsOptions, base: &Path) -> upstream::Options {
    upstream::Options {
        connect_timeout: upstream.connect_timeout,
        first_byte_timeout: upstream.first_byte_timeout,
        idle_timeout: upstream.idle_timeout,
        tls,
        pool_idle_timeout: upstream.pool_idle_timeout,
        pool_idle_per_origin: upstream.pool_idle_per_origin,
        pool_idle_total: upstream.pool_idle_total,
        parent_auth: upstream.parent_auth.as_ref().map(|path| base.join(path)),
    }
}
