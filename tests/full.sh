#!/usr/bin/env bash
# What is too long for every change: a soak, and clients that few machines
# have. Installs them (Debian, npm) and runs them against the local site of
# examples/. Ends with 0 only if the site was asked for nothing disallowed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

need=()
command -v chromium >/dev/null || need+=(chromium)
command -v certutil >/dev/null || need+=(libnss3-tools)
command -v npm >/dev/null || need+=(nodejs npm)
command -v javac >/dev/null || need+=(default-jdk-headless)
command -v curl >/dev/null || need+=(curl)
command -v wget >/dev/null || need+=(wget)
if [ ${#need[@]} -gt 0 ]; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "${need[@]}" >/dev/null
fi

cargo build --locked --bins --examples
work=$(mktemp -d)
site=; proxy=
finish() {
    for pid in $site $proxy; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT

wait_for() { # a line in a file
    for _ in $(seq 200); do grep -qs "$2" "$1" && return; sleep 0.1; done
    echo "no '$2' in $1" >&2; cat "$1" >&2; exit 1
}

(cd "$work" && npm install --silent --no-audit --no-fund undici@6)

target/debug/examples/site 2>"$work/site.log" & site=$!
wait_for "$work/site.log" 'shop.test is on'
rm -f target/tour/audit.db*
target/debug/politesse --config examples/tour/politesse.toml serve >"$work/out" 2>"$work/log" & proxy=$!
wait_for "$work/out" '^try:'
export http_proxy=http://127.0.0.1:3128 https_proxy=http://127.0.0.1:3128
unset no_proxy NO_PROXY
ca=$PWD/target/tour/ca.pem

expect() { # what, text, wanted
    case $2 in *"$3"*) echo "ok: $1" ;; *) echo "FAILED: $1: wanted '$3', got: $2" >&2; exit 1 ;; esac
}

echo '== Node'
cp tests/clients/fetch.mjs "$work/"
answer=$(NODE_EXTRA_CA_CERTS=$ca node "$work/fetch.mjs" https://shop.test/lamp https://shop.test/basket)
expect 'Node gets a page' "$answer" '200 undici=(max-snippet'
expect 'Node is refused' "$answer" '403 Line 3 of'

echo '== Java'
cp "$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")/lib/security/cacerts" "$work/trust.p12"
chmod u+w "$work/trust.p12"
keytool -importcert -noprompt -alias politesse -file "$ca" -keystore "$work/trust.p12" -storepass changeit 2>/dev/null
answer=$(java -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128 \
    -Djavax.net.ssl.trustStore="$work/trust.p12" tests/clients/Fetch.java https://shop.test/lamp https://shop.test/basket http://shop.test/basket)
expect 'Java gets a page' "$answer" '200 https://shop.test/lamp'
expect 'Java is refused' "$answer" '403 https://shop.test/basket'

echo '== Chromium'
mkdir -p "$work/home/.pki/nssdb"
certutil -d "sql:$work/home/.pki/nssdb" -N --empty-password
certutil -d "sql:$work/home/.pki/nssdb" -A -t C,, -n politesse -i "$ca"
browse() {
    HOME=$work/home timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync \
        --user-data-dir="$work/profile" --proxy-server=http://127.0.0.1:3128 --dump-dom "$1" 2>/dev/null
}
expect 'Chromium gets a page' "$(browse https://shop.test/lamp)" 'A lamp.'
expect 'Chromium shows the refusal' "$(browse https://shop.test/basket)" 'Refused by robots.txt'

echo '== The record'
if grep -E 'got GET /basket$' "$work/site.log"; then
    echo 'FAILED: the site was asked for a disallowed page' >&2
    exit 1
fi
target/debug/politesse --config examples/tour/politesse.toml audit verify

echo '== Soak'
cargo test --locked --test it soak -- --ignored --nocapture

echo '== Clients that wait for long' # in the environment that tests/run makes
cargo test --locked --test it pace_clients -- --ignored --nocapture

echo '== A store of 100,000 robots.txt'
cargo test --locked --profile quick --lib a_load_from_a_hundred_thousand_rows -- --ignored --nocapture

echo '== A crawl of 100,000 origins'
cargo test --locked --profile quick --test it many_origins -- --ignored --nocapture
