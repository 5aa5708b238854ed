import sys
import urllib.error
import urllib.request

for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=20).status, url)
    except urllib.error.HTTPError as error:
        print(error.code, url)
    except OSError as error:
        print("000", url, error)
