#!/bin/sh
# Builds politesse and starts it, on a Debian machine with a Rust toolchain.
# Arguments go to politesse: ./start.sh --config examples/tour/politesse.toml
set -eu
here=$(dirname -- "$0")
if ! command -v cc >/dev/null; then
    apt-get update -qq
    apt-get install -qq -y gcc libc6-dev
fi
cargo build --release --locked --manifest-path "$here/Cargo.toml"
exec "${CARGO_TARGET_DIR:-$here/target}/release/politesse" "$@"
