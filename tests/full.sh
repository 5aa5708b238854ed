#!/usr/bin/env bash
# Tests and checks that take too long for every change: clients that few machines have,
# soaks, and checks that need their own tools. Installs the tools from Debian, PyPI, npm
# and crates.io; those of cargo go to target/tools.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Installs a program from crates.io unless it is installed.
tool() {
    [ -x "target/tools/bin/$1" ] || cargo install --locked --root target/tools "$1"
}

echo '== The clients of docs/clients.md'
tests/clients/table/run

echo '== Commands of the documents that tests/run leaves out'
cargo test --locked --test it book -- --ignored --nocapture

echo '== Soak'
cargo test --locked --test it soak -- --ignored --nocapture

echo '== 10,000 simulated fleets of each kind'
POLITESSE_FLEET_SEEDS=10000 cargo test --locked --release -p politesse-fleet --lib

echo '== A fleet of eight, with nodes and stores that are killed'
# Without optimisation the program itself takes 3 ms of each delay of 200 ms, which leaves
# little of the tolerance of 5 %.
cargo test --locked --release --test it fleet -- --ignored --nocapture

echo '== Three nodes and their archive, killed twenty times'
cargo test --locked --test it archive_kill -- --ignored --nocapture

echo '== An archive with a full disk'
cargo test --locked --test it archive_disk -- --ignored --nocapture

echo '== Clients that wait for long' # needs the Python environment of tests/run
cargo test --locked --test it pace_clients -- --ignored --nocapture

echo '== Floods beside a client that behaves'
cargo test --locked --release --test it floods -- --ignored --nocapture --test-threads 1

echo '== Ten clients that take all they can beside one that behaves'
cargo test --locked --release --test it shared_full -- --ignored --nocapture --test-threads 1
cargo test --locked --release --test it wrong_tokens -- --ignored --nocapture --test-threads 1

echo '== A hundred kills at full load, half of them with a full disk'
cargo test --locked --test it record_kill -- --ignored --nocapture

echo '== Ten million questions to damaged robots.txt files'
cargo test --locked --release -p politesse-robots --lib ten_million -- --ignored

echo '== A store of 100,000 robots.txt'
cargo test --locked --release -p politesse-record --lib a_load_from_a_hundred_thousand_rows -- --ignored --nocapture

echo '== A crawl of 100,000 origins'
cargo test --locked --release --test it many_origins -- --ignored --nocapture --test-threads 1

echo '== Instructions and system calls of a request'
need=()
command -v valgrind >/dev/null || need+=(valgrind)
command -v strace >/dev/null || need+=(strace)
if [ ${#need[@]} -gt 0 ]; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${need[@]}"
fi
cargo bench --locked --bench path

echo '== Licences, sources and duplicates of what the tree depends on'
tool cargo-deny
target/tools/bin/cargo-deny --locked check bans licenses sources

echo '== The alerts of contrib'
# Debian's package of Prometheus has promtool. No package index above has Grafana, so
# tests/it/monitoring.rs checks the dashboard's format.
if ! command -v promtool >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends prometheus
fi
(cd contrib/prometheus && promtool check rules politesse.rules.yml && promtool test rules politesse.test.yml)

echo '== Each feature alone'
for feature in postgres redis; do
    cargo clippy --locked --no-default-features --features "$feature" -- -D warnings
done

echo '== The packages of cargo, each compiled by itself'
cargo package --locked --workspace --allow-dirty

echo '== The manifest of Kubernetes, by its schemas'
kubernetes=target/tools/kubernetes
if [ ! -x "$kubernetes/bin/kubernetes-validate" ]; then
    python3 -m venv "$kubernetes"
    "$kubernetes/bin/pip" install --quiet --disable-pip-version-check kubernetes-validate==1.37.0
fi
"$kubernetes/bin/kubernetes-validate" --strict contrib/kubernetes/politesse.yaml

echo '== The declared rust-version'
tests/rust-version

echo '== The fuzz targets'
fuzz/run build

echo '== The book'
tool mdbook
target/tools/bin/mdbook build docs

echo '== The packages' # of the last commit
contrib/release/build
contrib/release/try
