#!/bin/sh
# Builds politesse and starts it, on a Debian machine with a Rust toolchain.
# Certificates and data are kept in the folder it is called from (--here).
# Arguments go to politesse: ./start.sh --config examples/tour/politesse.toml
set -eu
here=$(dirname -- "$0")
target=${CARGO_TARGET_DIR:-$here/target}
say() { echo "start.sh: $*" >&2; }

if ! command -v cc >/dev/null || ! command -v make >/dev/null; then
    apt-get update -qq
    apt-get install -qq -y gcc libc6-dev make
fi

# Cargo says nothing while the last crate compiles, which looks like a standstill.
# It writes invoked.timestamp when it begins with a crate.
started=$(mktemp)
tell_of_last_crate() {
    while [ -z "$(find "$target"/release/.fingerprint/politesse-???????????????? \
        -name invoked.timestamp -newer "$started" 2>/dev/null)" ]; do
        sleep 1 2>/dev/null
    done
    say "compiling the last crate, politesse itself. It is optimised together with all that it uses, which takes some minutes."
    seconds=0
    while sleep 30 2>/dev/null; do
        seconds=$((seconds + 30))
        say "still compiling politesse ($seconds s)"
    done
}
tell_of_last_crate </dev/null >/dev/null &
teller=$!
finish() {
    kill "$teller" 2>/dev/null || true
    rm -f "$started"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# Cargo looks for its settings from the folder that it is called in.
cargo build --release --locked --manifest-path "$here/Cargo.toml" \
    --config "$here/.cargo/config.toml"
# The EXIT trap does not outlive exec.
finish

program=$(cd -- "$target/release" && pwd)/politesse
say "the program is $program"
exec "$program" --here "$@"
