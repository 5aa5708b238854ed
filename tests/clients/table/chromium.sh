#!/bin/sh
# Chromium prints a page, not its status: the site's pages and our refusal have
# titles.
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
for url; do
    page=$(timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync \
        --user-data-dir="$profile" --ignore-certificate-errors-spki-list="$SPKI" ${WITH_PROXY:+--proxy-server="$https_proxy"} --dump-dom "$url" 2>/dev/null)
    case $page in
        *'<title>Refused by robots.txt'*) echo "403 $url" ;;
        *'<title>Lamp<'* | *'<title>Basket<'*) echo "200 $url" ;;
        *) echo "000 $url $(echo "$page" | sed -n 's/.*\(ERR_[A-Z_]*\).*/\1/p' | head -n 1)" ;;
    esac
done
