"""Groups of the grid's columns, chosen for all repositories or for one."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from bot.jobs import feature
from bot.jobs import settings as groups_of_columns
from bot.jobs.settings import TrunkSettings
from bot.ops.doctor import AppUnderTest, Target
from tests.console.test_messages import ootbot
from tests.harness import L2, SECRET, UPSTREAM
from tests.jobs.branch import deliver, job, push
from tests.jobs.test_hud import API
from tests.serving import SQLITE

JOBS = ("lint", "linux / build", "npu smoke", "eager")


@pytest.fixture
def chosen():
    """The groups, as they are written."""
    return "{}"


@pytest.fixture
def settings(settings, chosen):
    made = TrunkSettings(ci_groups=groups_of_columns.read_groups(chosen))
    return replace(settings, of_features={**settings.of_features, TrunkSettings: made})


async def groups(bot):
    """The groups with their jobs, in the order of the grid."""
    await deliver(bot, push(bot, "A"), *(job(bot, name, "A") for name in JOBS))
    found = {}
    for column in (await bot.get(API))[1]["columns"]:
        found.setdefault(column["group"], []).append(column["name"].removeprefix("pull / "))
    return list(found.items())


SHIPPED = [("Lint", ["lint"]), ("Build", ["linux / build"]), ("GPU", ["npu smoke"]), ("other", ["eager"])]


@SQLITE
@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ('{"Mine": "eager|lint"}', [("Mine", ["eager", "lint"]), ("other", ["linux / build", "npu smoke"])]),
        (f'{{"{UPSTREAM.upper()}": {{"Modes": "eager"}}}}', [("Modes", ["eager"]), *SHIPPED[:3]]),
        ('{"other/project": {"Modes": "eager"}}', SHIPPED),
        (
            f'{{"All": "build|eager", "Named": "lint", "{UPSTREAM}": {{"Modes": "eager", "Named": "npu"}}}}',
            [("Modes", ["eager"]), ("Named", ["npu smoke"]), ("All", ["linux / build"]), ("other", ["lint"])],
        ),
        (f'{{"CPU/GPU": "npu", "{UPSTREAM}": {{}}}}', [("CPU/GPU", ["npu smoke"]),
                                                      ("other", ["eager", "lint", "linux / build"])]),
    ],
    ids=["for all", "for one, beside the shipped ones", "for another one", "both", "a name with a slash"],
)  # fmt: skip
async def test_a_repository_may_have_groups_of_its_own(bot, expected):
    assert await groups(bot) == expected


async def test_groups_are_tables_of_the_settings_file(tmp_path):
    file = tmp_path / "ootbot.toml"
    file.write_text('[ci_groups]\nMine = "lint"\n\n[ci_groups."org/npu"]\nModes = "ea(ger"\n')
    for command in ("serve", "doctor"):
        code, said = await ootbot(tmp_path, command, "--config", str(file))
        assert code == (2 if command == "serve" else 1)
        line = next(line for line in said.splitlines() if "ci_groups is wrong" in line)
        assert re.search(r"group Modes of org/npu: 'ea\(ger' is no pattern", line)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('{"GPU": "(?=gpu)"}', "group GPU: '(?=gpu)' is no pattern"),
        ('{"npu": {"GPU": "gpu"}}', "'npu' is no repository: write owner/name"),
        ('{"a/b": {"x": "x"}, "A/B": {"y": "y"}}', "A/B is there twice"),
        ('{"a/b": 5}', "write a table"),
        ('{"a/b": {"x": {"y": "z"}}}', "write a table"),
        (json.dumps({"a/b": dict.fromkeys(map(str, range(201)), "x")}), "at most 200"),
    ],
)
async def test_what_cannot_be_used_is_named_at_start(tmp_path, value, words):
    code, said = await ootbot(tmp_path, "serve", CI_GROUPS=value)
    assert code == 2
    assert words in next(line for line in said.splitlines() if "OOTBOT_CI_GROUPS is wrong" in line)


@SQLITE
@pytest.mark.parametrize("chosen", [json.dumps({name: {"x": "y"} for name in ("org/typo", UPSTREAM, L2)})])
async def test_doctor_names_repositories_that_nobody_hears_of(bot):
    context = bot.context
    app = AppUnderTest(role="one", github=context.github, secret=SECRET)
    target = Target(
        settings=context.settings, store=context.store, http=context.http, clock=context.clock, apps=(app,)
    )
    (found,) = await feature.check_groups(target)
    assert (found.status, found.detail) == ("warning", "no event comes from org/typo")
