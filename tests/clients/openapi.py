"""Checks answers of the API by its OpenAPI document.

Usage: openapi.py DOCUMENT. Standard input has one JSON object a line: `method`,
`path` as the document has it, `status`, `type` and `body` of an answer; for an
event of a stream `event` as well, with its data as the body. Prints what is wrong,
a line each, and ends with 1 if anything is: the document itself, one of its
examples, an answer, or an operation without an answer of 200.
"""

import json
import sys

from jsonschema import Draft202012Validator, FormatChecker
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

with open(sys.argv[1], encoding="utf-8") as file:
    document = json.load(file)
resource = Resource.from_contents(document, default_specification=DRAFT202012)
registry = Registry().with_resource("urn:document", resource)
wrong = [f"the document: {error.message}" for error in OpenAPIV31SpecValidator(document).iter_errors()]


def resolved(value):
    """Follows a reference within the document."""
    while "$ref" in value:
        target = document
        for name in value["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        value = target
    return value


def check(where, schema, value):
    """Adds what is wrong with a value to the list."""
    absolute = json.loads(json.dumps(schema).replace('"#/', '"urn:document#/'))
    validator = Draft202012Validator(absolute, registry=registry, format_checker=FormatChecker())
    for error in validator.iter_errors(value):
        wrong.append(f"{where}: {error.json_path}: {error.message[:500]}")


def check_examples(where, value):
    """Checks each example below a value of the document by the schema beside it."""
    if isinstance(value, list):
        for entry in value:
            check_examples(where, entry)
    elif isinstance(value, dict):
        if "example" in value and "schema" in value:
            check(f"{where}, example", value["schema"], value["example"])
        for name, entry in value.items():
            check_examples(f"{where}/{name}", entry)


def check_answer(answer):
    """Checks an answer by what the document has for its operation and status."""
    where = f"{answer['method']} {answer['path']} {answer['status']}"
    operation = document["paths"].get(answer["path"], {}).get(answer["method"].lower())
    if operation is None:
        return wrong.append(f"{where}: the document has no such operation")
    response = operation["responses"].get(str(answer["status"]))
    if response is None:
        return wrong.append(f"{where}: the document has no such status: {answer['body'][:200]}")
    media_type = answer["type"].split(";")[0].strip()
    content = resolved(response)["content"].get(media_type)
    if content is None:
        return wrong.append(f"{where}: the document has no {media_type} there")
    if "event" in answer:
        check(f"{where}, event", content["x-event-data"][answer["event"]], json.loads(answer["body"]))
    elif media_type == "application/json":
        check(where, content["schema"], json.loads(answer["body"]))


check_examples("", document["paths"])
answers = [json.loads(line) for line in sys.stdin]
for answer in answers:
    check_answer(answer)
answered = {(answer["path"], answer["method"].lower()) for answer in answers if answer["status"] == 200}
for path, operations in document["paths"].items():
    for method in operations:
        if (path, method) not in answered:
            wrong.append(f"{method.upper()} {path}: no answer of 200 was checked")
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
