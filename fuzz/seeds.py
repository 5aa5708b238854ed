#!/usr/bin/env python3
"""Writes the cases of the repository as inputs of a fuzz target, one file each.

    fuzz/seeds.py TARGET FOLDER
"""

import base64
import gzip
import json
import pathlib
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = [
    ROOT / "tests" / "cases",
    ROOT / "crates" / "politesse-directives" / "cases",
    ROOT / "crates" / "politesse-robots" / "cases",
]


def cases(name):
    (path,) = (folder / name for folder in FOLDERS if (folder / name).exists())
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def body(case):
    if "robots_b64" in case:
        return base64.b64decode(case["robots_b64"])
    return case["robots"].encode()


def question(case):
    """What `Question::from_text` reads, behind the mark of a written question."""
    path = case["url"].removeprefix("https://h.example").split("#")[0]
    return b"=%s\n%s\n%s" % (case["agent"].encode(), path.encode(), body(case))


def directives():
    return cases("directives.jsonl") + cases("directives-ours.jsonl")


def encoded():
    """What `decoders` reads: a coding, the size of chunks and the limit by one
    byte each, then a body. Pages are encoded here where Python can, and were
    in the cases."""
    codings = {"gzip": 0, "deflate": 1, "br": 2, "zstd": 3}
    for case in directives():
        fields = {name.lower(): value for name, value in case["headers"]}
        coding = codings.get(fields.get("content-encoding", "").lower())
        if coding is not None and "body_b64" in case:
            yield bytes([coding, 5, 19]) + base64.b64decode(case["body_b64"])
        elif case["id"].startswith("h-") and case["body"]:
            page = case["body"].encode()
            yield bytes([0, 5, 19]) + gzip.compress(page, mtime=0)
            yield bytes([1, 5, 19]) + zlib.compress(page)
            yield bytes([1, 5, 19]) + zlib.compress(page)[2:-4]
            yield bytes([4, 5, 19]) + gzip.compress(gzip.compress(page), mtime=0)


def page(case):
    """A page of a case, behind the byte that says where it is cut."""
    return b"0" + (case["body"] or "").encode()[:4096]


def fields(case):
    """The field lines of a case; their first bytes choose the names."""
    names = {"robots-tag": b"0", "x-robots-tag": b"1"}
    lines = ((names.get(name.lower()), value) for name, value in case["headers"])
    lines = (first + value.encode("latin-1") for first, value in lines if first)
    return b"\n".join(lines)


def spellings():
    """A path of a case, and the robots.txt it is refused or allowed by."""
    for case in cases("urls.jsonl") + cases("urls-ours.jsonl"):
        path = case["target"].removeprefix("http://o.test")
        if path.startswith("/") and case.get("robots"):
            yield f"{path}\n{case['robots']}".encode()


def archives():
    """What `archives` reads: a form and a size of pieces, then a WARC file of two
    records."""
    crlf = "\r\n"
    records = [
        ("request", "http://h.test/a", f"GET /a HTTP/1.1{crlf}User-Agent: Foo{crlf}{crlf}"),
        ("response", "http://h.test/robots.txt", f"HTTP/1.1 200 OK{crlf}{crlf}User-agent: *"),
        ("warcinfo", "", f"http-header-user-agent: Foo{crlf}"),
        ("revisit", "http://h.test/robots.txt", f"HTTP/1.1 304 No{crlf}{crlf}"),
    ]
    written = []
    for kind, url, text in records:
        lines = ["WARC/1.0", f"WARC-Type: {kind}", "WARC-Date: 2026-01-02T03:04:05Z"]
        lines += [f"WARC-Target-URI: {url}", f"Content-Length: {len(text)}", "", text, "", ""]
        written.append(crlf.join(lines).encode())
    yield b"\x00\x05" + b"".join(written)
    yield b"\x01\x05" + b"".join(gzip.compress(record, mtime=0) for record in written)
    yield b"\x01\x05" + gzip.compress(b"".join(written), mtime=0)
    yield b"\x02\x05" + b"\xff".join(written)


def logs():
    """Lines of each form of a log."""
    time = "[10/Oct/2000:13:55:36 -0700]"
    yield f'c - - {time} "GET /a HTTP/1.1" 200 1 "-" "Foo/1"\n'.encode()
    yield f'h.test:443 c - - {time} "GET /a HTTP/1.1" 200 1\n'.encode()
    yield b"x [scrapy.core.engine] DEBUG: Crawled (200) <GET https://h.test/a> (referer: None)\n"
    yield b"{'USER_AGENT': 'Foo'}\nDEBUG: Redirecting (301) to <GET http://h/b> from <GET http://h/a>\n"
    start = "20240102030405678+321"
    line = f"2024-01-02T03:04:06.000Z 200 1 https://h.test/a L - text/html #1 {start} sha1:A - -\n"
    yield line.encode()


def inputs(target):
    files = [case for case in cases("robots.jsonl") if len(body(case)) < 65536]
    match target:
        case "parse":
            return map(body, files)
        case "matcher":
            return map(question, files + cases("dialects.jsonl"))
        case "decoders":
            return encoded()
        case "user_agent":
            return (case["header"].encode() for case in cases("user-agent.jsonl"))
        case "metas":
            return map(page, directives())
        case "fields":
            return map(fields, directives())
        case "tdm_file":
            return (
                b'/a\n[{"location": "/a*$", "tdm-reservation": 1, "tdm-policy": "https://h.test/p"}]',
                b'/b\n{"location": "/", "tdm-reservation": "0"}',
            )
        case "readings":
            return spellings()
        case "archives":
            return archives()
        case "logs":
            return logs()
    return ()


target, folder = sys.argv[1:]
for number, seed in enumerate(inputs(target)):
    pathlib.Path(folder, f"{number:04}").write_bytes(seed)
