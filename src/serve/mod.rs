//! Life of a proxy: start, reload, stop.
//!
//! [`start`] builds the parts and begins to listen, [`RunningProxy::reload`] puts
//! another configuration in force, and [`RunningProxy::stop`] shuts the parts down in
//! reverse order. Does not know signals or the command line.

#[cfg(feature = "redis")]
mod agreement;
#[cfg(feature = "postgres")]
pub(crate) mod archive;
pub mod capacity;
pub mod commands;
pub mod control;
pub mod files_check;
#[cfg(feature = "redis")]
mod fleet;
mod head_export;
mod in_force;
mod lifecycle;
pub mod listening;
mod parts;
mod reload;
mod robots_changes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[cfg(feature = "postgres")]
use self::archive::ArchiveShipping;
use self::commands::{CommandError, CommandListener, Commands};
use self::control::instance::{Instance, SOCKET};
use self::control::server::ControlServer;
#[cfg(feature = "redis")]
use self::fleet::{FleetMember, FleetStores};
use self::lifecycle::Lifecycle;
use self::listening::bind;
pub use self::parts::OriginClients;
use self::parts::{OriginShares, SharedParts, SourceFiles};
use self::reload::{FileState, Reload};
use crate::config::Settings;
use politesse_admin::{
    Access, Admin, AdminToken, ArchiveAsker, BackOffRelease, ClientPageSource, ConfigurationCell,
    FleetSource, GaugeRefresh, PaceSource, PlanSource, RobotsRefetch,
};
use politesse_base::clients::directory::ClientDirectory;
use politesse_base::clock;
use politesse_base::metrics::{Metrics, ResultLabel, VersionLabel};
use politesse_base::tasks::Tasks;
use politesse_decision::decide::{EnforcementMode, Policy};
use politesse_decision::label::CrawlOptions;
use politesse_net::egress::OwnAddresses;
use politesse_proxy::client_pages::{ClientPages, as_reached};
use politesse_proxy::connect::Interceptor;
use politesse_proxy::decider::Decider;
use politesse_proxy::exchange::Proxy;
use politesse_proxy::listener::{self, ProxyListener};
use politesse_proxy::listener_tls::ListenerTls;
use politesse_proxy::overload::ANSWERED_MAX;
use politesse_proxy::places::EntryShares;
use politesse_proxy::plan::plan;
use politesse_proxy::purpose_policies::PurposePolicies;
use politesse_proxy::server::{ActiveConfig, ListenAddress, ListenerGroup, ProxyServer};
use politesse_proxy::turns::TurnDecider;
use politesse_record::AuditLog;

/// Longest time that a stop waits for requests to the admin listener, and then again
/// for commands that read their counts. Neither may delay the closing of the record.
const ADMIN_PATIENCE: Duration = Duration::from_secs(1);

/// Time that a stop reserves for answering requests that got no turn.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// A running proxy.
#[derive(Debug)]
pub struct RunningProxy {
    /// Addresses for crawlers, with the ports that were bound.
    pub listen: Vec<ListenAddress>,
    /// Address of the admin listener.
    pub admin: SocketAddr,
    settings: Settings,
    files: SourceFiles,
    shared: SharedParts,
    server: Arc<ProxyServer>,
    lifecycle: Lifecycle,
    commands: Arc<Commands>,
    control: Option<ControlServer>,
    access: Arc<Access>,
    admin_tls: Arc<ArcSwapOption<ListenerTls>>,
    configuration: ConfigurationCell,
    audit_tracker: TaskTracker,
    admin_tracker: TaskTracker,
    admin_end: CancellationToken,
    #[cfg(feature = "redis")]
    fleet: Option<FleetMember>,
    #[cfg(feature = "postgres")]
    archive: Option<ArchiveShipping>,
}

/// Builds every part and starts to listen.
///
/// # Errors
///
/// An error if the CA, the roots or the admin token cannot be read, the record
/// cannot be written, or a port is taken.
pub async fn start(settings: &Settings) -> anyhow::Result<RunningProxy> {
    check(settings)?;
    // Ports first: two proxies compete for them, and so far nothing has been written.
    let sockets = bind(settings)?;
    let listen = addresses(&sockets.crawlers)?;
    let admin = addresses(&sockets.operators)?;
    let interceptor = parts::interceptor(settings)?;
    let tls = parts::listener_tls(settings)?;
    let admin_tls = parts::admin_tls(settings)?;
    let metrics = process_metrics();
    let audit_tracker = TaskTracker::new();
    let audit = open_record(settings, &metrics, &audit_tracker)?;
    // After the record, whose lock keeps other processes from making a token, too.
    let token = AdminToken::open(&settings.admin.token_file)?;
    let files = SourceFiles::read(settings);
    #[cfg(feature = "redis")]
    let stores = FleetStores::open(settings, &metrics)?;
    let shared = SharedParts {
        #[cfg(feature = "redis")]
        fleet_robots: stores.as_ref().and_then(FleetStores::robots),
        #[cfg(not(feature = "redis"))]
        fleet_robots: None,
        clients: client_directory(settings),
        entry: Arc::new(EntryShares::new(&settings.listener.limits, &metrics)),
        scheduler: Arc::new(parts::scheduler(settings, &audit, &metrics)),
        origin_shares: OriginShares::new(settings, &metrics),
        own: OwnAddresses::from([&listen[..], &admin].concat()),
        latest_policy: Arc::new(ArcSwap::from_pointee(settings.policy.clone())),
        latest_egress: Arc::default(),
        robots_changes: robots_changes::listener(&audit, &metrics),
        audit,
        metrics,
    };
    let config = ActiveConfig {
        proxy: proxy(settings, &shared)?,
        interceptor,
        tls,
        options: settings.listener.clone(),
    };
    announce(settings, &config);
    let server = Arc::new(proxy_server(config, &shared));
    let running = RunningProxy {
        listen: with_schemes(settings, &listen),
        admin: admin.first().copied().context("no admin listener")?,
        settings: settings.clone(),
        files,
        lifecycle: Lifecycle::begin(&shared.audit, settings),
        commands: Arc::new(Commands::new(&server, shared.own.clone())),
        control: None,
        admin_tls: Arc::new(ArcSwapOption::new(admin_tls)),
        access: access(settings, &token, &shared),
        configuration: in_force::cell(settings),
        #[cfg(feature = "redis")]
        fleet: stores
            .map(|stores| stores.join(settings, &shared, &server))
            .transpose()?,
        #[cfg(feature = "postgres")]
        archive: ArchiveShipping::start(settings, &shared)?,
        server,
        audit_tracker,
        admin_tracker: TaskTracker::new(),
        admin_end: CancellationToken::new(),
        shared,
    };
    // This one first, so that monitoring sees the proxy from its first request.
    running.listen_for_operators(sockets.operators);
    running.listen_for_crawlers(sockets.crawlers);
    Ok(running)
}

/// Warns about settings that are valid but risky, and rejects settings that this build
/// does not support.
fn check(settings: &Settings) -> anyhow::Result<()> {
    if settings.egress.parent.is_some() {
        tracing::warn!(
            "upstream.parent resolves the names of origins: egress.deny is checked against literal \
             addresses and names, not against the addresses that the parent finds"
        );
    }
    anyhow::ensure!(
        cfg!(feature = "redis") || settings.fleet.store.is_empty(),
        "fleet.store: this build does not support fleets: it lacks the feature redis"
    );
    anyhow::ensure!(
        cfg!(feature = "postgres") || settings.archive.address.is_none(),
        "audit.archive: this build does not support archives: it lacks the feature postgres"
    );
    Ok(())
}

/// Makes the metrics of this process.
fn process_metrics() -> Arc<Metrics> {
    let metrics = Metrics::default();
    let version = env!("CARGO_PKG_VERSION");
    let build = metrics
        .build_info
        .get_or_create_owned(&VersionLabel { version });
    build.set(1);
    let now = clock::now().as_second();
    metrics.start_timestamp_seconds.set(now);
    Arc::new(metrics)
}

/// Opens the record and starts the export of its heads.
fn open_record(
    settings: &Settings,
    metrics: &Arc<Metrics>,
    tracker: &TaskTracker,
) -> anyhow::Result<Arc<AuditLog>> {
    let audit = AuditLog::open(&settings.audit, Arc::clone(metrics), tracker)?;
    head_export::start(settings, &audit.heads(), metrics, tracker)?;
    Ok(Arc::new(audit))
}

/// Makes the access check for the pages that name hosts.
fn access(settings: &Settings, token: &AdminToken, shared: &SharedParts) -> Arc<Access> {
    let metrics = Arc::clone(&shared.metrics);
    Arc::new(Access::new(token, settings.admin.sessions, metrics))
}

/// Makes the directory of clients, with their configured limits.
fn client_directory(settings: &Settings) -> Arc<ClientDirectory> {
    let clients = ClientDirectory::default();
    clients.set_options(settings.listener.client_limits.clone());
    Arc::new(clients)
}

/// Builds the parts of an exchange.
fn proxy(settings: &Settings, shared: &SharedParts) -> anyhow::Result<Proxy> {
    let OriginClients {
        egress,
        upstream,
        robots,
    } = OriginClients::shared(settings, shared)?;
    Ok(Proxy {
        options: settings.exchange.clone(),
        crawlers: parts::crawlers(settings, Arc::default()),
        turns: TurnDecider {
            options: settings.exchange.turns.clone(),
            decider: Decider {
                egress,
                names: parts::names(settings, &shared.metrics),
                robots,
            },
            latest_policy: Arc::clone(&shared.latest_policy),
            purpose_policies: PurposePolicies::default(),
            policy: shared.latest_policy.load_full(),
            scheduler: Arc::clone(&shared.scheduler),
        },
        upstream,
        entry: Arc::clone(&shared.entry),
        audit: Arc::clone(&shared.audit),
        annotator: parts::annotator(settings, &shared.metrics),
        metrics: Arc::clone(&shared.metrics),
    })
}

/// State shared by all connections from crawlers.
fn proxy_server(config: ActiveConfig, shared: &SharedParts) -> ProxyServer {
    ProxyServer {
        in_force: ArcSwap::from_pointee(config),
        clients: Arc::clone(&shared.clients),
        metrics: Arc::clone(&shared.metrics),
        entry: Arc::clone(&shared.entry),
        turned_away: Arc::new(Semaphore::new(ANSWERED_MAX)),
        awaited_headers: Arc::default(),
        tasks: Tasks::default(),
        is_draining: Arc::default(),
        stop: CancellationToken::new(),
        abort: CancellationToken::new(),
    }
}

fn addresses(listeners: &[TcpListener]) -> anyhow::Result<Vec<SocketAddr>> {
    listeners
        .iter()
        .map(|listener| listener.local_addr().context("a listener has no address"))
        .collect()
}

/// Returns the bound addresses, each with its scheme from `settings`.
fn with_schemes(settings: &Settings, bound: &[SocketAddr]) -> Vec<ListenAddress> {
    let wanted = settings.listener.listen.iter().zip(bound);
    let listen = wanted.map(|(wanted, &address)| ListenAddress { address, ..*wanted });
    listen.collect()
}

/// Shows in the metrics that `settings` are in force as `config`, and warns about
/// settings that their operator may have forgotten.
fn announce(settings: &Settings, config: &ActiveConfig) {
    let metrics = &config.proxy.metrics;
    let reports = settings.policy.terms().mode == EnforcementMode::Report;
    let now = clock::now().as_second();
    // A gauge as well as a log line: report mode that was left on should still raise an
    // alarm months later.
    metrics.report_mode.set(reports.into());
    metrics.config_last_reload_successful.set(1);
    metrics.config_last_reload_timestamp_seconds.set(now);
    capacity::show(settings, metrics);
    let ca = config.interceptor.as_deref().map(Interceptor::ca);
    let tls = config.tls.as_ref();
    let ends = [
        (
            &metrics.ca_end_timestamp_seconds,
            ca.and_then(|ca| ca.ends_at()),
        ),
        (
            &metrics.tls_cert_end_timestamp_seconds,
            tls.and_then(|tls| tls.ends_at),
        ),
    ];
    for (metric, ends_at) in ends {
        metric.set(ends_at.unwrap_or_default());
    }
    if reports {
        tracing::warn!(
            "enforcement.mode is \"report\": what robots.txt disallows is forwarded and \
             recorded, not refused"
        );
    }
    warn_of_ended_overrides(&settings.policy);
    warn_of_unverified_hosts(&settings.policy);
}

/// Warns of hosts whose certificates are not verified.
fn warn_of_unverified_hosts(policy: &Policy) {
    let exceptions = policy.terms().tls.iter();
    for exception in exceptions.filter(|exception| !exception.terms.verify) {
        tracing::warn!(
            host = %exception.host,
            reason = exception.reason,
            "the certificate of a host is not verified (upstream.tls)"
        );
    }
}

/// Warns about overrides that have ended: they have no effect and can be removed.
fn warn_of_ended_overrides(policy: &Policy) {
    let now = clock::now();
    let overrides = policy.terms().overrides.iter();
    for entry in overrides.filter(|entry| entry.has_ended(now)) {
        tracing::warn!(
            origin = %entry.origin,
            action = entry.action.as_str(),
            reason = entry.reason,
            until = entry.action.until().map(tracing::field::display),
            "a robots.override has ended, and is not in force"
        );
    }
}

impl RunningProxy {
    /// Starts to listen for operators and monitoring.
    fn listen_for_operators(&self, listeners: Vec<TcpListener>) {
        for listener in listeners {
            let end = self.admin_end.clone();
            politesse_admin::listen(self.pages(), listener, &self.admin_tracker, end);
        }
    }

    fn listen_for_crawlers(&self, sockets: Vec<TcpListener>) {
        let group = Arc::new(ListenerGroup::configured(&self.server));
        for (socket, listen) in sockets.into_iter().zip(&self.listen) {
            let listener = ProxyListener::new(socket, listen.scheme);
            listener::listen(&self.server, listener, Arc::clone(&group));
        }
    }

    /// Returns the pages of the admin listener.
    fn pages(&self) -> Admin {
        let scheduler = Arc::clone(&self.shared.scheduler);
        let paces = Arc::clone(&scheduler);
        let server = Arc::clone(&self.server);
        let (counted, audit) = (Arc::clone(&scheduler), Arc::clone(&self.shared.audit));
        let metrics = Arc::clone(&self.shared.metrics);
        #[cfg(feature = "postgres")]
        let lag = self.archive.as_ref().map(ArchiveShipping::lag);
        let gauges = GaugeRefresh(Arc::new(move || {
            #[cfg(feature = "postgres")]
            if let Some(lag) = &lag {
                lag.show();
            }
            let hosts = counted.backed_off();
            metrics.pace_backed_off.set(hosts.all);
            metrics.pace_backed_off_long.set(hosts.long);
            // A failing disk raises an alarm of its own, because the record fails too.
            if let Ok(bytes) = audit.free_bytes() {
                let free = i64::try_from(bytes).unwrap_or(i64::MAX);
                metrics.audit_free_bytes.set(free);
            }
        }));
        let refetching = Arc::clone(&self.server);
        let (serving, listen) = (Arc::clone(&self.server), self.listen.clone());
        let client = ClientPageSource(Arc::new(move |local| {
            let config = serving.in_force.load_full();
            let reached = listen.iter().map(|&listen| as_reached(listen, local));
            ClientPages {
                proxies: reached.collect(),
                ca: config.interceptor.as_deref().map(Interceptor::ca),
            }
        }));
        Admin {
            gauges,
            client,
            archive: ArchiveAsker::new(&self.settings.archive),
            audit: Arc::clone(&self.shared.audit),
            metrics: Arc::clone(&self.shared.metrics),
            is_draining: Arc::clone(&self.server.is_draining),
            stop: self.server.stop.clone(),
            access: Arc::clone(&self.access),
            base_path: Arc::clone(&self.settings.admin.base_path),
            arrival: Arc::new(self.settings.admin.arrival.clone()),
            tls: Arc::clone(&self.admin_tls),
            configuration: Arc::clone(&self.configuration),
            clients: Arc::clone(&self.shared.clients),
            pace: PaceSource(Arc::new(move || paces.snapshot())),
            plan: PlanSource(Arc::new(move |request| {
                let config = server.in_force.load_full();
                Box::pin(async move { plan(&config.proxy, &request).await })
            })),
            fleet: self.fleet_source(),
            release: BackOffRelease(Arc::new(move |host, order| scheduler.release(host, order))),
            refetch: RobotsRefetch {
                begin: Arc::new(move |host| {
                    // Loaded each time: a reload may have put another cache in force.
                    let config = refetching.in_force.load_full();
                    Box::pin(async move { config.proxy.turns.decider.robots.refetch(&host).await })
                }),
                audit: Arc::clone(&self.shared.audit),
            },
        }
    }

    /// Makes the source of the fleet's state.
    #[cfg(feature = "redis")]
    fn fleet_source(&self) -> FleetSource {
        let view = self.fleet.as_ref().map(FleetMember::view);
        let scheduler = Arc::clone(&self.shared.scheduler);
        FleetSource(Arc::new(move || {
            Some(view.as_ref()?.status(scheduler.fleet_part()?))
        }))
    }

    #[cfg(not(feature = "redis"))]
    fn fleet_source(&self) -> FleetSource {
        FleetSource(Arc::new(|| None))
    }

    /// Opens the control socket, which `politesse run` uses to find this proxy.
    /// `command` is the command that started this process.
    ///
    /// # Errors
    ///
    /// An I/O error if the socket cannot be created, or its path is too long.
    pub fn open_control(&mut self, command: &str) -> std::io::Result<()> {
        let folder = self.shared.audit.folder().to_owned();
        let instance = Instance {
            pid: std::process::id(),
            command: command.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: clock::now(),
            listen: self.listen.iter().map(|listen| listen.address).collect(),
            admin: self.admin,
            configuration: self.settings.values.digest().to_string(),
            keys: self.settings.values.digests(),
            control: folder.join(SOCKET),
        };
        self.control = Some(ControlServer::open(
            folder,
            instance,
            Arc::clone(&self.commands),
        )?);
        Ok(())
    }

    /// Returns the path of a link that signs a browser in to the dashboard. It works
    /// once, within ten minutes. `None` if the system provides no random numbers.
    #[must_use]
    pub fn sign_in_path(&self) -> Option<String> {
        self.access.sign_in_path(&self.settings.admin.base_path)
    }

    /// Serves the listener of one command of `politesse run`. Its requests are counted
    /// separately, and recorded under `crawl`.
    ///
    /// # Errors
    ///
    /// [`CommandError`].
    pub fn serve_command(
        &self,
        listener: TcpListener,
        crawl: CrawlOptions,
    ) -> Result<CommandListener, CommandError> {
        self.commands.open(listener, crawl)
    }

    /// Returns the listeners of commands that are being served.
    #[must_use]
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Reads a configuration and puts all of it in force, or nothing. Returns the
    /// settings on success; the log and the metrics have the outcome.
    pub fn reload(&mut self, read: impl FnOnce() -> anyhow::Result<Settings>) -> Option<&Settings> {
        let outcome = read().and_then(|settings| self.put_in_force(settings));
        let result = match outcome {
            Ok(()) => "successful",
            Err(ref error) => {
                self.shared.metrics.config_last_reload_successful.set(0);
                self.lifecycle.not_reloaded();
                in_force::note_failure(&self.configuration, error);
                log_problems(error);
                "failed"
            }
        };
        let reloads = &self.shared.metrics.config_reloads;
        reloads.get_or_create(&ResultLabel { result }).inc();
        outcome.is_ok().then_some(&self.settings)
    }

    fn put_in_force(&mut self, settings: Settings) -> anyhow::Result<()> {
        let files = SourceFiles::read(&settings);
        let current = self.server.in_force.load_full();
        // Compared by content, not by time: certificates are often rewritten unchanged.
        let state = if files == self.files {
            FileState::Same
        } else {
            FileState::Changed
        };
        let reload = Reload::new(&self.settings.values, &settings, state);
        let admin_tls = parts::admin_tls(&settings)?;
        let config = reload.build(&current, &self.shared)?;
        // Last, because it creates a missing token file: a rejected configuration must
        // not leave one.
        let token = AdminToken::open(&settings.admin.token_file)?;
        // Nothing can fail from here on: a configuration takes effect as a whole.
        reload.log(&self.settings);
        // Recorded before anything changes, so that decisions under the new
        // configuration have higher numbers than this event.
        self.lifecycle.reloaded(&self.settings, &settings);
        self.access.set_token(&token);
        self.admin_tls.store(admin_tls);
        let turns = &config.proxy.turns;
        // Requests that already wait keep the origin clients that they started with.
        let before = &current.proxy;
        if !Arc::ptr_eq(&before.upstream, &config.proxy.upstream) {
            let egress = Arc::clone(&turns.decider.egress);
            self.shared.latest_egress.store(Some(egress));
            before.upstream.retire();
        }
        turns.latest_policy.store(Arc::clone(&turns.policy));
        self.shared.scheduler.set_options(settings.pace.clone());
        let limits = &settings.listener.client_limits;
        self.shared.clients.set_options(limits.clone());
        self.shared.origin_shares.set_limits(&settings);
        self.shared.entry.set_limits(&settings.listener.limits);
        announce(&settings, &config);
        in_force::replace(&self.configuration, &settings);
        #[cfg(feature = "redis")]
        if let Some(fleet) = &self.fleet {
            fleet.set_configuration(&settings, &config);
        }
        self.server.in_force.store(Arc::new(config));
        if let Some(control) = &self.control {
            control.change(&settings.values);
        }
        self.files = files;
        self.settings = settings;
        Ok(())
    }

    /// Gives load balancers time to notice that this proxy is about to stop: lasts
    /// `proxy.drain_time`, or until `hurry` completes. Meanwhile `/readyz` announces
    /// the stop, requests are served, and each host's lease passes to another node once
    /// no request here waits for it.
    pub async fn drain(&self, hurry: impl Future<Output = ()>) {
        let time = self.server.in_force.load().options.drain_time;
        if time.is_zero() {
            return;
        }
        tracing::info!(seconds = time.as_secs_f64(), "draining (proxy.drain_time)");
        // A command that joined now would lose its proxy halfway.
        if let Some(control) = &self.control {
            control.stop_accepting();
        }
        self.server.is_draining.store(true, Ordering::Relaxed);
        self.shared.metrics.draining.set(1);
        self.shared.scheduler.drain();
        let _ = timeout(time, hurry).await;
    }

    /// Stops the proxy: accepts no more connections, refuses requests that wait for a
    /// turn, lets exchanges finish until `proxy.shutdown_timeout` or until `hurry`
    /// completes, then closes the record. After [`RunningProxy::drain`], only requests
    /// whose turn would come too late are refused.
    pub async fn stop(self, hurry: impl Future<Output = ()>) {
        if let Some(control) = &self.control {
            control.stop_accepting();
        }
        self.server.stop.cancel();
        // Waiting requests get 503 now: their turn could come after the shutdown
        // timeout.
        if self.server.is_draining() {
            let longest = self.server.in_force.load().options.shutdown_timeout;
            // A crawler that gets its answer at once can try another node.
            let latest = longest.saturating_sub(last_answers(longest));
            self.shared.scheduler.close_beyond(latest);
        } else {
            self.shared.scheduler.close();
        }
        self.finish_exchanges(hurry).await;
        #[cfg(feature = "redis")]
        if let Some(fleet) = self.fleet {
            fleet.leave(&self.shared).await;
        }
        if let Some(control) = &self.control {
            // Commands read their counts now; one that does not must not delay the
            // stop.
            let _ = timeout(ADMIN_PATIENCE, control.ended()).await;
        }
        // The admin listener stays until now, so that /readyz answers 503 while
        // exchanges finish.
        self.admin_end.cancel();
        self.admin_tracker.close();
        let _ = timeout(ADMIN_PATIENCE, self.admin_tracker.wait()).await;
        // The record is closed last, because every exchange writes how it ended.
        self.lifecycle.end();
        self.shared.audit.close();
        self.audit_tracker.close();
        self.audit_tracker.wait().await;
        #[cfg(feature = "postgres")]
        if let Some(archive) = self.archive {
            archive.finish().await;
        }
    }

    async fn finish_exchanges(&self, hurry: impl Future<Output = ()>) {
        let tasks = &self.server.tasks.0;
        tasks.close();
        let longest = self.server.in_force.load().options.shutdown_timeout;
        let last = last_answers(longest);
        let waited = async {
            if timeout(longest.saturating_sub(last), tasks.wait())
                .await
                .is_ok()
            {
                return true;
            }
            // Requests without a turn by now get a response instead of a closed
            // connection.
            self.shared.scheduler.close();
            timeout(last, tasks.wait()).await.is_ok()
        };
        let finished = tokio::select! {
            finished = waited => finished,
            () = hurry => false,
        };
        self.shared.scheduler.close();
        if !finished {
            tracing::warn!(connections = tasks.len(), "exchanges cut off by the stop");
            self.server.abort.cancel();
            tasks.wait().await;
        }
    }
}

/// Returns the share of the shutdown timeout that is reserved for answering requests
/// that got no turn.
fn last_answers(longest: Duration) -> Duration {
    LAST_ANSWERS.min(longest / 4)
}

/// Logs each problem on its own line, as the start prints them.
fn log_problems(error: &anyhow::Error) {
    for line in in_force::error_lines(error) {
        tracing::error!("{line}");
    }
    tracing::error!("the configuration was not reloaded, and the previous one stays in force");
}
