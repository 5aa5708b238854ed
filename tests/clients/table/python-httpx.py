import sys

import httpx

for url in sys.argv[1:]:
    try:
        print(httpx.get(url, timeout=20).status_code, url)
    except httpx.HTTPError as error:
        print("000", url, error)
