"""docs/migrate-from-crcr.md against the program: options of the preset, the allowlist's form, addresses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bot.core import files
from tests.harness import L2
from tests.serving import SQLITE

pytestmark = pytest.mark.logic

PAGE = (Path(__file__).parents[2] / "docs" / "migrate-from-crcr.md").read_text()
TABLE = PAGE.partition("## Today and here")[2].partition("## Order of steps")[0]


def test_every_option_of_the_preset_has_a_line_and_no_other_has():
    by = re.findall(r"\| (?:`([A-Z_]+)`|always) \|$", TABLE, re.MULTILINE)
    assert {name for name in by if name} == {name.upper() for name in files.read_presets()["crcr"]}


@SQLITE
@pytest.mark.parametrize("preset", ["crcr", None])
async def test_what_is_said_to_hold_always_does_without_the_preset(bot, preset):
    for path in ("/crcr", f"/crcr/{L2}", "/api/crcr/allowlist"):
        assert (await bot.get(path))[0] == 200
    for path in ("/api/crcr/results", "/crcr/results", "/api/oot/results"):
        status, answer = await bot.request("POST", path, data="{}")
        assert (status, answer["error"]) == (404, "not_found")  # closed, as RELAY_TOKEN is not set
