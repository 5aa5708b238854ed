//! Shared set-up of the black-box tests: scripted origins, the proxy as a process, and
//! clients that send exactly the bytes that a test wants.
//!
//! Does not know the proxy's code: the tests see what a crawler, an origin and an
//! operator see. Servers listen on loopback, on ports that are free, so tests can run in
//! parallel.

pub(crate) mod addresses;
pub(crate) mod archive_fleet;
pub(crate) mod archived;
pub(crate) mod balancer;
pub(crate) mod certificates;
pub(crate) mod checkout;
pub(crate) mod client;
pub(crate) mod clock;
#[path = "../../../crates/politesse-directives/tests/directives/codings.rs"]
pub(crate) mod codings;
pub(crate) mod demo;
#[path = "../../../crates/politesse-directives/tests/directives/directive_case.rs"]
pub(crate) mod directive_case;
pub(crate) mod disk;
pub(crate) mod fleet;
pub(crate) mod h2;
pub(crate) mod loopback;
pub(crate) mod namespace;
pub(crate) mod ntlm_origin;
pub(crate) mod origin;
pub(crate) mod paced;
pub(crate) mod page;
pub(crate) mod parent;
pub(crate) mod postgres;
pub(crate) mod program;
pub(crate) mod proxy;
pub(crate) mod raw_origin;
pub(crate) mod redis;
pub(crate) mod server;
pub(crate) mod tenant;
pub(crate) mod timed_origin;
pub(crate) mod told;
pub(crate) mod warc;
pub(crate) mod web_server;

use std::future::Future;
use std::time::Duration;

use serde_json::Value;

/// Time limit of a test: far above what any test needs, and low enough that a stuck run
/// fails soon.
const LONGEST: Duration = Duration::from_secs(120);

/// Longest wait for one event inside a test.
const EVENT: Duration = Duration::from_secs(60);

/// Runs a test's future to completion on a runtime of its own, within [`LONGEST`].
pub(crate) fn run(test: impl Future<Output = ()>) {
    run_within(LONGEST, test);
}

/// Runs a test's future as [`run`] does, within `longest`. For long tests that are not
/// part of every run.
pub(crate) fn run_within(longest: Duration, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let outcome = runtime.block_on(async { tokio::time::timeout(longest, Box::pin(test)).await });
    runtime.shutdown_background();
    assert!(outcome.is_ok(), "the test took longer than {longest:?}");
}

/// Waits for `event`, or panics with its name, `what`.
pub(crate) async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(EVENT, event).await;
    outcome.unwrap_or_else(|_| panic!("no {what} within {EVENT:?}"))
}

/// Polls `probe` until it returns a value. For conditions that send no event, such as a
/// file, a process's memory or another program's table.
pub(crate) async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(what, found).await
}

/// Asserts that `object` has each member of `expected`, with the same value. It may have
/// more.
#[track_caller]
pub(crate) fn assert_members(object: &Value, expected: &Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&object[name], value, "{name} of {object}");
    }
}

/// Asserts that `text` contains `part`.
#[track_caller]
pub(crate) fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in {text}");
}

/// Asserts that `text` contains each of `parts`.
#[track_caller]
pub(crate) fn assert_contains_each<T: AsRef<str>>(text: &str, parts: &[T]) {
    for part in parts {
        assert_contains(text, part.as_ref());
    }
}

/// Returns the SHA-256 of `bytes` in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref())
}

/// An incremental SHA-256, for bodies too large to keep in memory.
pub(crate) struct Digest {
    state: aws_lc_rs::digest::Context,
    bytes: u64,
}

impl Digest {
    pub(crate) fn new() -> Self {
        let state = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        Self { state, bytes: 0 }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Returns the number of bytes and their digest.
    pub(crate) fn finish(self) -> (u64, String) {
        (self.bytes, hex(self.state.finish().as_ref()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a part of the endless stream from which large bodies are cut. Its bytes repeat
/// with a period of 251, which divides no buffer size, so a misplaced part is noticed.
pub(crate) fn stream_part(offset: u64, length: usize) -> Vec<u8> {
    let first = offset % 251;
    (first..).take(length).map(|n| (n % 251) as u8).collect()
}

/// Returns the digest of the first `length` bytes of the endless stream.
pub(crate) fn stream_digest(length: u64) -> String {
    let mut digest = Digest::new();
    for offset in (0..length).step_by(65_536) {
        let part = usize::try_from((length - offset).min(65_536)).unwrap();
        digest.update(&stream_part(offset, part));
    }
    digest.finish().1
}
