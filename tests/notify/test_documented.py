"""docs/notify.md says what the code does: keys, events, the JSON, the headers, the waits."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from bot.core.setting_types import as_text
from bot.notify.receivers import DIGEST, TOLD, Receiver, read_receivers
from bot.notify.sending import BACKOFF, FINAL_STATUSES, WHOLE_TIMEOUT, body_of, sign_notice
from tests.notify.test_formats import notice

PAGE = (Path(__file__).parents[2] / "docs" / "notify.md").read_text()


def section(heading):
    """The part of the page below a heading."""
    return re.search(rf"^##+ {heading}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]


def first_cells(text):
    return re.findall(r"^\| `([a-z_-]+)` \|", text, re.MULTILINE)


def test_every_key_and_event_is_there():
    assert set(first_cells(section("Receivers"))) == set(Receiver.__struct_fields__)
    assert set(first_cells(section("Events"))) == {*TOLD, DIGEST}


def test_the_example_is_valid():
    given = tomllib.loads(re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1])
    assert [one.name for one in read_receivers(as_text(given["notify"]))] == ["npu-team", "dashboard"]


def test_the_json_is_what_is_sent():
    shown = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
    sent = json.loads(
        body_of(
            notice(id=shown["id"], lines=shown["data"]["lines"]),
            kind="json",
            url="https://ootbot.example.org",
        )
    )
    assert sent == shown


def test_headers_and_waits_are_those_of_the_code():
    headers = sign_notice(b"{}", identifier="x", at=1, keys=[b"k" * 24])
    assert set(first_cells(section("Signatures"))) == set(headers)
    waits = section("Delivery")
    assert f"within {WHOLE_TIMEOUT} s" in waits
    assert "5 s, 30 s, 2 min, 5 min, 10 min, 30 min, then every hour" in waits
    assert BACKOFF == (5, 30, 120, 300, 600, 1_800, 3_600)
    assert f"answers {', '.join(map(str, sorted(FINAL_STATUSES)[:-1]))} or {max(FINAL_STATUSES)}" in waits
