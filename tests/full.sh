#!/usr/bin/env bash
# What is too long for every change: a soak, and clients that few machines
# have. Installs them (Debian, PyPI, npm).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "== The clients of README's table"
tests/clients/table/run

echo '== Soak'
cargo test --locked --test it soak -- --ignored --nocapture

echo '== Clients that wait for long' # in the environment that tests/run makes
cargo test --locked --test it pace_clients -- --ignored --nocapture

echo '== A store of 100,000 robots.txt'
cargo test --locked --profile quick --lib a_load_from_a_hundred_thousand_rows -- --ignored --nocapture

echo '== A crawl of 100,000 origins'
cargo test --locked --profile quick --test it many_origins -- --ignored --nocapture
