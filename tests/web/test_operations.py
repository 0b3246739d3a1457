"""Are the operations still those that clients rely on, and does a common generator make a client of them that works?"""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from bot.app import operations
from bot.features import FEATURES
from bot.web.openapi_document import OPERATION, document
from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE

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


USES = """
import importlib, json, pkgutil, sys

sys.path.insert(0, sys.argv[1])
import ootbot_client
from ootbot_client.api.results import pull_request, summary
from ootbot_client.models import Error

names = [each.name for each in pkgutil.walk_packages(ootbot_client.__path__, "ootbot_client.")]
for name in names:
    importlib.import_module(name)
client = ootbot_client.Client(base_url=sys.argv[2])
found = summary.sync(client=client, days=7)
one = pull_request.sync("pytorch", "pytorch", 1, client=client)
none = pull_request.sync("pytorch", "pytorch", 2, client=client)
print(json.dumps([len(names), found.to_dict(), one.to_dict(), isinstance(none, Error) and none.error]))
"""


@pytest.mark.logic
@SQLITE
async def test_a_generated_client_imports_and_reads_what_the_bot_answers(bot, github, tmp_path):
    await github.open_pull(UPSTREAM, title="Add a kernel")
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure", failed_tests=[{"name": "test_add"}])
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps((await bot.get("/api/openapi.json"))[1]))
    quiet = tmp_path / "config.json"
    quiet.write_text(json.dumps({"post_hooks": []}))
    client = tmp_path / "client"
    told = await run(
        "-m", "openapi_python_client", "generate", "--path", document, "--config", quiet,
        "--output-path", client, "--fail-on-warning",
    )  # fmt: skip
    assert "arning" not in told
    modules, found, one, missing = json.loads(await run("-c", USES, client, bot.url))
    assert modules > 100
    assert numbers(found) == numbers((await bot.get("/api/oot/summary?days=7"))[1])
    assert (one["pull"]["title"], one["backends"][0]["state"]) == ("Add a kernel", "failure")
    assert one["jobs"][0]["failed_tests_json"][0]["name"] == "test_add"
    assert missing == "unknown_pull_request"


def numbers(summary):
    """Each backend of an answer, but for its times: a client writes them its own way."""
    return [{name: value for name, value in one.items() if name != "last_at"} for one in summary["backends"]]


async def run(*arguments):
    """Run Python with these arguments; returns what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *map(str, arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
    return printed.decode()
