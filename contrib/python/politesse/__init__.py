"""Parts of politesse for Python clients: `politesse.scrapy`, `politesse.annotation`
and `politesse.ask`.

The program itself is `politesse`, beside the interpreter's other programs.
"""
