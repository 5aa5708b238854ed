"""urllib3 never reads the environment: a ProxyManager is given its proxy."""

import os
import sys

import urllib3

if "WITH_PROXY" in os.environ:
    http = urllib3.ProxyManager(os.environ["https_proxy"])
else:
    http = urllib3.PoolManager()
for url in sys.argv[1:]:
    try:
        print(http.request("GET", url, retries=False).status, url)
    except urllib3.exceptions.HTTPError as error:
        print("000", url, error)
