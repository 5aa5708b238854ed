#!/bin/sh
for url; do
    status=$(wget2 ${CA:+--ca-certificate="$CA"} ${PROXY_USER:+--http-proxy-user="$PROXY_USER" --http-proxy-password="$PROXY_TOKEN"} -S --tries 1 -O /dev/null "$url" 2>&1 | sed -n "s|^HTTP .*response \([0-9]*\) .*|\1|p" | tail -n 1)
    echo "${status:-000} $url"
done
