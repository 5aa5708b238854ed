//! Connections to the servers of a store: whether one can be used, and is the primary.
//!
//! Does not know which of several is taken, nor what is asked of it then.

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, InfoDict, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, TlsCertificates,
};
use thiserror::Error;

use super::options::{Options, StoreAddress};
use super::rights;
use super::store::StoreLink;
use super::store_error::{StoreError, first_command_error};
use crate::upstream::parent::UserPassword;

/// Reason why a store cannot be connected to at all. The proxy does not start then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreSetupError {
    /// An address cannot be used with the certificates that are configured.
    #[error("{address} cannot be used: {source}")]
    Client {
        /// Address of the store.
        address: StoreAddress,
        /// Cause, from the Redis client.
        source: RedisError,
    },
}

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

/// Connects to a server, and returns its generation with the connection.
pub(super) async fn look_at(
    client: &Client,
    address: &StoreAddress,
    options: &Options,
) -> Result<(u64, StoreLink), StoreError> {
    let limit = options.rules.timeout;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(Some(limit));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map_err(first_command_error)?;
    // All sections: servers before Redis 7 take at most one name of a section.
    let facts: InfoDict = redis::cmd("INFO")
        .query_async(&mut connection)
        .await
        .map_err(first_command_error)?;
    let role: String = facts.get("role").unwrap_or_default();
    let mode: Option<String> = facts.get("redis_mode");
    match mode.as_deref() {
        Some("sentinel") => return Err(StoreError::Sentinel),
        Some("cluster") => check_shards(&mut connection).await?,
        _ => {}
    }
    if role != "master" {
        return Err(StoreError::Role(role));
    }
    let run: String = facts.get("run_id").ok_or(StoreError::Nameless)?;
    let memory: Option<u64> = facts.get("maxmemory");
    let policy: Option<String> = facts.get("maxmemory_policy");
    rights::check(&mut connection, options).await?;
    let mut order = redis::cmd("HGET");
    order.arg(options.fleet_key());
    order.arg("generation");
    // What is no number, the heartbeat replaces.
    let generation: Option<Vec<u8>> = order.query_async(&mut connection).await?;
    let text = generation
        .as_deref()
        .and_then(|bytes| str::from_utf8(bytes).ok());
    let link = StoreLink {
        connection,
        address: address.clone(),
        run,
        eviction: policy.filter(|policy| memory != Some(0) && policy != "noeviction"),
        beat: None,
    };
    Ok((text.and_then(|text| text.parse().ok()).unwrap_or(0), link))
}

/// Holds that a server of a cluster has all keys: of several, each has some, and redirects
/// the rest.
async fn check_shards(connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
    let mut order = redis::cmd("CLUSTER");
    let facts: InfoDict = order.arg("INFO").query_async(connection).await?;
    match facts.get("cluster_size") {
        Some(shards) if 1 < shards => Err(StoreError::Shard(shards)),
        _ => Ok(()),
    }
}
