//! Parts of a proxy, built from its settings.
//!
//! Used at the start and by each reload, which keeps the [`SharedParts`]. Does not know
//! when a part is built, or what listens.

use std::sync::Arc;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use politesse_robots::Dialect;
use politesse_robots::origin::{Host, Scheme};

use crate::config::Settings;
use politesse_base::clients::directory::ClientDirectory;
use politesse_base::clients::shares::Shares;
use politesse_base::metrics::Metrics;
use politesse_base::tasks::Tasks;
use politesse_base::tls::Roots;
use politesse_decision::decide::Policy;
use politesse_decision::digest::Digest;
use politesse_decision::snapshot::{CacheKey, StoredSnapshot};
#[cfg(any(feature = "postgres", feature = "redis"))]
use politesse_fleet::options::is_name;
use politesse_net::client::Upstream;
use politesse_net::egress::{Egress, LatestEgress, OwnAddresses};
use politesse_pace::Scheduler;
use politesse_pace::back_off::BackOffListener;
use politesse_proxy::annotate::Annotator;
use politesse_proxy::ca::Ca;
use politesse_proxy::connect::{HttpsMode, Interceptor};
use politesse_proxy::crawler_names::CrawlerNames;
use politesse_proxy::crawler_table::CrawlerTable;
use politesse_proxy::listener_tls::{ListenerTls, ListenerTlsError};
use politesse_proxy::names::NameLimiter;
use politesse_proxy::places::EntryShares;
use politesse_record::AuditLog;
use politesse_robots_cache::fetch::HttpFetcher;
use politesse_robots_cache::shared_answers::{
    ClaimAnswer, ClaimCall, SharedAnswers, SharedStore, SharedStoreError, SharedStoreTimes,
};
use politesse_robots_cache::store::{SnapshotStore, StoreFuture, StoreUnread};
use politesse_robots_cache::{CacheSources, RobotsCache, RobotsChangeListener};

/// Parts that live as long as the process, unaffected by reloads.
#[derive(Debug)]
pub(super) struct SharedParts {
    pub(super) audit: Arc<AuditLog>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) scheduler: Arc<Scheduler>,
    /// Directory of clients, which identifies the client that each share belongs to.
    pub(super) clients: Arc<ClientDirectory>,
    /// Each client's share of name lookups and robots.txt fetches.
    pub(super) origin_shares: OriginShares,
    /// Slots for connections, handshakes and requests.
    pub(super) entry: Arc<EntryShares>,
    /// Robots.txt files shared by the nodes of a fleet; absent without a shared store.
    pub(super) fleet_robots: Option<Arc<dyn SharedStore>>,
    /// Listener for robots.txt changes.
    pub(super) robots_changes: RobotsChangeListener,
    /// Addresses of our listeners, which must not be reached through the proxy.
    pub(super) own: OwnAddresses,
    /// Policy in force. All configurations use one cell, so that requests that wait
    /// under an earlier configuration are decided by the current policy.
    pub(super) latest_policy: Arc<ArcSwap<Policy>>,
    /// Egress rules in force, in one cell for the same reason.
    pub(super) latest_egress: Arc<LatestEgress>,
}

/// Each client's share of name lookups and robots.txt fetches. The shares outlive a
/// reload: those that parts of the previous configuration still hold remain counted.
#[derive(Debug, Clone)]
pub(super) struct OriginShares {
    lookups: Arc<Shares>,
    robots_fetches: Arc<Shares>,
}

impl OriginShares {
    pub(super) fn new(settings: &Settings, metrics: &Arc<Metrics>) -> Self {
        Self {
            lookups: Egress::lookups(&settings.egress, Arc::clone(metrics)),
            robots_fetches: settings.robots.fetch_shares(Arc::clone(metrics)),
        }
    }

    /// Puts the limits of `settings` in force.
    pub(super) fn set_limits(&self, settings: &Settings) {
        self.lookups.set_limit(settings.egress.dns_lookups.get());
        let fetches = settings.robots.max_fetches.get();
        self.robots_fetches.set_limit(fetches);
    }
}

/// Inputs for building [`OriginClients`].
#[derive(Clone, Copy)]
struct ClientParts<'a> {
    metrics: &'a Arc<Metrics>,
    scheduler: &'a Arc<Scheduler>,
    shares: &'a OriginShares,
    /// Record that stores robots.txt files; absent for a command.
    audit: Option<&'a Arc<AuditLog>>,
    /// Robots.txt files shared by the nodes of a fleet.
    fleet_robots: Option<&'a Arc<dyn SharedStore>>,
    /// Listener for robots.txt changes; absent for a command.
    robots_changes: Option<&'a RobotsChangeListener>,
    latest_policy: &'a Arc<ArcSwap<Policy>>,
}

/// Clients of origins: for robots.txt and for pages.
#[derive(Debug)]
pub struct OriginClients {
    /// Rules for the addresses that may be dialled.
    pub egress: Arc<Egress>,
    /// Connection pool for origins.
    pub upstream: Arc<Upstream>,
    /// Cache of robots.txt files.
    pub robots: Arc<RobotsCache>,
}

impl OriginClients {
    /// Builds clients for a single command, with their own pace and metrics and without
    /// an audit record.
    ///
    /// # Errors
    ///
    /// Roots cannot be read.
    pub fn detached(settings: &Settings) -> anyhow::Result<Self> {
        let metrics = Arc::new(Metrics::default());
        let options = settings.pace.clone();
        let scheduler = Scheduler::new(options, Arc::clone(&metrics), Tasks::default());
        let parts = ClientParts {
            metrics: &metrics,
            scheduler: &Arc::new(scheduler),
            shares: &OriginShares::new(settings, &metrics),
            audit: None,
            fleet_robots: None,
            robots_changes: None,
            latest_policy: &Arc::new(ArcSwap::from_pointee(settings.policy.clone())),
        };
        Self::new(settings, parts)
    }

    /// Builds clients for a proxy. They never dial its own listeners, and the audit
    /// record stores their robots.txt files for the next process.
    ///
    /// # Errors
    ///
    /// Roots cannot be read, or `egress` denies the parent.
    pub(super) fn shared(settings: &Settings, shared: &SharedParts) -> anyhow::Result<Self> {
        let parts = ClientParts {
            metrics: &shared.metrics,
            scheduler: &shared.scheduler,
            shares: &shared.origin_shares,
            audit: Some(&shared.audit),
            fleet_robots: shared.fleet_robots.as_ref(),
            robots_changes: Some(&shared.robots_changes),
            latest_policy: &shared.latest_policy,
        };
        let clients = Self::new(settings, parts)?;
        let set = clients.egress.listeners(shared.own.clone());
        set.context("upstream.parent cannot be dialled")?;
        clients.egress.yield_to(&shared.latest_egress);
        Ok(clients)
    }

    fn new(settings: &Settings, parts: ClientParts<'_>) -> anyhow::Result<Self> {
        let ClientParts {
            metrics,
            scheduler,
            shares,
            audit,
            fleet_robots,
            robots_changes,
            latest_policy,
        } = parts;
        // Connections to origins end with their idle timeout or with the process. No
        // crawler waits for them, so a stop need not either.
        let tasks = Tasks::default();
        let egress = Arc::new(Egress::new(
            settings.egress.clone(),
            Arc::clone(&shares.lookups),
            Arc::clone(metrics),
            tasks.clone(),
        ));
        let upstream = Arc::new(Upstream::new(
            &settings.upstream,
            Arc::clone(&egress),
            Arc::clone(metrics),
            tasks.clone(),
        )?);
        let record = audit.map(|audit| -> Arc<dyn SnapshotStore> {
            let (store, upstream) = (RecordStore(Arc::clone(audit)), Arc::clone(&upstream));
            Arc::new(PlacedStore { store, upstream })
        });
        let shared = fleet_robots.map(|store| {
            let (store, upstream) = (Arc::clone(store), Arc::clone(&upstream));
            SharedAnswers::new(Arc::new(PlacedStore { store, upstream }))
        });
        let fetcher = HttpFetcher {
            upstream: Arc::clone(&upstream),
            scheduler: Arc::clone(scheduler),
            max_bytes: settings.robots.max_bytes,
        };
        let robots = RobotsCache::new(
            settings.robots.clone(),
            CacheSources {
                fetcher,
                store: record,
                shared,
                slots: Arc::clone(&shares.robots_fetches),
                changes: robots_changes.cloned(),
                latest_policy: Arc::clone(latest_policy),
            },
            Arc::clone(metrics),
            tasks.0,
        );
        Ok(Self {
            egress,
            upstream,
            robots: Arc::new(robots),
        })
    }
}

/// Store of the robots.txt cache: the audit record, which stores each snapshot beside
/// the decisions based on it.
#[derive(Debug)]
struct RecordStore(Arc<AuditLog>);

impl SnapshotStore for RecordStore {
    fn load<'a>(
        &'a self,
        key: &'a CacheKey,
        dialect: Dialect,
    ) -> StoreFuture<'a, Result<Option<StoredSnapshot>, StoreUnread>> {
        Box::pin(async move {
            let saved = self.0.saved_snapshot(key, dialect).await;
            saved.map_err(|_logged| StoreUnread)
        })
    }

    fn keys<'a>(&'a self, host: &'a Host) -> StoreFuture<'a, Result<Vec<CacheKey>, StoreUnread>> {
        Box::pin(async move {
            let keys = self.0.saved_snapshot_keys(host).await;
            keys.map_err(|error| {
                tracing::warn!(%error, %host, "the stored robots.txt files of a host cannot be listed");
                StoreUnread
            })
        })
    }

    fn save(&self, snapshot: StoredSnapshot) -> StoreFuture<'_, ()> {
        Box::pin(self.0.save_snapshot(snapshot))
    }
}

/// Store that returns a snapshot only if its origin is still reached in the same way:
/// with another `upstream.resolve`, `upstream.parent` or `upstream.tls`, the origin may
/// be another site.
#[derive(Debug)]
struct PlacedStore<S> {
    store: S,
    upstream: Arc<Upstream>,
}

impl<S> PlacedStore<S> {
    fn is_in_place(&self, saved: &StoredSnapshot) -> bool {
        saved.led_to == self.upstream.led_to(&saved.snapshot.key.origin)
    }

    fn with_place(&self, snapshot: StoredSnapshot) -> StoredSnapshot {
        let led_to = self.upstream.led_to(&snapshot.snapshot.key.origin);
        StoredSnapshot { led_to, ..snapshot }
    }
}

impl SnapshotStore for PlacedStore<RecordStore> {
    fn load<'a>(
        &'a self,
        key: &'a CacheKey,
        dialect: Dialect,
    ) -> StoreFuture<'a, Result<Option<StoredSnapshot>, StoreUnread>> {
        Box::pin(async move {
            let saved = self.store.load(key, dialect).await?;
            Ok(saved.filter(|saved| self.is_in_place(saved)))
        })
    }

    fn keys<'a>(&'a self, host: &'a Host) -> StoreFuture<'a, Result<Vec<CacheKey>, StoreUnread>> {
        self.store.keys(host)
    }

    fn save(&self, snapshot: StoredSnapshot) -> StoreFuture<'_, ()> {
        self.store.save(self.with_place(snapshot))
    }
}

impl SharedStore for PlacedStore<Arc<dyn SharedStore>> {
    fn times(&self) -> SharedStoreTimes {
        self.store.times()
    }

    fn load<'a>(
        &'a self,
        key: &'a CacheKey,
        dialect: Dialect,
    ) -> StoreFuture<'a, Result<Option<StoredSnapshot>, SharedStoreError>> {
        Box::pin(async move {
            let saved = self.store.load(key, dialect).await?;
            Ok(saved.filter(|saved| self.is_in_place(saved)))
        })
    }

    fn save(&self, answer: StoredSnapshot) -> StoreFuture<'_, Result<(), SharedStoreError>> {
        self.store.save(self.with_place(answer))
    }

    fn claim<'a>(
        &'a self,
        call: ClaimCall<'a>,
    ) -> StoreFuture<'a, Result<ClaimAnswer, SharedStoreError>> {
        self.store.claim(call)
    }

    fn release<'a>(&'a self, call: ClaimCall<'a>) -> StoreFuture<'a, Result<(), SharedStoreError>> {
        self.store.release(call)
    }
}

/// Builds the scheduler of all requests. It restores the back-offs that were in force
/// when the previous process stopped, and records new ones.
pub(super) fn scheduler(
    settings: &Settings,
    audit: &Arc<AuditLog>,
    metrics: &Arc<Metrics>,
) -> Scheduler {
    let options = settings.pace.clone();
    let scheduler = Scheduler::new(options, Arc::clone(metrics), Tasks::default());
    // Before the listener is set, because the record already has these back-offs.
    scheduler.restore_back_offs(audit.saved_back_offs());
    let record = Arc::clone(audit);
    let listener = BackOffListener(Box::new(move |event| record.record_event(event)));
    scheduler.set_back_off_listener(listener);
    scheduler
}

/// Builds the table of crawlers. `names` are those found in User-Agents so far.
pub(super) fn crawlers(settings: &Settings, names: Arc<CrawlerNames>) -> CrawlerTable {
    let options = &settings.exchange.request;
    CrawlerTable::new(options.auth, &options.identities, names)
}

/// Builds the limiter of `robots.max_names`; absent if names are unlimited.
pub(super) fn names(settings: &Settings, metrics: &Metrics) -> Option<Arc<NameLimiter>> {
    let limiter = |most| NameLimiter::new(most, metrics.robots_max_names.clone());
    settings.max_names.map(|most| Arc::new(limiter(most)))
}

/// Builds the annotator, which adds the annotation field to responses.
pub(super) fn annotator(settings: &Settings, metrics: &Arc<Metrics>) -> Arc<Annotator> {
    let options = settings.annotate.clone();
    Arc::new(Annotator::new(options, Arc::clone(metrics)))
}

/// Builds the CONNECT handler, and creates its certificate authority if missing;
/// absent if `https.mode` is "refuse".
///
/// # Errors
///
/// The authority can be neither read nor created.
pub(super) fn interceptor(settings: &Settings) -> anyhow::Result<Option<Arc<Interceptor>>> {
    if settings.connect.mode == HttpsMode::Refuse {
        return Ok(None);
    }
    let ca = Arc::new(Ca::open(&settings.ca)?);
    let interceptor = Interceptor::new(ca, settings.connect.handshake_timeout)?;
    Ok(Some(Arc::new(interceptor)))
}

/// Reads the certificate of the proxy listeners; absent if none of them uses TLS.
///
/// # Errors
///
/// [`ListenerTlsError`].
pub(super) fn listener_tls(
    settings: &Settings,
) -> Result<Option<Arc<ListenerTls>>, ListenerTlsError> {
    let mut schemes = settings.listener.listen.iter().map(|listen| listen.scheme);
    if !schemes.any(|scheme| scheme == Scheme::Https) {
        return Ok(None);
    }
    ListenerTls::load(&settings.listener.tls).map(|tls| Some(Arc::new(tls)))
}

/// Reads the certificate of the admin listener; absent if it has none.
///
/// # Errors
///
/// [`ListenerTlsError`].
pub(super) fn admin_tls(settings: &Settings) -> Result<Option<Arc<ListenerTls>>, ListenerTlsError> {
    let tls = &settings.admin.tls;
    if tls.cert.is_none() && tls.key.is_none() {
        return Ok(None);
    }
    ListenerTls::load(tls).map(|tls| Some(Arc::new(tls)))
}

/// Digests of the files that [`OriginClients`] are built from: the roots, and the
/// parent's credentials. A reload compares them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SourceFiles(Vec<Option<Digest>>);

impl SourceFiles {
    /// Reads the files of `settings`. An unreadable file counts as absent here; the
    /// part that needs it reports the error.
    pub(super) fn read(settings: &Settings) -> Self {
        let upstream = &settings.upstream;
        let roots = upstream.tls.roots.iter();
        let usual = roots.filter_map(|source| match source {
            Roots::File(path) => Some(path.clone()),
            Roots::System | Roots::Webpki => None,
        });
        let files = usual.chain(upstream.tls.exception_roots());
        let digest = |path| Some(Digest::of(&std::fs::read(path).ok()?));
        Self(
            files
                .chain(upstream.parent_auth.clone())
                .map(digest)
                .collect(),
        )
    }
}

/// Configured node name that means the name of the machine (`fleet.node`).
#[cfg(any(feature = "postgres", feature = "redis"))]
const AUTO: &str = "auto";

/// Returns the name of this node: `configured`, or the machine's name if that is
/// "auto".
///
/// # Errors
///
/// The machine's name is no valid node name.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) fn node_name(configured: &str) -> anyhow::Result<String> {
    if configured != AUTO {
        return Ok(configured.to_owned());
    }
    let facts = rustix::system::uname();
    let name = facts.nodename().to_str().ok().filter(|name| is_name(name));
    name.map(str::to_owned)
        .context("the name of this machine cannot be that of a node: set fleet.node")
}
