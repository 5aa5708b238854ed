"""Fetches pages with Scrapy, as many at once as there are.

Usage: addon.py defaults|addon[=NAME] URL... Prints as JSON the status of each page that
reached the spider, its annotation, why the errback got the others, and what was
counted; with `addon` it has politesse.scrapy.Addon, for a proxy called NAME. More settings
are in ADDON_SETTINGS, as JSON.
"""

import json
import os
import sys
import tempfile

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import IgnoreRequest

outcome = {"pages": {}, "annotations": {}, "ignored": {}, "messages": []}


class PageSpider(scrapy.Spider):
    name = "page"
    handle_httpstatus_list = [403]

    async def start(self):
        for url in sys.argv[2:]:
            yield scrapy.Request(url, self.parse, errback=self.failed)

    def parse(self, response):
        outcome["pages"][response.url] = response.status
        if annotations := response.meta.get("robots_directives"):
            outcome["annotations"][response.url] = {
                crawler: [annotation.state, annotation.why, annotation.directives, annotation.has("noindex")]
                for crawler, annotation in annotations.items()
            }

    def failed(self, failure):
        if failure.check(IgnoreRequest):
            url = failure.request.url
            outcome["ignored"].setdefault(url, []).append(type(failure.value).__name__)
            outcome["messages"].append(str(failure.value))


mode, _, name = sys.argv[1].partition("=")
settings = {
    "USER_AGENT": "PageBot/1.0 (+https://page.test)",
    "CONCURRENT_REQUESTS": 100,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 100,
    "DOWNLOAD_DELAY": 0,
    "HTTPCACHE_ENABLED": True,
    "HTTPCACHE_DIR": tempfile.mkdtemp(),
    "ROBOTSTXT_OBEY": mode == "addon",
    "TELNETCONSOLE_ENABLED": False,
    "LOG_LEVEL": "INFO",
}
if mode == "addon":
    settings["ADDONS"] = {"politesse.scrapy.Addon": 500}
if name:
    settings["POLITESSE_NAME"] = name
settings.update(json.loads(os.environ.get("ADDON_SETTINGS", "{}")))
process = CrawlerProcess(settings)
crawler = process.create_crawler(PageSpider)
process.crawl(crawler)
process.start()
outcome["stats"] = crawler.stats.get_stats()
print(json.dumps(outcome, default=str))
