//! Rights that a node needs in the store of its fleet. Each command of its scripts and
//! calls is tried before the store is used.
//!
//! A script that may not run a command stops there, and Redis does not say at which
//! command. A node whose heartbeats count but which gets no lease would let its requests
//! wait in vain. So a server that lacks one right counts as lost, and the error names the
//! right. Does not know when a store is tried.

use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Value};

use super::options::Options;
use super::store_error::{StoreError, is_about_rights};

/// Placeholder for a key that no node writes.
const KEY: &str = "KEY";

/// Commands that every node uses, with arguments that change nothing: the server checks
/// the rights before it rejects the arguments, or does not find the key.
const COMMANDS: [&[&str]; 18] = [
    &["TIME"],
    &["SCRIPT", "LOAD", "return 1"],
    &["EVALSHA", "0000000000000000000000000000000000000000", "0"],
    &["DEL", KEY],
    &["EXISTS", KEY],
    &["PEXPIRE", KEY, "1"],
    &["PTTL", KEY],
    &["HDEL", KEY, "field"],
    &["HGET", KEY, "field"],
    &["HGETALL", KEY],
    &["HMGET", KEY, "field"],
    &["HSET", KEY, "field", "value", "field without value"],
    &["ZADD", KEY, "no score", "member"],
    &["ZCOUNT", KEY, "0", "0"],
    &["ZRANGE", KEY, "0", "0"],
    &["ZRANGEBYSCORE", KEY, "0", "0"],
    &["ZREM", KEY, "member"],
    &["ZREMRANGEBYSCORE", KEY, "0", "0"],
];

/// Additional commands of a node that shares robots.txt files (`fleet.key`).
const ROBOTS_COMMANDS: [&[&str]; 4] = [
    &["GET", KEY],
    &["SET", KEY, "value", "no option"],
    &["XADD", KEY, "NOMKSTREAM", "*", "field"],
    &["XRANGE", KEY, "+", "-"],
];

/// Checks that the user of `connection` may run each command that this node uses, except
/// `INFO`. That one comes first, and its error names the right.
///
/// # Errors
///
/// [`StoreError::Rights`] with the missing rights; [`StoreError::Redis`] if the server
/// refuses all writes although it is a primary.
pub(super) async fn check(
    connection: &mut MultiplexedConnection,
    options: &Options,
) -> Result<(), StoreError> {
    let key = options.shared_key("rights");
    let robots = ROBOTS_COMMANDS.iter().filter(|_| options.key.is_some());
    let commands: Vec<&[&str]> = COMMANDS.iter().chain(robots).copied().collect();
    let mut trial = redis::pipe();
    for command in &commands {
        trial.cmd(command[0]);
        for argument in &command[1..] {
            trial.arg(if *argument == KEY { &key } else { *argument });
        }
    }
    let trial = trial.ignore_errors();
    let answers: Vec<RedisResult<Value>> = trial.query_async(connection).await?;
    let mut errors = answers.iter().filter_map(|answer| answer.as_ref().err());
    if let Some(refusal) = errors.find(|error| is_about_writing(error)) {
        return Err(refusal.clone().into());
    }
    let mut missing: Vec<_> = commands
        .iter()
        .zip(answers)
        .filter_map(|(command, answer)| Some((command, answer.err()?)))
        .filter(|(_, error)| is_about_rights(error))
        .map(|(command, error)| match is_about_keys(&error) {
            true => to_keys(options),
            false => right(command),
        })
        .collect();
    missing.dedup();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(StoreError::Rights(missing.join(" "))),
    }
}

/// Returns whether a user may run a command, but not on the keys of the fleet.
pub(super) fn is_about_keys(error: &RedisError) -> bool {
    // `No permissions to access a key` in Redis 7.0, `User NAME has no permissions to
    // access the 'KEY' key` later. For a command it says `to run`; the name may be any
    // word.
    error.to_string().contains("permissions to access ")
}

/// Returns whether a server refuses to write: it is full, cannot save, or lacks replicas.
fn is_about_writing(error: &RedisError) -> bool {
    let codes = ["OOM", "MISCONF", "NOREPLICAS", "READONLY"];
    error.code().is_some_and(|code| codes.contains(&code))
}

/// Returns the right to the keys of the fleet, as an ACL rule.
pub(super) fn to_keys(options: &Options) -> String {
    format!("~{}:*", options.name)
}

/// Returns the right to run a command, as an ACL rule.
fn right(command: &[&str]) -> String {
    match command {
        // The other subcommands are not needed here.
        ["SCRIPT", subcommand, ..] => format!("+script|{}", subcommand.to_lowercase()),
        _ => format!("+{}", command[0].to_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use redis::{ErrorKind, ServerErrorKind};

    use super::*;

    /// Files that contain commands.
    const SOURCES: [&str; 9] = [
        include_str!("announce.lua"),
        include_str!("beat.lua"),
        include_str!("claim.lua"),
        include_str!("connect.rs"),
        include_str!("heartbeat.rs"),
        include_str!("lease.lua"),
        include_str!("notes.rs"),
        include_str!("robots_store.rs"),
        include_str!("store.rs"),
    ];

    /// Returns the word after each `start` in the sources.
    fn words_after<'a>(start: &'a str, sources: &'a str) -> impl Iterator<Item = String> + 'a {
        let parts = sources.split(start).skip(1);
        parts.map(|rest| {
            let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric());
            rest[..end.unwrap_or(rest.len())].to_lowercase()
        })
    }

    // Ours: texts of Redis 6.2, 7.0 and 7.2 and of Valkey 8, with a misleading user name.
    #[test]
    fn a_missing_right_to_keys_is_not_a_missing_right_to_a_command() {
        for (text, expected) in [
            (
                "this user has no permissions to access one of the keys used as arguments",
                true,
            ),
            ("No permissions to access a key", true),
            (
                "User valkey has no permissions to access the 'politesse:{a.test}' key",
                true,
            ),
            (
                "this user has no permissions to run the 'hget' command or its subcommand",
                false,
            ),
            (
                "User valkey has no permissions to run the 'hget' command",
                false,
            ),
        ] {
            let kind = ErrorKind::Server(ServerErrorKind::NoPerm);
            let error = RedisError::from((kind, "", text.to_owned()));
            assert_eq!(is_about_keys(&error), expected, "{text}");
        }
    }

    // Ours: a command that is used but not tried could be missing unnoticed, and one that
    // the documentation does not list is denied to its readers.
    #[test]
    fn each_used_command_is_tried_and_documented() {
        let sources = SOURCES.concat();
        let used = [
            "redis.call('",
            "redis.pcall('",
            "cmd(\"",
            "orders.h",
            "orders.z",
        ];
        let used: BTreeSet<_> = used
            .iter()
            .flat_map(|start| {
                let first = start.strip_prefix("orders.").unwrap_or_default();
                words_after(start, &sources).map(move |word| format!("+{first}{word}"))
            })
            .collect();
        // The library runs the scripts.
        let by_library = ["+evalsha", "+script|load"].map(str::to_owned);
        let used: BTreeSet<_> = used.into_iter().chain(by_library).collect();
        let tried = COMMANDS.iter().chain(&ROBOTS_COMMANDS);
        let tried: BTreeSet<_> = tried.map(|command| right(command)).collect();
        let and_info = tried.into_iter().chain(["+info".to_owned()]);
        let and_info: BTreeSet<_> = and_info.collect();
        assert_eq!(used, and_info);
        let book = include_str!("../../../docs/fleet.md");
        let line = book
            .lines()
            .find(|line| line.starts_with("user politesse on"));
        let listed: BTreeSet<_> = line.unwrap().split(' ').map(str::to_owned).collect();
        let rights = listed.into_iter().filter(|word| word.starts_with('+'));
        assert!(rights.eq(and_info));
    }
}
