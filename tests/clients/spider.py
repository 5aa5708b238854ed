"""Crawls a local shop through the proxy with a spider that obeys nothing.

Usage: spider.py START_URL [first]. Prints how many pages answered, and how many
were refused, as JSON; with `first` it asks before it requests
(politesse.scrapy.AskFirst), and also prints how many were dropped.
"""

import json
import sys

import scrapy
from scrapy.crawler import CrawlerProcess


class ShopSpider(scrapy.Spider):
    name = "shop"
    handle_httpstatus_list = [403]
    custom_settings = {
        "ROBOTSTXT_OBEY": False,
        "USER_AGENT": "ShopSpider/1.0 (+https://spider.test/about)",
        "CONCURRENT_REQUESTS": 16,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        "DOWNLOAD_DELAY": 0,
        "RETRY_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "WARNING",
    }
    counts = {"pages": 0, "refused": 0, "unexplained": 0, "annotated": 0}

    def parse(self, response):
        if response.status == 403:
            self.counts["refused"] += 1
            if b"http_request_denied" not in response.headers.get("Proxy-Status", b""):
                self.counts["unexplained"] += 1
            return
        self.counts["pages"] += 1
        if response.headers.get("Robots-Directives"):
            self.counts["annotated"] += 1
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, self.parse)


settings = {}
if sys.argv[2:] == ["first"]:
    settings["SPIDER_MIDDLEWARES"] = {"politesse.scrapy.AskFirst": 500}
process = CrawlerProcess(settings)
crawler = process.create_crawler(ShopSpider)
process.crawl(crawler, start_urls=[sys.argv[1]])
process.start()
dropped = crawler.stats.get_value("politesse/dropped/rule", 0)
print(json.dumps(ShopSpider.counts | {"dropped": dropped}))
