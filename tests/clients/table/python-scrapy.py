import sys

import scrapy
from scrapy.crawler import CrawlerProcess


class Spider(scrapy.Spider):
    name = "shop"
    custom_settings = {"ROBOTSTXT_OBEY": False, "RETRY_ENABLED": False, "LOG_LEVEL": "ERROR"}
    handle_httpstatus_all = True

    async def start(self):
        for url in sys.argv[1:]:
            yield scrapy.Request(url, self.parse, errback=self.failed, meta={"handle_httpstatus_all": True})

    def parse(self, response):
        print(response.status, response.url)

    def failed(self, failure):
        print("000", failure.request.url, failure.value)


process = CrawlerProcess()
process.crawl(Spider)
process.start()
