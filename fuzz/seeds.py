#!/usr/bin/env python3
"""Writes the cases of tests/cases as inputs of a fuzz target, one file each.

    fuzz/seeds.py TARGET FOLDER
"""

import base64
import json
import pathlib
import sys

CASES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "cases"


def cases(name):
    with open(CASES / name, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def body(case):
    if "robots_b64" in case:
        return base64.b64decode(case["robots_b64"])
    return case["robots"].encode()


def question(case):
    """What `Question::from_text` reads, behind the mark of a written question."""
    path = case["url"].removeprefix("https://h.example").split("#")[0]
    return b"=%s\n%s\n%s" % (case["agent"].encode(), path.encode(), body(case))


def page(case):
    """A page of a case, behind the octet that says where it is cut."""
    return b"0" + (case["body"] or "").encode()[:4096]


def fields(case):
    """The field lines of a case; their first octets choose the names."""
    names = {"robots-tag": b"0", "x-robots-tag": b"1"}
    lines = ((names.get(name.lower()), value) for name, value in case["headers"])
    lines = (first + value.encode("latin-1") for first, value in lines if first)
    return b"\n".join(lines)


def inputs(target):
    files = [case for case in cases("robots.jsonl") if len(body(case)) < 65536]
    match target:
        case "parse":
            return map(body, files)
        case "matcher":
            return map(question, files + cases("dialects.jsonl"))
        case "user_agent":
            return (case["header"].encode() for case in cases("user-agent.jsonl"))
        case "metas":
            return map(page, cases("directives.jsonl"))
        case "fields":
            return map(fields, cases("directives.jsonl"))
    return ()


target, folder = sys.argv[1:]
for number, octets in enumerate(inputs(target)):
    pathlib.Path(folder, f"{number:04}").write_bytes(octets)
