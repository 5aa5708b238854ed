"""A downloader middleware for Scrapy that keeps pages for later: one that is answered
with 429 is requested again after its `Retry-After`. Scrapy's own retries do not wait,
and give a page up after the third 429.

DOWNLOADER_MIDDLEWARES = {"politesse_later.AskLater": 560}, which is nearer to the
network than those retries. The spider stays open while a page is kept. An errback gets
`IgnoreRequest` each time its page is put off.
"""

import asyncio
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

from scrapy import signals
from scrapy.exceptions import DontCloseSpider, IgnoreRequest

DAY = 24 * 3600


def seconds(retry_after):
    """Returns the seconds that a `Retry-After` asks for; None if it cannot be read."""
    if retry_after.isdigit():
        return int(retry_after)
    try:
        until = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0, (until - datetime.now(timezone.utc)).total_seconds())


class AskLater:
    def __init__(self, crawler):
        self.crawler = crawler
        self.kept = 0
        crawler.signals.connect(self.stay_open, signal=signals.spider_idle)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    async def process_response(self, request, response):
        wait = seconds(response.headers.get("Retry-After", b"").decode("latin-1"))
        if response.status != 429 or wait is None or wait > DAY:
            return response
        self.kept += 1
        self.crawler.stats.inc_value("politesse/put_off")
        again = request.replace(dont_filter=True)
        # A second more: `Retry-After` is in whole seconds.
        asyncio.get_running_loop().call_later(wait + 1, self.ask_again, again)
        raise IgnoreRequest(f"put off for {wait} s")

    def ask_again(self, request):
        self.kept -= 1
        if self.crawler.crawling:
            self.crawler.engine.crawl(request)

    def stay_open(self):
        if self.kept:
            raise DontCloseSpider
