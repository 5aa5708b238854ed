"""aiohttp reads the environment only with trust_env=True."""

import asyncio
import os
import sys

import aiohttp


async def main():
    async with aiohttp.ClientSession(trust_env="TRUST_ENV" in os.environ) as session:
        for url in sys.argv[1:]:
            try:
                async with session.get(url) as response:
                    print(response.status, url)
            except aiohttp.ClientError as error:
                print("000", url, error)


asyncio.run(main())
