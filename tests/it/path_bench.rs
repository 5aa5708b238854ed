//! Parsers of the bench `path` for the output of Callgrind and strace.

#[path = "../../benches/path/callgrind.rs"]
#[expect(dead_code, reason = "the bench divides what it has read")]
mod callgrind;
#[path = "../../benches/path/parts.rs"]
#[expect(dead_code, reason = "the bench prints the parts")]
mod parts;
#[path = "../../benches/path/syscalls.rs"]
#[expect(dead_code, reason = "the bench prints the calls")]
mod syscalls;

use callgrind::{Cost, Profile};
use parts::{FileRole, Part, role};
use syscalls::{CallGroup, SystemCalls};

/// A profile in which hyper's `drive` has code of the pace crate inlined and calls the
/// standard library and the allocator.
const PROFILE: &str = "\
# callgrind format
version: 1
cmd: politesse serve
positions: line
events: Ir

ob=(1) /target/politesse
fl=(1) /home/user/.cargo/registry/src/registry.test-1/hyper-1.12.0/src/proto/h1/dispatch.rs
fn=(1) hyper::drive
10 100
fi=(2) /rustc/1/library/core/src/option.rs
20 5
fi=(3) /build/crates/politesse-pace/src/queue.rs
+3 30
fi=(2)
* 7
cfi=(4) /rustc/1/library/core/src/str/mod.rs
cfn=(2) core::str::trim
calls=2 50
* 40
fe=(1)
11 2
cfi=(4)
cfn=(2)
calls=6 50
* 120
cfi=(5) /build/tikv-jemalloc-sys-0a/out/build/src/jemalloc.c
cfn=(3) _rjem_malloc
calls=4 1
* 80

fl=(4)
fn=(2)
50 160

fl=(6) /build/tikv-jemalloc-sys-0a/out/build/include/jemalloc/internal/tcache_inlines.h
fn=(3)
1 60
cfn=(4) _rjem_je_malloc_default
calls=1 2
* 20
fn=(4)
2 20
totals: 504
";

// Callgrind Format Specification: `fl`, `fi` and `fe` name the file of the lines that
// follow, and the line after `calls` has the cost of the callee. Ours: neutral code counts
// for the code before it, and an allocation is a call into the allocator from outside.
#[test]
fn each_instruction_and_allocation_of_a_profile_counts_once_for_its_part() {
    let parts = Profile::parse(PROFILE).parts();
    // 30 of its own, 7 of neutral code after it, and 40 of the 160 spent in `trim`.
    assert_eq!(parts[&Part::Pace].instructions, 77.0);
    // 100 and 2 of its own, 5 of neutral code after it, and 120 of the 160 spent in
    // `trim`.
    assert_eq!(parts[&Part::Hyper].instructions, 227.0);
    assert_eq!(parts[&Part::Allocation].instructions, 80.0);
    let sum: f64 = parts.values().map(|cost| cost.instructions).sum();
    assert_eq!(sum, 384.0);
    assert_eq!(parts[&Part::Hyper].allocations, 4.0);
    let allocations: f64 = parts.values().map(|cost| cost.allocations).sum();
    assert_eq!(allocations, 4.0);
}

// Ours: the cost of a request is the difference of two runs.
#[test]
fn a_run_minus_itself_costs_nothing() {
    let parts = Profile::parse(PROFILE)
        .less(&Profile::parse(PROFILE))
        .parts();
    let is_nothing = parts.values().all(|cost| *cost == Cost::default());
    assert!(is_nothing, "{parts:?}");
}

// Ours: crate and folder decide the part.
#[test]
fn files_belong_to_the_part_of_their_crate_or_folder() {
    let owners = [
        (
            "/u/.cargo/registry/src/registry.test-1/http-1.5.0/src/header/map.rs",
            Part::Http,
        ),
        (
            "/u/.cargo/registry/src/registry.test-1/libsqlite3-sys-0.39.1/sqlite3/sqlite3.c",
            Part::Sqlite,
        ),
        (
            "/build/crates/politesse-robots/src/origin.rs",
            Part::Decision,
        ),
        ("crates/politesse-proxy/src/request.rs", Part::Heads),
        (
            "/build/crates/politesse-proxy/src/exchange.rs",
            Part::Forwarding,
        ),
        ("/aws-lc/crypto/fipsmodule/sha/sha256.c", Part::Sha256),
        ("/aws-lc/crypto/fipsmodule/aes/aes.c", Part::Tls),
    ];
    for (path, part) in owners {
        assert_eq!(role(path), FileRole::Owner(part), "{path}");
    }
    let copy = "./string/../sysdeps/x86_64/multiarch/memmove-vec-unaligned-erms.S";
    assert_eq!(role(copy), FileRole::Service(Part::Copies));
    assert_eq!(role("./nptl/pthread_mutex_lock.c"), FileRole::Neutral);
    let library = "/rustc/1/library/core/src/option.rs";
    assert_eq!(role(library), FileRole::Neutral);
}

// strace(1), `-c`: the columns of the summary.
#[test]
fn system_calls_are_the_difference_of_two_runs() {
    let summary = |sends: u32| {
        format!(
            "% time     seconds  usecs/call     calls    errors syscall\n\
             ------ ----------- ----------- --------- --------- ----------------\n \
             60.00    0.000600          30       {sends}        13 sendto\n \
             40.00    0.000400          20        20           pwrite64\n\
             ------ ----------- ----------- --------- --------- ----------------\n\
             100.00    0.001000          25       120        13 total\n"
        )
    };
    let shorter = SystemCalls::parse(&summary(100));
    let calls = SystemCalls::parse(&summary(300)).less(&shorter, 100.0);
    assert_eq!(calls.of_group(CallGroup::SocketWrites), 2.0);
    assert_eq!(calls.of_group(CallGroup::Beside), 0.0);
}
