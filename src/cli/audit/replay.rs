//! `audit replay`: which past decisions another configuration would change, by host and
//! rule.
//!
//! This file chooses the two sides to compare, identifies the sender of each recorded
//! request by a configuration, and counts the changes. A *sender* is the crawler that
//! made a request, with the policy that applies to it. Does not know how a recorded
//! request is decided again.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::arguments::DecisionArguments;
use super::listing::{Screen, cut};
use super::rows::{FormArguments, RowForm, write_json};
use crate::cli::configuration::ConfigurationRequest;
use crate::cli::output::{Exit, Usage, columns, print_notice};
use crate::config::Settings;
use politesse_base::inert::{csv_line, inert};
use politesse_decision::decide::Policy;
use politesse_decision::inquiry::Identities;
use politesse_decision::preferences::PreferenceTerms;
use politesse_decision::record::{
    StoredClient, StoredCrawler, StoredPolicy, StoredRecord, StoredRuling,
};
use politesse_directives::PurposeSet;
use politesse_proxy::crawler_table::{CrawlerTable, RequestSender};
use politesse_proxy::credentials::AuthMode;
use politesse_record::filter::DecisionFilter;
use politesse_record::reader::AuditReader;
use politesse_record::replay::{
    ReplayObstacle, ReplayOutcome, ReplaySender, ReplaySides, RulingChange, SenderLookup,
    replay as replay_all,
};
use politesse_robots::crawler::{Crawler, ProductToken};
use politesse_robots::origin::Target;

/// Maximum number of characters of a ruling or a URL on a terminal.
const TEXT_MAX: usize = 48;

/// Maximum number of senders that are cached.
const SENDERS_MAX: usize = 16_384;

/// Columns of CSV.
const COLUMNS: [&str; 13] = [
    "host",
    "change",
    "before_verdict",
    "before_effect",
    "before_reason",
    "before_rule",
    "after_verdict",
    "after_effect",
    "after_reason",
    "after_rule",
    "requests",
    "sample_seq",
    "sample_url",
];

/// Arguments of `audit replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    #[command(flatten)]
    which: DecisionArguments,
    /// Number of sample decisions for each change.
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    samples: usize,
    /// Maximum number of changes; 0 means all.
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    form: FormArguments,
    /// Configuration file to try, with --set applied on top. Default: the current one, so
    /// that only --set makes a difference. The record is that of the current file, or of
    /// --set audit.…
    #[arg(long, value_name = "FILE")]
    with: Option<PathBuf>,
    /// Side to compare the other configuration with: `now` with --with or --set, else
    /// `recorded`.
    #[arg(long, value_name = "SIDE")]
    against: Option<ReplayBasis>,
}

/// Side to compare the other configuration with. Clap shows the variants as `--against`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReplayBasis {
    /// Decisions of the current configuration.
    Now,
    /// Decisions on record.
    Recorded,
}

/// Configurations to compare, and a description of them.
struct ReplayedSettings {
    /// Current configuration, without `--set`; `None` to compare with the decisions as
    /// recorded.
    before: Option<Settings>,
    /// The other configuration.
    after: Settings,
    /// Names both sides, for the user.
    description: String,
}

impl ReplayedSettings {
    /// Reads the current configuration without `--set`, and the other one: the file of
    /// `--with`, else of the current one, with `--set`.
    fn read(
        configuration: ConfigurationRequest<'_>,
        asked: &ReplayArguments,
    ) -> Result<Self, Usage> {
        let other = ConfigurationRequest {
            file: asked.with.as_deref().or(configuration.file),
            ..configuration
        };
        let now = ConfigurationRequest {
            overrides: &[],
            ..configuration
        };
        // `--set audit.…` only selects the record: alone, it makes no other configuration.
        let mut set = configuration.overrides.iter();
        let has_other = asked.with.is_some() || set.any(|set| !set.starts_with("audit."));
        // Without another configuration, the current one is compared with the record:
        // compared with itself, it would change nothing.
        let basis = asked.against.unwrap_or(match has_other {
            true => ReplayBasis::Now,
            false => ReplayBasis::Recorded,
        });
        let with = match &asked.with {
            Some(file) => file.display().to_string(),
            None if has_other => "the configuration with --set".to_owned(),
            None => "the configuration of now".to_owned(),
        };
        let (before, against) = match basis {
            ReplayBasis::Now => (Some(now.settings()?), "the configuration of now"),
            ReplayBasis::Recorded => (None, "the decisions as recorded"),
        };
        Ok(Self {
            before,
            after: other.settings()?,
            description: format!("{with} against {against}"),
        })
    }
}

/// Decides the selected requests again, and prints the changes. The record is that of
/// `settings`.
pub(super) fn replay(
    settings: &Settings,
    asked: &ReplayArguments,
    configuration: ConfigurationRequest<'_>,
) -> anyhow::Result<Exit> {
    let filter = DecisionFilter::try_from(&asked.which)?;
    let replayed = ReplayedSettings::read(configuration, asked)?;
    let path = &settings.audit.path;
    let reader = AuditReader::open(path)?;
    print_notice(&format!(
        "the record {}: {}",
        path.display(),
        replayed.description
    ));
    let mut summary = ReplaySummary {
        record: path.display().to_string(),
        ..ReplaySummary::default()
    };
    let sides = ReplaySides {
        before: replayed.before.as_ref().map(sender_lookup),
        after: sender_lookup(&replayed.after),
    };
    replay_all(&reader, &filter, sides, |record, outcome| {
        summary.add(record, outcome, asked.samples);
    })?;
    summary.print(asked)?;
    Ok(summary.exit())
}

/// Makes the function that identifies senders by `settings`.
fn sender_lookup(settings: &Settings) -> SenderLookup<'static> {
    let mut senders = ConfiguredSenders::new(settings);
    Box::new(move |record| senders.sender(record))
}

/// Senders of recorded requests, as identified by one configuration.
struct ConfiguredSenders {
    table: CrawlerTable,
    identities: Identities,
    auth: AuthMode,
    /// Policy of the configuration, for a crawler without declared purposes.
    policy: Policy,
    /// `policy` in the form that the record stores.
    stored_policy: Arc<StoredPolicy>,
    /// Senders already identified. The key has the memory addresses of the stored
    /// crawler, client and policy, which many records share.
    cache: HashMap<[usize; 3], CachedSender>,
}

/// Cached result of [`ConfiguredSenders::sender`].
struct CachedSender {
    /// Values whose memory addresses are the key. Held so that no other value can get the
    /// same address.
    _stored: (Arc<StoredCrawler>, Arc<StoredClient>, Arc<StoredPolicy>),
    sender: Option<ReplaySender>,
}

impl ConfiguredSenders {
    fn new(settings: &Settings) -> Self {
        let options = &settings.exchange.request;
        Self {
            table: CrawlerTable::new(options.auth, &options.identities, Arc::default()),
            identities: options.identities.clone(),
            auth: options.auth,
            stored_policy: Arc::new(StoredPolicy::new(settings.policy.json())),
            policy: settings.policy.clone(),
            cache: HashMap::new(),
        }
    }

    /// Returns the sender of a request. Returns `None` if it cannot be determined, or if
    /// the configuration would refuse the request because its User-Agent has a crawler name
    /// that requires a credential, or that is reserved for other client addresses.
    fn sender(&mut self, record: &StoredRecord) -> Option<ReplaySender> {
        let (crawler, client) = (Arc::clone(&record.crawler), Arc::clone(&record.client));
        let stored = (crawler, client, Arc::clone(&record.policy));
        let key = [
            Arc::as_ptr(&stored.0).addr(),
            Arc::as_ptr(&stored.1).addr(),
            Arc::as_ptr(&stored.2).addr(),
        ];
        if let Some(cached) = self.cache.get(&key) {
            return cached.sender.clone();
        }
        let identified = self.identify(record);
        let sender = identified.map(|(crawler, preferences)| ReplaySender {
            crawler: stored_names(&crawler, &stored.0),
            policy: self.policy_of(record, preferences),
        });
        // Emptied all at once: the record is read in order of time, and an early sender
        // seldom returns.
        if SENDERS_MAX <= self.cache.len() {
            self.cache.clear();
        }
        let cached = CachedSender {
            _stored: stored,
            sender: sender.clone(),
        };
        self.cache.insert(key, cached);
        sender
    }

    /// Returns the policy for a crawler with `preferences`. If these are absent because
    /// the configuration declares no purposes for the crawler, the purposes on record
    /// apply: `run --purpose` may have stated them.
    fn policy_of(
        &self,
        record: &StoredRecord,
        preferences: Option<PreferenceTerms>,
    ) -> Arc<StoredPolicy> {
        let recorded = || {
            let policy = Policy::restore(&record.policy.json).ok()?;
            let purposes = policy.terms().preferences?.purposes;
            self.identities.preferences(None, purposes)
        };
        let Some(preferences) = preferences.or_else(recorded) else {
            return Arc::clone(&self.stored_policy);
        };
        Arc::new(StoredPolicy::new(
            self.policy.for_purposes(preferences).json(),
        ))
    }

    /// Identifies the crawler of a request, and its preferences if the configuration
    /// declares purposes for it. Returns `None` in the cases of
    /// [`ConfiguredSenders::sender`].
    fn identify(&self, record: &StoredRecord) -> Option<(Crawler, Option<PreferenceTerms>)> {
        let user_agent = record.crawler.user_agent.as_deref().map(str::as_bytes);
        let mut entries = self.identities.entries().iter();
        let address: Option<IpAddr> = record.client.address.parse().ok();
        // If the record has only part of the address, any address will do, unless an entry
        // depends on the address.
        let client = match address {
            Some(address) => address,
            None if entries.any(|entry| entry.clients.is_some()) => return None,
            None => Ipv4Addr::UNSPECIFIED.into(),
        };
        let Some(name) = record.client.credential.as_deref() else {
            let sender = RequestSender {
                user_agent,
                client,
                credential: None,
                purposes: PurposeSet::default(),
            };
            let known = self.table.identify(&sender).ok()?;
            // A request that uses a name pinned to other clients would be refused.
            let may_use_names = known.foreign_name.is_none();
            return may_use_names.then_some((known.crawler, known.preferences));
        };
        // The record keeps no secret. It names a credential by the first product token of
        // its entry, so the entry is found by that. No credential counts with `auth` off.
        let mut entries_of_credential = self.identities.entries().iter().filter(|entry| {
            let is_named = entry
                .tokens
                .first()
                .is_some_and(|token| token.as_str() == name);
            is_named && entry.credential.is_some() && self.auth != AuthMode::Off
        });
        let entry = entries_of_credential.find(|entry| entry.fits(user_agent, Some(client)))?;
        let by_user_agent = Crawler::from_user_agent(user_agent);
        let crawler = Crawler::vouched_for(&entry.tokens, &by_user_agent);
        let purposes = PurposeSet::default();
        Some((crawler, self.identities.preferences(Some(entry), purposes)))
    }
}

/// Returns the names of `crawler` in the form that the record stores.
fn stored_names(crawler: &Crawler, recorded: &Arc<StoredCrawler>) -> Arc<StoredCrawler> {
    let names = |tokens: &[ProductToken]| tokens.iter().map(ToString::to_string).collect();
    let found = StoredCrawler {
        candidates: names(crawler.candidates()),
        unlisted: names(crawler.unlisted()),
        user_agent: recorded.user_agent.clone(),
        label: recorded.label.clone(),
    };
    // The recorded value itself, if it is equal: each value is parsed only once.
    if found == **recorded {
        Arc::clone(recorded)
    } else {
        Arc::new(found)
    }
}

/// Treatment of a request, regardless of its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Treatment {
    /// Sent: allowed, allowed by an override, or disallowed but only reported.
    Sent,
    /// Refused.
    Refused,
    /// Answered with a delay instead of being sent.
    PutOff,
}

impl Treatment {
    fn of(ruling: &StoredRuling) -> Self {
        match (ruling.verdict.as_str(), ruling.effect.as_str()) {
            ("later", _) => Self::PutOff,
            ("allow", _) | (_, "reported" | "overridden") => Self::Sent,
            _ => Self::Refused,
        }
    }
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum ChangeKind {
    /// A request that was sent or put off would be refused.
    Refused,
    /// The treatment would change, but not to a refusal: from refused to sent or put off, or
    /// between these two. Output calls all of them `sent`, because a crawler tries a request
    /// again that was put off.
    NotRefused,
    /// The request would be treated the same, for another reason or by another rule.
    Reason,
}

impl ChangeKind {
    fn of(before: &StoredRuling, after: &StoredRuling) -> Self {
        let (before, after) = (Treatment::of(before), Treatment::of(after));
        match after {
            // The same treatment by another rule: worth a line, but no alarm.
            _ if before == after => Self::Reason,
            Treatment::Refused => Self::Refused,
            Treatment::Sent | Treatment::PutOff => Self::NotRefused,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::NotRefused => "sent",
            Self::Reason => "reason",
        }
    }
}

/// Part of a ruling by which changes are grouped. The line number of the rule is left
/// out: it changes with every line that a site adds above the rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ReplayedRuling {
    verdict: String,
    effect: String,
    reason: String,
    rule: Option<String>,
}

impl From<&StoredRuling> for ReplayedRuling {
    fn from(ruling: &StoredRuling) -> Self {
        Self {
            verdict: ruling.verdict.clone(),
            effect: ruling.effect.clone(),
            reason: ruling.reason.clone(),
            rule: ruling.rule.clone(),
        }
    }
}

impl ReplayedRuling {
    fn json(&self) -> Value {
        json!({
            "verdict": self.verdict,
            "effect": self.effect,
            "reason": self.reason,
            "rule": self.rule,
        })
    }

    fn cells(&self) -> [String; 4] {
        [
            self.verdict.clone(),
            self.effect.clone(),
            self.reason.clone(),
            self.rule.clone().unwrap_or_default(),
        ]
    }

    fn text(&self) -> String {
        let effect = match self.effect.as_str() {
            "reported" | "overridden" => format!(" ({})", self.effect),
            _ => String::new(),
        };
        let because = self.rule.as_ref().unwrap_or(&self.reason);
        format!("{}{effect} {because}", self.verdict)
    }
}

/// Change that is counted as one: the same host, and the same rulings before and after.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ReplayChange {
    host: String,
    kind: ChangeKind,
    before: ReplayedRuling,
    after: ReplayedRuling,
}

/// Sample decision of a change.
#[derive(Debug)]
struct ReplaySample {
    /// Number of the decision in the record.
    seq: u64,
    time: String,
    url: String,
}

/// Number of decisions with one change, and some of them as samples.
#[derive(Debug, Default)]
struct ChangeCount {
    requests: u64,
    /// The oldest decisions with the change.
    samples: Vec<ReplaySample>,
}

/// Sums of a replay.
#[derive(Debug, Default)]
struct ReplaySummary {
    /// Path of the record.
    record: String,
    /// Number of decisions that stay the same.
    same: u64,
    /// Number of changed decisions that are less certain: the robots.txt on record was
    /// fetched for one crawler name, and the crawler would now have another, for which the
    /// site might have served a different file.
    other_name: u64,
    changes: HashMap<ReplayChange, ChangeCount>,
    /// Numbers of decisions that cannot be made again, by reason.
    unknown: BTreeMap<ReplayObstacle, u64>,
}

impl ReplaySummary {
    /// Counts a decision, and keeps it as a sample if its change has fewer than
    /// `samples_max`.
    fn add(&mut self, record: &StoredRecord, outcome: ReplayOutcome, samples_max: usize) {
        let change = match outcome {
            ReplayOutcome::Same => {
                self.same += 1;
                return;
            }
            ReplayOutcome::Unknown(obstacle) => {
                *self.unknown.entry(obstacle).or_default() += 1;
                return;
            }
            ReplayOutcome::Changed(change) => change,
        };
        let RulingChange { before, after } = *change;
        if after.crawler != record.ruling.crawler
            && record
                .snapshot
                .as_ref()
                .is_some_and(|snapshot| snapshot.token.is_some())
        {
            self.other_name += 1;
        }
        let host = record.url.parse::<Target>();
        let counted = ReplayChange {
            host: host.map_or_else(|_| String::new(), |url| url.origin.host().to_string()),
            kind: ChangeKind::of(&before, &after),
            before: (&before).into(),
            after: (&after).into(),
        };
        let count = self.changes.entry(counted).or_default();
        count.requests += 1;
        if count.samples.len() < samples_max {
            count.samples.push(ReplaySample {
                seq: record.seq,
                time: record.at.to_string(),
                url: record.url.clone(),
            });
        }
    }

    /// Returns the number of decisions with changes of a kind.
    fn changed(&self, kind: ChangeKind) -> u64 {
        let changes = self.changes.iter();
        let of_kind = changes.filter(|(change, _)| change.kind == kind);
        of_kind.map(|(_, count)| count.requests).sum()
    }

    fn exit(&self) -> Exit {
        if !self.changes.is_empty() {
            Exit::Not
        } else if !self.unknown.is_empty() {
            Exit::Unknown
        } else {
            Exit::Done
        }
    }

    fn print(&self, asked: &ReplayArguments) -> io::Result<()> {
        let mut changes: Vec<_> = self.changes.iter().collect();
        // Most requests first; equal ones in a fixed order.
        changes.sort_by(|(one, of_one), (other, of_other)| {
            let by_count = of_other.requests.cmp(&of_one.requests);
            by_count.then_with(|| one.cmp(other))
        });
        let shown = match asked.limit {
            0 => changes.len(),
            limit => limit.min(changes.len()),
        };
        let (shown, left) = changes.split_at(shown);
        let mut out = io::stdout().lock();
        match asked.form.form() {
            RowForm::Json => write_json(&mut out, &self.json(shown))?,
            RowForm::Csv => {
                out.write_all(csv_line(COLUMNS).as_bytes())?;
                for (change, count) in shown {
                    out.write_all(csv_row(change, count).as_bytes())?;
                }
                print_notice(&self.sentence());
            }
            RowForm::Columns => {
                if !shown.is_empty() {
                    out.write_all(table(shown).as_bytes())?;
                    writeln!(out)?;
                }
                writeln!(out, "{}", self.sentence())?;
                for (obstacle, requests) in &self.unknown {
                    writeln!(out, "not decided again: {requests} {}", obstacle.meaning())?;
                }
                if 0 < self.other_name {
                    writeln!(
                        out,
                        "{} of these are under another name than their robots.txt was fetched \
                         for: the site may have sent that name another file",
                        self.other_name
                    )?;
                }
            }
        }
        if !left.is_empty() {
            let requests: u64 = left.iter().map(|(_, count)| count.requests).sum();
            print_notice(&format!(
                "left out: {} changes with {requests} requests; --limit 0 shows all",
                left.len()
            ));
        }
        Ok(())
    }

    /// Describes the numbers of decisions by outcome.
    fn sentence(&self) -> String {
        format!(
            "{} stay as they are; {} would be refused, {} would be sent, {} have another reason; \
             {} cannot be decided again",
            self.same,
            self.changed(ChangeKind::Refused),
            self.changed(ChangeKind::NotRefused),
            self.changed(ChangeKind::Reason),
            self.unknown.values().sum::<u64>(),
        )
    }

    fn json(&self, shown: &[(&ReplayChange, &ChangeCount)]) -> Value {
        let sample = |sample: &ReplaySample| json!({ "seq": sample.seq, "time": sample.time, "url": sample.url });
        let changes = shown.iter().map(|(change, count)| {
            json!({
                "host": change.host,
                "change": change.kind.as_str(),
                "before": change.before.json(),
                "after": change.after.json(),
                "requests": count.requests,
                "samples": count.samples.iter().map(sample).collect::<Vec<_>>(),
            })
        });
        let unknown = ReplayObstacle::ALL.map(|obstacle| {
            let requests = self.unknown.get(&obstacle).copied().unwrap_or_default();
            (obstacle.as_str().to_owned(), json!(requests))
        });
        json!({
            "record": self.record,
            "same": self.same,
            "refused": self.changed(ChangeKind::Refused),
            "sent": self.changed(ChangeKind::NotRefused),
            "reason": self.changed(ChangeKind::Reason),
            "other_name": self.other_name,
            "undecided": serde_json::Map::from_iter(unknown),
            "changes": changes.collect::<Vec<_>>(),
        })
    }
}

fn csv_row(change: &ReplayChange, count: &ChangeCount) -> String {
    let sample = count.samples.first();
    let mut cells = vec![change.host.clone(), change.kind.as_str().to_owned()];
    cells.extend(change.before.cells());
    cells.extend(change.after.cells());
    cells.push(count.requests.to_string());
    cells.push(sample.map_or_else(String::new, |sample| sample.seq.to_string()));
    cells.push(sample.map_or_else(String::new, |sample| sample.url.clone()));
    csv_line(cells.iter().map(String::as_str))
}

/// Lays out the changes in columns, with further samples below each.
fn table(shown: &[(&ReplayChange, &ChangeCount)]) -> String {
    let text_max = Screen::of_stdout().columns.map(|_| TEXT_MAX);
    let text = |text: &str| cut(&inert(text), text_max);
    let mut rows = Vec::new();
    for (change, count) in shown {
        let sample = |sample: &ReplaySample| format!("{} {}", sample.seq, text(&sample.url));
        let mut samples = count.samples.iter().map(sample);
        rows.push([
            count.requests.to_string(),
            text(&change.host),
            text(&change.before.text()),
            text(&change.after.text()),
            samples.next().unwrap_or_default(),
        ]);
        let empty = String::new;
        rows.extend(samples.map(|sample| [empty(), empty(), empty(), empty(), sample]));
    }
    columns(["REQUESTS", "HOST", "WAS", "WOULD BE", "SAMPLES"], &rows)
}
