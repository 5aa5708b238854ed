#!/bin/sh
# Builds politesse and starts it, on a Debian machine with a Rust toolchain.
# Certificates and data are kept in the folder it is called from (--here).
# Arguments go to politesse: ./start.sh --config examples/tour/politesse.toml
set -eu
here=$(dirname -- "$0")
if ! command -v cc >/dev/null; then
    apt-get update -qq
    apt-get install -qq -y gcc libc6-dev
fi

# Cargo is silent while it compiles the last crate, which takes minutes.
seconds=0
while sleep "${TICK:=20}"; do
    seconds=$((seconds + TICK))
    echo "start.sh: building for $seconds s. The last crate, politesse itself, takes one to three minutes: it is optimised together with what it uses." >&2
done &
ticker=$!
trap 'kill "$ticker" 2>/dev/null || true' EXIT
cargo build --release --locked --manifest-path "$here/Cargo.toml"
kill "$ticker" 2>/dev/null || true
trap - EXIT

program=${CARGO_TARGET_DIR:-$here/target}/release/politesse
program=$(cd -- "$(dirname -- "$program")" && pwd)/politesse
echo "start.sh: the program is $program" >&2
exec "$program" --here "$@"
