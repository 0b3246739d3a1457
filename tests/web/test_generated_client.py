"""Does a common generator make a client of the OpenAPI document that imports and works?"""

import asyncio
import json
import sys

import pytest

from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE

pytestmark = [pytest.mark.logic, SQLITE]

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
