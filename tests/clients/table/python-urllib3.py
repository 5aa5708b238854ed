"""urllib3 never reads the environment: a ProxyManager is given its proxy."""

import os
import sys

import urllib3

if "WITH_PROXY" in os.environ:
    proxy = urllib3.util.parse_url(os.environ["https_proxy"])
    # It leaves a credential in the address unread.
    fields = urllib3.make_headers(proxy_basic_auth=proxy.auth) if proxy.auth else None
    http = urllib3.ProxyManager(proxy._replace(auth=None).url, proxy_headers=fields)
else:
    http = urllib3.PoolManager()
for url in sys.argv[1:]:
    try:
        print(http.request("GET", url, retries=False).status, url)
    except urllib3.exceptions.HTTPError as error:
        print("000", url, error)
