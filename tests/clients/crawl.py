"""Scrapy with ROBOTSTXT_OBEY = False: follows every link from the URL given, as
a crawler does that nobody taught manners. Prints how often each status came."""

import collections
import json
import sys

import scrapy
from scrapy.crawler import CrawlerProcess

statuses = collections.Counter()


class Everything(scrapy.Spider):
    name = "everything"

    async def start(self):
        yield scrapy.Request(sys.argv[1])

    def parse(self, response):
        statuses[response.status] += 1
        if response.status == 200:
            yield from response.follow_all(css="a")


process = CrawlerProcess(
    {
        "ROBOTSTXT_OBEY": False,
        "HTTPERROR_ALLOW_ALL": True,
        "RETRY_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "WARNING",
        "USER_AGENT": "ExampleBot/1.0 (+http://example.test/bot)",
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        "DOWNLOAD_DELAY": 0,
    }
)
process.crawl(Everything)
process.start()
print(json.dumps(statuses))
