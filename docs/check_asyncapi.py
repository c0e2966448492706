"""Holds asyncapi.yaml against the examples of messages.md.

Says what is wrong, a line each, and exits with 1 if anything is.
Needs the packages of clients/python/requirements-test.txt.
"""

import json
import re
import sys
from pathlib import Path

import jsonschema
import yaml

DOCS = Path(__file__).resolve().parent

# A schema cannot compare two fields, so it accepts these.
DISAGREEMENT = "of the envelope is"


def references(node):
    """Every `$ref` below a node."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def resolve(document, reference):
    """What `#/a/b` leads to; a KeyError if that is nothing."""
    node = document
    for step in reference.removeprefix("#/").split("/"):
        node = node[step]
    return node


def examples():
    """Each example of messages.md: its kind, its value and the reason that follows it."""
    text = (DOCS / "messages.md").read_text(encoding="utf-8")
    pattern = r"^```json *(\w*)\n(.*?)^```\n(?:\nReason: `([^\n]*)`\n)?"
    found = re.findall(pattern, text, re.MULTILINE | re.DOTALL)
    assert len(found) == text.count("```json"), "an example cannot be read"
    return [(kind, json.loads(body), reason) for kind, body, reason in found]


def validator(document, message):
    """Checks payloads of a message. References are resolved in the complete document."""
    payload = document["components"]["messages"][message]["payload"]
    schema = {"components": document["components"], **payload}
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def smaller(value):
    """The message without each of its fields in turn."""
    for field in value:
        yield field, {key: value[key] for key in value if key != field}
    payload = value["payload"]
    for field in payload:
        rest = {key: payload[key] for key in payload if key != field}
        yield f"payload/{field}", {**value, "payload": rest}


def problems(document):
    """Everything that is wrong, a sentence each."""
    if document.get("asyncapi") != "3.0.0":
        yield "asyncapi.yaml is not of version 3.0.0"
    for reference in set(references(document)):
        try:
            resolve(document, reference)
        except KeyError:
            yield f"{reference} leads nowhere"
            return

    messages = document["components"]["messages"]
    by_type = {message["name"]: validator(document, key) for key, message in messages.items()}
    shown = set()
    for kind, value, reason in examples():
        check = by_type.get(value["type"])
        errors = list(check.iter_errors(value)) if check else []
        if kind == "refused":
            if check and not errors and DISAGREEMENT not in reason:
                yield f"an example is accepted that messages.md calls refused: {reason}"
        else:
            shown.add(value["type"])
            if not check:
                yield f"there is no schema of {value['type']}"
            for error in errors:
                yield f"the example {value['id']} is refused: {error.message}"
        if kind == "minimal" and check:
            for field, less in smaller(value):
                if check.is_valid(less):
                    yield f"{field} is required, and the schema does not say so"
    sent = {reference for channel in document["channels"].values() for reference in references(channel)}
    for key in messages:
        if f"#/components/messages/{key}" not in sent:
            yield f"{key} is in no channel"
    for name in sorted(set(by_type) - shown):
        yield f"messages.md has no example of {name}"


def main():
    document = yaml.safe_load((DOCS / "asyncapi.yaml").read_text(encoding="utf-8"))
    found = list(problems(document))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
