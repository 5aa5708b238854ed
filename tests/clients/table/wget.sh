#!/bin/sh
# The last status line is the answer: the ones before it are those of CONNECT.
for url; do
    status=$(wget ${CA:+--ca-certificate="$CA"} -q -S -t 1 -O /dev/null "$url" 2>&1 | sed -n 's|^ *HTTP/[0-9.]* \([0-9]*\).*|\1|p' | tail -n 1)
    echo "${status:-000} $url"
done
