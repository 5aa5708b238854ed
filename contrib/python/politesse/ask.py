"""Asks politesse about URLs before they are requested: prints each with its
verdict, those that may start soonest first. Needs Python alone.

Usage: python3 -m politesse.ask AGENT URL… with the admin listener in POLITESSE_ADMIN
(http://127.0.0.1:3129) and what `politesse admin token` prints in POLITESSE_TOKEN.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from typing import Any, Dict, List

URLS_MAX = 1000  # in one question


def ask(agent: str, urls: List[str], fetch: bool = True) -> List[Dict[str, Any]]:
    """Returns an answer for each URL, in their order."""
    admin = os.environ.get("POLITESSE_ADMIN", "http://127.0.0.1:3129")
    fields = {"Authorization": "Bearer " + os.environ["POLITESSE_TOKEN"], "Content-Type": "application/json"}
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # not through the proxy
    answers: List[Dict[str, Any]] = []
    for start in range(0, len(urls), URLS_MAX):
        question = {"agent": agent, "urls": urls[start : start + URLS_MAX], "fetch": fetch}
        request = urllib.request.Request(admin + "/api/v1/check", json.dumps(question).encode(), fields)
        with direct.open(request, timeout=60) as response:
            answers += json.load(response)["answers"]
    return answers


def main() -> None:
    answers = ask(sys.argv[1], sys.argv[2:])
    for answer in sorted(answers, key=lambda answer: answer.get("wait_seconds") or 0):
        print(answer.get("verdict", "error"), answer.get("starts_at") or "-", answer["url"])


if __name__ == "__main__":
    main()
