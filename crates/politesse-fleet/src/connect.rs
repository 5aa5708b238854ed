//! Connections to the servers of a store: checks whether a server can be used, and is the
//! primary.
//!
//! Does not know which of several servers is chosen, nor how it is used afterwards.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, InfoDict, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, Value,
};
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use super::membership::FleetRules;
use super::options::{Options, StoreAddress};
use super::rights;
use super::store::StoreLink;
use super::store_error::{StoreError, first_command_error, is_about_shards, is_about_type};
use politesse_base::server::UserPassword;

/// Number of keys for which a server is checked, to see whether it holds the keys of all
/// hosts. A shard with nine tenths of all slots holds all of these keys once in 850
/// times.
const SHARD_TRIALS: usize = 64;

/// End of the range of numbers that `beat.lua` accepts for a generation: those of 15
/// digits.
const GENERATIONS_END: u64 = 1_000_000_000_000_000;

/// Reason why a store cannot be used at all. In this case the proxy does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreSetupError {
    /// An address cannot be used with the configured certificates.
    #[error("{address} cannot be used: {source}")]
    Client {
        /// Address of the store.
        address: StoreAddress,
        /// Cause, from the Redis client.
        source: RedisError,
    },
}

/// Creates the Redis client for an address; `roots` are certificates in PEM. Does not
/// connect.
pub(super) fn client(
    address: &StoreAddress,
    credentials: Option<&UserPassword>,
    roots: Option<&[u8]>,
) -> Result<Client, RedisError> {
    let (host, port) = (address.server.host.clone(), address.server.port);
    let place = if address.is_tls {
        ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    let mut settings = RedisConnectionInfo::default().set_db(address.database.into());
    if let Some(credentials) = credentials {
        settings = settings
            .set_username(&credentials.user)
            .set_password(&credentials.password);
    }
    let connection: ConnectionInfo = place.into_connection_info()?.set_redis_settings(settings);
    match roots.filter(|_| address.is_tls) {
        Some(roots) => Client::build_with_tls(
            connection,
            TlsCertificates {
                client_tls: None,
                root_cert: Some(roots.to_vec()),
            },
        ),
        None => Client::open(connection),
    }
}

/// Connects to a server, until `end`, and checks whether it can be used. Returns the number
/// of its generation with the connection.
pub(super) async fn look_at(
    client: &Client,
    address: StoreAddress,
    options: &Options,
    end: Instant,
) -> Result<(u64, StoreLink), StoreError> {
    let found = timeout_at(end, connect(client, address, options)).await;
    let slow = StoreError::Slow(FleetRules::answer_max(options.rules.lease));
    match found.unwrap_or(Err(slow)) {
        Err(StoreError::Redis(error)) if error.is_timeout() => {
            Err(StoreError::Timeout(first_answer_max(options)))
        }
        found => found,
    }
}

/// Returns the longest wait for the first answers. It is shorter than the whole limit, so
/// that silence is detected first.
fn first_answer_max(options: &Options) -> Duration {
    FleetRules::answer_max(options.rules.lease) * 3 / 4
}

/// Connects to a server and checks it, without a limit on the whole time.
async fn connect(
    client: &Client,
    address: StoreAddress,
    options: &Options,
) -> Result<(u64, StoreLink), StoreError> {
    let limit = first_answer_max(options);
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(Some(limit));
    let connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map_err(|error| first_command_error(error, limit))?;
    // All sections, because servers before Redis 7 accept at most one section name.
    let info = redis::cmd("INFO");
    // All at the same time, because a store may be far away.
    let [mut first, mut second, mut third, mut fourth] = [(); 4].map(|()| connection.clone());
    let (facts, shards, rights, generation) = tokio::join!(
        info.query_async::<InfoDict>(&mut first),
        check_shards(&mut second, options),
        rights::check(&mut third, options),
        generation(&mut fourth, options),
    );
    let facts = facts.map_err(|error| first_command_error(error, limit))?;
    let role: String = facts.get("role").unwrap_or_default();
    if is_sentinel(&facts) {
        return Err(StoreError::Sentinel);
    }
    if role != "master" {
        return Err(StoreError::Role(role));
    }
    let run: String = facts.get("run_id").ok_or(StoreError::Nameless)?;
    let memory: Option<u64> = facts.get("maxmemory");
    let policy: Option<String> = facts.get("maxmemory_policy");
    shards?;
    rights?;
    let generation = generation?;
    let link = StoreLink {
        connection,
        address,
        run,
        eviction: policy.filter(|policy| memory != Some(0) && policy != "noeviction"),
        beat: None,
        is_unopened: false,
    };
    Ok((generation, link))
}

fn is_sentinel(facts: &InfoDict) -> bool {
    // Valkey calls the field `server_mode`, from 8.0 on.
    let modes = ["redis_mode", "server_mode"].map(|name| facts.get::<String>(name));
    modes.into_iter().flatten().any(|mode| mode == "sentinel")
}

/// Checks that a server holds the keys of all hosts, and lets its user access them. A
/// shard of a cluster holds only some of them and redirects the others.
///
/// This needs no facts about the cluster, which would require an additional right.
async fn check_shards(
    connection: &mut MultiplexedConnection,
    options: &Options,
) -> Result<(), StoreError> {
    let name = &options.name;
    let mut trial = redis::pipe();
    // Keys of robots.txt files have another prefix than those of hosts.
    trial.cmd("EXISTS").arg(format!("{name}:robots:"));
    for number in 0..SHARD_TRIALS {
        trial.cmd("EXISTS").arg(format!("{name}:{{{number}}}"));
    }
    let trial = trial.ignore_errors();
    let answers: Vec<RedisResult<Value>> = trial.query_async(connection).await?;
    let errors: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    if errors.iter().any(is_about_shards) {
        return Err(StoreError::Shard);
    }
    match errors.iter().any(rights::is_about_keys) {
        true => Err(StoreError::Rights(rights::to_keys(options))),
        false => Ok(()),
    }
}

/// Reads the generation of a server. The heartbeat replaces a value that is not a
/// generation.
async fn generation(
    connection: &mut MultiplexedConnection,
    options: &Options,
) -> Result<u64, StoreError> {
    let mut order = redis::cmd("HGET");
    order.arg(options.state_key()).arg("generation");
    let bytes: Vec<u8> = match order.query_async::<Option<Vec<u8>>>(connection).await {
        Ok(found) => found.unwrap_or_default(),
        Err(error) if is_about_type(&error) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let text = str::from_utf8(&bytes).ok();
    let number = text.and_then(|text| text.parse().ok());
    Ok(number
        .filter(|number| *number < GENERATIONS_END)
        .unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ours: names as in Redis 7 and Valkey 8.
    #[test]
    fn a_sentinel_is_recognised_by_either_name_of_its_mode() {
        for (facts, expected) in [
            ("redis_mode:sentinel", true),
            ("server_mode:sentinel", true),
            ("redis_mode:standalone", false),
            ("server_mode:cluster", false),
            ("role:master", false),
        ] {
            assert_eq!(is_sentinel(&InfoDict::new(facts)), expected, "{facts}");
        }
    }
}
