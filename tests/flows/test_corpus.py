"""Recorded webhooks of GitHub, sent to the running program and read back."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from tests.harness import SECRET, sign
from tests.process import ADMIN_TOKEN, ROOT, Process, options_for, until

FOLDER = ROOT.parent / "shared" / "corpus" / "webhooks"
FILES = sorted(FOLDER.glob("*.json"))
pytestmark = pytest.mark.skipif(
    not FILES, reason="the corpus of recorded webhooks is not beside this checkout"
)

# event -> the body's member, the column that names it in the API
READ_BACK = {"issues": ("issue", "number"), "pull_request": ("pull_request", "number"),
             "workflow_job": ("workflow_job", "id"), "workflow_run": ("workflow_run", "id"),
             "check_run": ("check_run", "id")}  # fmt: skip
RANK = ["queued", "waiting", "in_progress", "completed"]


@pytest.fixture
async def process(tmp_path, app_key):
    made = Process(tmp_path, **options_for(tmp_path, private_key=app_key))
    ready = await made.start()
    await until(ready.is_set, what="a bot that answers")
    yield made
    made.kill()
    await made.ended()


async def deliver(http, process, file: Path):
    body = file.read_bytes()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": file.name.partition(".")[0],
        "X-GitHub-Delivery": file.stem,
        "X-Hub-Signature-256": sign(body, SECRET),
    }
    async with http.post(f"{process.url}/api/github/webhooks", data=body, headers=headers) as answer:
        return answer.status


async def test_every_recorded_webhook_is_taken_handled_and_given_back(process):
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}) as http:
        statuses = {file.name: await deliver(http, process, file) for file in FILES}
        assert set(statuses.values()) == {202}, statuses
        done = "SELECT guid, event, state, error FROM delivery WHERE state <> 'stored'"  # some may still be spooled
        await until(lambda: len(process.rows(done)) >= len(FILES), what="every delivery to be applied")
        states = process.rows(done)
        assert len(states) == len(FILES)
        assert [row for row in states if row["state"] not in {"handled", "ignored"}] == []
        assert not [row for row in states if row["event"] in READ_BACK and row["state"] != "handled"]
        compared = Counter()
        for (table, repo, identifier), versions in told_of_objects().items():
            address = f"{process.url}/api/records/{table}/{repo}/{identifier}"
            async with http.get(address) as answer:
                assert answer.status == 200, address
                row = await answer.json()
            differing = [differences(row, version) for version in newest(versions)]
            assert {} in differing, (address, differing)
            compared[table] += 1
    assert set(compared) == {member for member, _ in READ_BACK.values()}


def told_of_objects():
    """(table, repository, id) -> every version of that object the corpus holds."""
    found = defaultdict(list)
    for file in FILES:
        event, body = file.name.partition(".")[0], json.loads(file.read_bytes())
        if event in READ_BACK:
            member, name = READ_BACK[event]
            found[member, body["repository"]["full_name"], body[member][name]].append(body[member])
    return found


def newest(versions):
    """The versions that may have the last word: several can be of the same second."""

    def age(version):
        if "updated_at" in version:
            return (version.get("run_attempt", 0), version["updated_at"])
        return (RANK.index(version["status"]), version.get("completed_at") or "")

    last = max(map(age, versions))
    return [version for version in versions if age(version) == last]


def differences(row, version):
    """The top-level scalars that came back otherwise; times are compared as instants."""
    return {
        name: (value, row[name])
        for name, value in version.items()
        if name in row and not isinstance(value, dict | list) and instant(value) != instant(row[name])
    }


def instant(value):
    if not isinstance(value, str) or not value[:4].isdigit():
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return value
    return moment.astimezone(UTC)
