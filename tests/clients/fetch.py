"""Python requests as anybody uses it: the proxy and the CA come from the
environment. Prints one JSON object per URL given."""

import hashlib
import json
import sys

import requests

session = requests.Session()
session.headers["User-Agent"] = "ExampleBot/1.0 (python-requests)"
for url in sys.argv[1:]:
    answer = session.get(url, timeout=30)
    print(
        json.dumps(
            {
                "status": answer.status_code,
                "sha256": hashlib.sha256(answer.content).hexdigest(),
                "directives": answer.headers.get("Robots-Directives"),
                "rule": answer.json()["rule"]["text"] if answer.status_code == 403 else None,
            }
        )
    )
