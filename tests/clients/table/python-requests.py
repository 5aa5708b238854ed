import sys

import requests

for url in sys.argv[1:]:
    try:
        print(requests.get(url, timeout=20).status_code, url)
    except requests.RequestException as error:
        print("000", url, error)
