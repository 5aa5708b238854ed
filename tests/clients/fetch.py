"""Asks for URLs with requests, over one session, and prints what came back.

Usage: fetch.py URL…. One JSON object a URL.
"""

import hashlib
import json
import sys

import requests

session = requests.Session()
session.headers["User-Agent"] = "RequestsBot/1.0"
for url in sys.argv[1:]:
    response = session.get(url, timeout=20)
    print(
        json.dumps(
            {
                "status": response.status_code,
                "sha256": hashlib.sha256(response.content).hexdigest(),
                "directives": response.headers.get("Robots-Directives"),
                "problem": response.json() if "json" in response.headers.get("Content-Type", "") else None,
            }
        )
    )
