//! Errors of the store, and advice for the user: which key or right to change.
//!
//! The texts of the server and of its client library name neither. Does not know when
//! errors happen.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use thiserror::Error;

const CREDENTIALS: &str = "it wants another name or password than those of fleet.store_auth";
const RIGHTS: &str = "its user lacks a command (docs/fleet.md, The store, has those that it needs)";
const CERTIFICATE: &str = "its certificate is verified by fleet.store_ca";
const PROTOCOL: &str = "it does not speak as Redis does: fleet.store has its address and port, \
                        and rediss:// only if it speaks TLS";
const SHARD: &str = "it is one of several shards of a cluster, whose redirects are not followed, or \
                     its cluster is down: name one server in fleet.store";
const FULL: &str = "raise its maxmemory";
const DISK: &str = "it cannot save to its disk, as its own log says";
const REPLICAS: &str = "it has lost its replicas (min-replicas-to-write)";
const SILENCE: &str = "fleet.store has its address and port, and rediss:// only if it speaks TLS; one \
                       that is far away needs a longer fleet.lease";
const HANG_UP: &str = "it has too many clients (maxclients), is a balancer that finds no server, or \
                       does not speak as Redis does: fleet.store has its address and port, and \
                       rediss:// only if it speaks TLS";

/// Reason why a command to a store failed.
#[derive(Debug, Error)]
pub(super) enum StoreError {
    /// There is no connection.
    #[error("it cannot be reached")]
    Unreached,
    /// Other error of the Redis client, or a refusal of the server.
    #[error(transparent)]
    Redis(#[from] RedisError),
    /// The connection ended at its first command. A server that expects TLS or its own
    /// protocol hangs up, and so does one that accepts no further connections.
    #[error("it ends the connection at once: {advice}", advice = HANG_UP)]
    HungUp,
    /// The first answer is not one of Redis.
    #[error("{0}: {advice}", advice = PROTOCOL)]
    Protocol(RedisError),
    /// No answer to the first command, as from a server without TLS that is contacted
    /// with TLS.
    #[error("no answer within {0:?} to the first command: {advice}", advice = SILENCE)]
    Silent(Duration),
    /// Connecting and checking the server took too long, although it answered.
    #[error("connecting to it took longer than {0:?}, a quarter of fleet.lease")]
    Slow(Duration),
    /// Each generation is replaced before the store has granted a lease.
    #[error(
        "it begins the fleet again and again: it restarts, its clock is set, its address leads to \
         several servers, or it hears a node that does not hear its answers"
    )]
    Unopened,
    /// No answer to a later command within this time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The server is not the primary; its role in `INFO`.
    #[error("it takes no orders: it is a {0}")]
    Role(String),
    /// The server is a Redis Sentinel.
    #[error(
        "it is a sentinel, which stores no data: name the servers that it watches in fleet.store"
    )]
    Sentinel,
    /// The server is one of several shards.
    #[error("it does not have all keys: {advice}", advice = SHARD)]
    Shard,
    /// `INFO` lacks `run_id`.
    #[error("it does not say which process it is (INFO server)")]
    Nameless,
    /// The user lacks these rights, in the form of ACL rules.
    #[error("its user lacks {0} (docs/fleet.md, The store, has the rights that it needs)")]
    Rights(String),
    /// No node can have written these values of a host, which were removed.
    #[error("another program wrote into it, and this was removed: {0}")]
    Foreign(String),
    /// The answer of a script is malformed.
    #[error("it gave an invalid answer: {0}")]
    Answer(String),
}

impl StoreError {
    /// Returns the text of the error, with advice for the user.
    pub(super) fn with_advice(&self) -> String {
        if let Self::Redis(error) = self {
            return with_advice(error);
        }
        self.to_string()
    }

    /// Returns whether the store has answered.
    pub(super) fn is_answer(&self) -> bool {
        match self {
            Self::Redis(error) => is_refusal(error),
            Self::Unreached
            | Self::HungUp
            | Self::Protocol(_)
            | Self::Silent(_)
            | Self::Slow(_)
            | Self::Timeout(_) => false,
            Self::Unopened
            | Self::Role(_)
            | Self::Sentinel
            | Self::Shard
            | Self::Nameless
            | Self::Rights(_)
            | Self::Foreign(_)
            | Self::Answer(_) => true,
        }
    }
}

/// Returns the text of an error, with advice for the user.
pub(super) fn with_advice(error: &RedisError) -> String {
    match advice(error) {
        Some(advice) => format!("{error}: {advice}"),
        None => error.to_string(),
    }
}

/// Returns whether the store refused a command because its user may not run it.
pub(super) fn is_about_rights(error: &RedisError) -> bool {
    advice(error) == Some(RIGHTS)
}

/// Returns whether a key has a type that nodes never write, so that another program wrote
/// it.
pub(super) fn is_about_type(error: &RedisError) -> bool {
    has_code(error, "WRONGTYPE")
}

/// Returns whether the store refused a command, or one of several, with this code.
fn has_code(error: &RedisError, code: &str) -> bool {
    let answers = error.clone().into_server_errors();
    let mut errors = answers.iter().flat_map(|errors| errors.iter());
    errors.any(|(_, error)| error.code() == code)
}

/// Returns whether the store has answered with a refusal.
fn is_refusal(error: &RedisError) -> bool {
    error.clone().into_server_errors().is_some()
}

/// Returns whether the store refused a command because another shard of its cluster holds
/// the key, or no shard does.
pub(super) fn is_about_shards(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, ClusterDown, Moved};
    let kinds = [Ask, ClusterDown, Moved].map(ErrorKind::Server);
    kinds.contains(&error.kind())
}

/// Returns advice about an error; `None` if its text already says everything.
fn advice(error: &RedisError) -> Option<&'static str> {
    let kinds = [
        (ErrorKind::AuthenticationFailed, CREDENTIALS),
        (ErrorKind::Server(ServerErrorKind::NoPerm), RIGHTS),
        (ErrorKind::Parse, PROTOCOL),
    ];
    if is_about_shards(error) {
        return Some(SHARD);
    }
    let found = kinds.into_iter().find(|(kind, _)| *kind == error.kind());
    found.map_or_else(|| by_text(error), |(_, advice)| Some(advice))
}

/// Finds advice for errors that the library does not distinguish.
fn by_text(error: &RedisError) -> Option<&'static str> {
    let text = error.to_string();
    let has = |part: &str| text.contains(part);
    let codes = [("OOM", FULL), ("MISCONF", DISK), ("NOREPLICAS", REPLICAS)];
    let refused = codes.into_iter().find(|(code, _)| has_code(error, code));
    if let Some((_, advice)) = refused {
        return Some(advice);
    }
    if error.code() == Some("NOAUTH") || has("NOAUTH") || has("WRONGPASS") {
        return Some(CREDENTIALS);
    }
    // Errors of commands within a script, for which Redis does not name the command.
    if has("can't run this command") || has("no permissions") {
        return Some(RIGHTS);
    }
    has("peer certificate").then_some(CERTIFICATE)
}

/// Creates the error of the first command over a connection, including its likely cause.
/// `limit` is the longest wait for an answer.
pub(super) fn first_command_error(error: RedisError, limit: Duration) -> StoreError {
    let text = error.to_string();
    let has_any = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
    if error.is_timeout() {
        StoreError::Silent(limit)
    } else if has_any(&["reset by peer", "broken pipe", "max number of clients"]) {
        StoreError::HungUp
    } else if has_any(&["InvalidContentType"]) {
        StoreError::Protocol(error)
    } else {
        StoreError::Redis(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESET: &str = "Connection reset by peer (os error 104)";

    fn said(kind: ErrorKind, text: &str) -> RedisError {
        (kind, "", text.to_owned()).into()
    }

    // Ours: a connection may end at any time; at the first command there is a likely
    // cause.
    #[test]
    fn an_immediate_hang_up_is_reported_with_its_likely_cause() {
        for (text, is_named) in [(RESET, true), ("Connection refused (os error 111)", false)] {
            let error = first_command_error(said(ErrorKind::Io, text), Duration::ZERO);
            assert_eq!(error.with_advice().contains(HANG_UP), is_named, "{text}");
        }
        let later = StoreError::from(said(ErrorKind::Io, RESET));
        assert!(!later.with_advice().contains(HANG_UP));
    }

    // Ours: kinds and texts as in Redis 7 and the library.
    #[test]
    fn an_error_names_the_key_or_right_to_change() {
        let no_perm = ErrorKind::Server(ServerErrorKind::NoPerm);
        let response = ErrorKind::Server(ServerErrorKind::ResponseError);
        for (kind, text, expected) in [
            (ErrorKind::AuthenticationFailed, "", Some(CREDENTIALS)),
            (
                ErrorKind::Extension,
                "NOAUTH Authentication required.",
                Some(CREDENTIALS),
            ),
            (no_perm, "", Some(RIGHTS)),
            (
                response,
                "The user executing the script can't run this command",
                Some(RIGHTS),
            ),
            (
                ErrorKind::Io,
                "invalid peer certificate: UnknownIssuer",
                Some(CERTIFICATE),
            ),
            (ErrorKind::Parse, "", Some(PROTOCOL)),
            (
                ErrorKind::Server(ServerErrorKind::Moved),
                "1 a:1",
                Some(SHARD),
            ),
            (
                ErrorKind::Server(ServerErrorKind::ClusterDown),
                "",
                Some(SHARD),
            ),
            (ErrorKind::Io, RESET, None),
            (ErrorKind::Io, "Connection refused (os error 111)", None),
        ] {
            assert_eq!(advice(&said(kind, text)), expected, "{kind:?} {text}");
        }
    }
}
