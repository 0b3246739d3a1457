"""Are the operations still those that clients rely on? openapi_operations.json lists what was agreed on."""

import json
from pathlib import Path

from bot.app import operations
from bot.features import FEATURES
from bot.web.openapi_document import OPERATION, document

DOCUMENT = document("http://127.0.0.1:8080", [*operations(FEATURES), OPERATION])
AGREED = Path(__file__).with_name("openapi_operations.json")


def agreed(path, method, operation):
    """What clients rely on of one operation."""
    answers = {}
    for status, answer in sorted(operation["responses"].items()):
        (content,) = answer["content"].values()
        answers[status] = sorted(content["schema"].get("properties", {}).get("error", {}).get("enum", []))
    return {
        "operation": f"{method} {path}",
        "name": operation["operationId"],
        "tags": operation["tags"],
        "parameters": {
            f"{one['in']} {one['name']}": "required" if one.get("required") else "optional"
            for one in operation.get("parameters", [])
        },
        "body": operation.get("requestBody", {}).get("required", False),
        "security": operation["security"],
        "answers": answers,
    }


def test_operations_are_those_agreed_on():
    told = [
        agreed(path, method, operation)
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    ]
    assert sorted(told, key=lambda one: one["operation"]) == json.loads(AGREED.read_text())


def parts(value):
    """Everything in a document."""
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(inner)


def test_generators_of_clients_find_nothing_they_refuse():
    """What they make, and that it works, is looked at in test_generated_client.py."""
    assert all(schema["description"] for schema in DOCUMENT["components"]["schemas"].values())
    for part in parts(DOCUMENT):
        if isinstance(part, dict):
            assert not isinstance(part.get("const"), bool)
            assert part.get("items") is not False
            assert len({type(one) for one in part.get("enum", ()) if isinstance(part["enum"], list)}) < 2, (
                part
            )
