#!/bin/sh
# Builds politesse and starts it, on a Debian machine with a Rust toolchain.
# Certificates and data are kept in the folder it is called from (--here).
# Arguments go to politesse: ./start.sh --config examples/tour/politesse.toml
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/target}
say() { echo "start.sh: $*" >&2; }

if ! command -v cc >/dev/null; then
    apt-get update -qq
    apt-get install -qq -y gcc libc6-dev
fi

if [ ! -e "$target/release/politesse" ]; then
    # Seconds of one processor that a build from nothing takes.
    seconds=530
    processors=$(nproc)
    minutes=$(((seconds / processors + 59) / 60))
    say "building politesse. The first time takes some $minutes minutes on $processors processors, more beside other work."
fi
# Cargo looks for its settings from the folder that it is called in.
cargo build --release --locked --manifest-path "$here/Cargo.toml" \
    --config "$here/.cargo/config.toml"

program=$(cd -- "$target/release" && pwd)/politesse
ln -sf -- "$program" "$here/politesse"
say "the program is $here/politesse, a link to $program"
exec "$program" --here "$@"
