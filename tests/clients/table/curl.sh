#!/bin/sh
exec curl -s -o /dev/null -w '%{http_code} %{url}\n' "$@"
