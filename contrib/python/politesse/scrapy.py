"""Scrapy behind politesse.

`ADDONS = {"politesse.scrapy.Addon": 500}` is the whole set-up. The parts can also be
enabled one by one:

    DOWNLOADER_MIDDLEWARES = {"politesse.scrapy.PolitesseMiddleware": 560}
    SPIDER_MIDDLEWARES = {"politesse.scrapy.AskFirst": 500}
"""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, AsyncIterator, Optional
from urllib.request import getproxies

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider, IgnoreRequest, NotConfigured
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from scrapy.settings import Settings
from scrapy.utils.asyncio import call_later

from politesse.annotation import parse, proxy_status
from politesse.ask import ask

logger = logging.getLogger(__name__)

RETRY_AFTER_MAX = 24 * 3600  # seconds, of all deferrals of a request together


class Refusal(IgnoreRequest):
    """The proxy refused the request. The message has the rule, its line and the URL of
    its robots.txt, or what else the proxy refused it for."""


class Deferral(IgnoreRequest):
    """The page was answered with 429, and is requested again after `Retry-After`."""


class Addon:
    """Scrapy add-on that enables [`PolitesseMiddleware`]."""

    def update_settings(self, settings: Settings) -> None:
        # Nearer to the network than RetryMiddleware (550), which does not wait.
        settings.setdefault_in_component_priority_dict("DOWNLOADER_MIDDLEWARES", PolitesseMiddleware, 560)
        # Under `politesse run` the proxy obeys robots.txt. Behind any other proxy, or with
        # none, Scrapy has to. The priority is that of settings.py, where new projects turn
        # the setting on.
        if _is_run_by_politesse() and settings.getbool("HTTPPROXY_ENABLED"):
            settings.set("ROBOTSTXT_OBEY", False, "project")


class PolitesseMiddleware:
    """Downloader middleware for the answers of the proxy.

    - A refusal becomes [`Refusal`], which is an `IgnoreRequest`, is logged and counted as
      `politesse/refused`. A site's own 403 is passed on.
    - A page that is answered with 429 is requested again after its `Retry-After`, which
      is no retry for Scrapy; counted as `politesse/put_off`. The spider stays open
      meanwhile. An errback gets [`Deferral`] each time. After 100 of them, or a day in
      all, the 429 is left to Scrapy. A `JOBDIR` does not keep pages that wait.
    - `response.meta["robots_directives"]` has the annotation, by crawler
      ([`politesse.annotation.parse`]).

    `POLITESSE_NAME` is `proxy.name` of the proxy, if that was changed, and
    `POLITESSE_DEFERRALS_MAX` another number than 100.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.name: str = crawler.settings.get("POLITESSE_NAME", "politesse")
        self.deferrals_max: int = crawler.settings.getint("POLITESSE_DEFERRALS_MAX", 100)
        self.deferred = 0
        crawler.signals.connect(self.stay_open, signal=signals.spider_idle)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> PolitesseMiddleware:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Response:
        request.meta["robots_directives"] = parse(_field(response, "Robots-Directives"))
        if response.status == 403:
            self.raise_if_refused(request, response)
        if response.status == 429:
            self.raise_if_deferred(request, response)
        return response

    def raise_if_refused(self, request: Request, response: Response) -> None:
        # The proxy removes its own name from the Proxy-Status of sites. Without an error
        # the member is a remark of report mode on the site's own response.
        for name, parameters in proxy_status(_field(response, "Proxy-Status")):
            if name == self.name and "error" in parameters:
                message = f"Refused by {name}: {parameters.get('details')}"
                logger.info("%s: %s", request, message, extra={"spider": self.crawler.spider})
                self.count("politesse/refused")
                raise Refusal(message)

    def raise_if_deferred(self, request: Request, response: Response) -> None:
        wait = _seconds(_field(response, "Retry-After"))
        if wait is None or request.callback is NO_CALLBACK:
            # Those who wait for the answer themselves, such as media pipelines, get it.
            return
        count, waited = request.meta.get("politesse_deferrals", (0, 0.0))
        count, waited = count + 1, waited + wait
        if waited > RETRY_AFTER_MAX or count > self.deferrals_max:
            return
        self.deferred += 1
        self.count("politesse/put_off")
        # HTTPCACHE_ENABLED may have stored the 429, and would answer with it for good.
        meta = {**request.meta, "dont_cache": True, "politesse_deferrals": (count, waited)}
        again = request.replace(dont_filter=True, meta=meta)
        # A second more: `Retry-After` is in whole seconds.
        call_later(wait + 1, self.request_again, again)
        raise Deferral(f"Put off for {wait:.0f} s")

    def request_again(self, request: Request) -> None:
        self.deferred -= 1
        if self.crawler.crawling and self.crawler.engine:
            self.crawler.engine.crawl(request)

    def stay_open(self) -> None:
        if self.deferred:
            raise DontCloseSpider

    def count(self, name: str) -> None:
        if self.crawler.stats:
            self.crawler.stats.inc_value(name)


class AskFirst:
    """Spider middleware that asks the proxy about the links of a page before they become
    requests. Links that it would refuse are dropped and counted (`politesse/dropped/…`),
    and those that may start soonest come first.

    Reads the two variables of [`politesse.ask`]. The proxy decides again on each request.
    """

    def __init__(self, crawler: Crawler) -> None:
        if "POLITESSE_TOKEN" not in os.environ:
            raise NotConfigured("POLITESSE_TOKEN is not set")
        self.agent: str = crawler.settings["USER_AGENT"]
        self.stats = crawler.stats

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> AskFirst:
        return cls(crawler)

    async def process_spider_output(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        found = [item async for item in result]
        urls = list({item.url for item in found if isinstance(item, Request)})
        try:
            answers = await asyncio.to_thread(ask, self.agent, urls) if urls else []
        except (OSError, ValueError) as error:
            # The proxy decides on each request all the same.
            logger.warning("politesse cannot be asked first: %s", error)
            answers = []
        known = {answer["url"]: answer for answer in answers}
        for item in found:
            answer = known.get(item.url, {}) if isinstance(item, Request) else {}
            if answer.get("verdict") == "disallow" and answer["effect"] == "enforced":
                if self.stats:
                    self.stats.inc_value("politesse/dropped/" + answer["reason"])
                continue
            wait = int(answer.get("wait_seconds") or 0)
            yield item.replace(priority=item.priority - wait) if wait else item


def _is_run_by_politesse() -> bool:
    """Reports whether `politesse run` started this process, and its proxy is in use."""
    proxy = os.environ.get("POLITESSE_RUN")
    proxies = getproxies()
    return bool(proxy) and "no" not in proxies and all(proxies.get(scheme) == proxy for scheme in ("http", "https"))


def _field(response: Response, name: str) -> str:
    """Returns the lines of a field, joined."""
    return b", ".join(response.headers.getlist(name)).decode("latin-1")


def _seconds(retry_after: str) -> Optional[float]:
    """Returns the seconds that a `Retry-After` asks for; `None` if it cannot be read."""
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        until = parsedate_to_datetime(retry_after)
    except (OverflowError, TypeError, ValueError):
        return None
    # A date in -0000 has no zone, and is in UTC (RFC 5322, section 3.3).
    until = until if until.tzinfo else until.replace(tzinfo=timezone.utc)
    return max(0.0, (until - datetime.now(timezone.utc)).total_seconds())
