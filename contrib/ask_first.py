"""Asks politesse about URLs before they are asked for: prints each with its
verdict, those that may start soonest first. Needs Python alone.

Usage: ask_first.py AGENT URL… with the admin listener in POLITESSE_ADMIN
(http://127.0.0.1:3129) and what `politesse admin token` prints in POLITESSE_TOKEN.
"""

import json
import os
import sys
import urllib.request

URLS_MAX = 1000  # in one question


def ask(agent, urls, fetch=True):
    """Returns an answer for each URL, in their order."""
    admin = os.environ.get("POLITESSE_ADMIN", "http://127.0.0.1:3129")
    fields = {"Authorization": "Bearer " + os.environ["POLITESSE_TOKEN"], "Content-Type": "application/json"}
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # not through the proxy
    answers = []
    for start in range(0, len(urls), URLS_MAX):
        question = {"agent": agent, "urls": urls[start : start + URLS_MAX], "fetch": fetch}
        request = urllib.request.Request(admin + "/api/v1/check", json.dumps(question).encode(), fields)
        with direct.open(request, timeout=60) as response:
            answers += json.load(response)["answers"]
    return answers


if __name__ == "__main__":
    answers = ask(sys.argv[1], sys.argv[2:])
    for answer in sorted(answers, key=lambda answer: answer.get("wait_seconds") or 0):
        print(answer.get("verdict", "error"), answer.get("starts_at") or "-", answer["url"])
