"""A spider middleware for Scrapy that asks politesse about the links of a page
before they become requests. What would be refused is dropped and counted; of the
rest those that may start soonest come first.

SPIDER_MIDDLEWARES = {"politesse_first.AskFirst": 500}, with ask_first.py beside it
and its two variables set. The proxy stays in between: it decides again.
"""

import asyncio

from ask_first import ask
from scrapy import Request


class AskFirst:
    def __init__(self, crawler):
        self.agent = crawler.settings["USER_AGENT"]
        self.stats = crawler.stats

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    async def process_spider_output(self, response, result):
        found = [item async for item in result]
        urls = list({item.url for item in found if isinstance(item, Request)})
        answers = await asyncio.to_thread(ask, self.agent, urls) if urls else []
        known = {answer["url"]: answer for answer in answers}
        for item in found:
            answer = known.get(item.url, {}) if isinstance(item, Request) else {}
            if answer.get("verdict") == "disallow" and answer["effect"] == "enforced":
                self.stats.inc_value("politesse/dropped/" + answer["reason"])
                continue
            wait = int(answer.get("wait_seconds") or 0)
            yield item.replace(priority=item.priority - wait) if wait else item
