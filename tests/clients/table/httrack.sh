#!/bin/sh
# HTTrack notes the status of each URL in the fourth column of its cache's list.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for url; do
    rm -rf "$folder/site"
    httrack "$url" -O "$folder/site" --quiet --depth=1 --robots=0 --retries=0 --timeout=10 ${WITH_PROXY:+-P "${http_proxy#http://}"} >/dev/null 2>&1
    status=$(awk -F '\t' -v url="$url" '$8 == url { print $4 }' "$folder/site/hts-cache/new.txt" | tail -n 1)
    echo "${status:-000} $url"
done
