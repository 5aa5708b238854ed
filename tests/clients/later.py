"""Fetches pages with Scrapy as it is, but for ROBOTSTXT_OBEY.

Usage: later.py later|defaults URL... Prints how many pages answered with 200, as JSON;
with `later` it has the middleware of contrib/scrapy/politesse_later.py.
"""

import json
import pathlib
import sys

import scrapy
from scrapy.crawler import CrawlerProcess


class PageSpider(scrapy.Spider):
    name = "page"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "WARNING",
    }
    pages = 0

    def parse(self, response):
        PageSpider.pages += 1


settings = {}
if sys.argv[1] == "later":
    sys.path.append(str(pathlib.Path(__file__).parents[2] / "contrib" / "scrapy"))
    settings["DOWNLOADER_MIDDLEWARES"] = {"politesse_later.AskLater": 560}
process = CrawlerProcess(settings)
process.crawl(PageSpider, start_urls=sys.argv[2:])
process.start()
print(json.dumps({"pages": PageSpider.pages}))
