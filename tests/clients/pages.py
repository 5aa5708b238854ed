"""Asks for URLs one after the other, as a Python client does by default, and
prints what came of each.

Usage: pages.py CLIENT URL…, CLIENT one of requests, httpx, aiohttp, urllib,
urllib3. One JSON object a URL: its status, or why there is none.
"""

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request

import aiohttp
import httpx
import requests
import urllib3


def with_aiohttp(url):
    async def status():
        async with aiohttp.ClientSession(trust_env=True) as session:
            async with session.get(url) as response:
                await response.read()
                return response.status

    return asyncio.run(status())


def with_urllib(url):
    try:
        with urllib.request.urlopen(url) as response:
            response.read()
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def with_urllib3(url):
    proxy = urllib3.ProxyManager(os.environ["http_proxy"])
    return proxy.request("GET", url, retries=urllib3.Retry(3)).status


CLIENTS = {
    "requests": lambda url: requests.get(url).status_code,
    "httpx": lambda url: httpx.get(url).status_code,
    "aiohttp": with_aiohttp,
    "urllib": with_urllib,
    "urllib3": with_urllib3,
}

fetch = CLIENTS[sys.argv[1]]
for url in sys.argv[2:]:
    try:
        print(json.dumps({"url": url, "status": fetch(url)}))
    except Exception as error:
        print(json.dumps({"url": url, "error": type(error).__name__}))
