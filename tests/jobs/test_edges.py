"""The grid at its edges: more columns than fit, clocks that are wrong, and what its options change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.jobs.settings import TrunkSettings
from bot.pages.grid import grid_view
from tests.console.test_messages import ootbot
from tests.harness import START, UPSTREAM
from tests.jobs.branch import COMMITS, deliver, iso, job, push, repository
from tests.jobs.test_hud import API, HUD
from tests.pages.page_checks import page_text
from tests.serving import SQLITE


@pytest.fixture
def chosen():
    """The options of the grid; `options` gives others."""
    return {}


@pytest.fixture
def settings(settings, chosen):
    return replace(settings, of_features={**settings.of_features, TrunkSettings: TrunkSettings(**chosen)})


def options(**values):
    return pytest.mark.parametrize("chosen", [values], ids=["chosen"])


async def names(bot):
    return [column["name"] for column in (await bot.get(API))[1]["columns"]]


@SQLITE
async def test_more_columns_than_fit_are_counted_with_a_way_to_fewer(bot):
    most = grid_view.COLUMNS_MOST
    await bot.send(*push(bot, "A"))
    for number in range(most + 5):
        await bot.send(*job(bot, f"test_{number:04}", "A", "failure" if number < 2 else "success"))
    await bot.settle()
    page = (await bot.get(f"{HUD}?groups=0"))[1]
    assert page.count("<bdi title=") <= most + 1  # of the header
    text = await page_text(bot, f"{HUD}?groups=0")
    assert "5 more columns are not shown" in text
    assert "only=failing" in page
    folded = (await bot.get(HUD))[1]
    assert "more columns are not shown" not in folded  # what is green is folded
    assert len((await bot.get(API))[1]["columns"]) == most + 5


@SQLITE
async def test_a_job_that_ended_before_it_began_took_no_time(bot):
    event, body = job(bot, "build", "A")
    body["workflow_job"]["completed_at"] = iso(START - 3_600_000)
    await deliver(bot, push(bot, "A"), (event, body))
    await bot.wait(60)
    (one,) = (await bot.get(f"/api/ci/reliability/{UPSTREAM}"))[1]["jobs"]
    assert (one["runs"], one["job_seconds"]) == (1, 0)
    (day,) = [day for day in (await bot.get(f"/api/ci/metrics/{UPSTREAM}?days=7"))[1]["days"] if day["lines"]]
    assert day["green"] == 1
    assert (await bot.get(f"/{UPSTREAM}/queue"))[0] == 200


def check_run(bot, commit, name="build (linux)", *, app="other-ci"):
    body = {
        "id": 4_000, "name": name, "head_sha": COMMITS[commit], "status": "completed", "conclusion": "failure",
        "app": {"id": 99, "slug": app}, "started_at": iso(START), "completed_at": iso(START),
    }  # fmt: skip
    return ("check_run", {"action": "completed", "repository": repository(bot), "check_run": body})


@SQLITE
@options(ci_checks="on")
async def test_checks_of_other_apps_are_columns_on_request(bot):
    await deliver(bot, push(bot, "A"), job(bot, "lint", "A"), check_run(bot, "A"))
    body = (await bot.get(API))[1]
    assert [(column["name"], column["group"], column["blocking"]) for column in body["columns"]] == [
        ("pull / lint", "Lint", True), ("checks / other-ci / build (linux)", "Checks", False),
    ]  # fmt: skip
    assert body["lines"][0]["cells"]["1"]["c"] == "X"
    assert body["lines"][0]["verdict"] == "green"


@SQLITE
async def test_without_the_request_they_are_not(bot):
    await deliver(bot, push(bot, "A"), job(bot, "lint", "A"), check_run(bot, "A"))
    assert await names(bot) == ["pull / lint"]


@SQLITE
@options(ci_aliases=((r"\blf\.", ""), (r"linux-(\w+)-v1", r"linux-\1")))
async def test_a_renamed_job_keeps_its_column(bot):
    await deliver(bot, push(bot, "A"), push(bot, "B", parent="A", at=1), push(bot, "C", parent="B", at=2),
               job(bot, "linux-test-v1", "A", "failure"), job(bot, "lf.linux-test", "B", "failure"),
               job(bot, "linux-test", "C", "failure"))  # fmt: skip
    assert await names(bot) == ["pull / linux-test"]
    assert [line["cells"]["0"]["c"] for line in (await bot.get(API))[1]["lines"]] == ["X", "X", "X"]
    assert f"pull / linux-test since {COMMITS['A'][:8]}"[:25] in await page_text(bot, HUD)


@SQLITE
@options(ci_blocking=("/ lint$", "^backends / npu"))
async def test_only_what_is_named_blocks(bot):
    await deliver(bot, push(bot, "A"), push(bot, "B", parent="A", at=1), job(bot, "lint", "A"),
               job(bot, "build", "A", "failure"), job(bot, "lint", "B", "failure"), job(bot, "build", "B"))  # fmt: skip
    body = (await bot.get(API))[1]
    assert {column["name"]: column["blocking"] for column in body["columns"]} == {
        "pull / lint": True, "pull / build": False,
    }  # fmt: skip
    assert [line["verdict"] for line in body["lines"]] == ["red", "green"]
    assert (await bot.get(f"/api/ci/{UPSTREAM}/last-good"))[1]["sha"] == COMMITS["A"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("CI_GROUPS", '{"GPU": "(?=gpu)"}', "(?=gpu)"),
        ("CI_RUNNERS", '{"(a": "b"}', "(a"),
        ("CI_ALIASES", '{"(a": "b"}', "(a"),
        ("CI_ALIASES", '{"a": "\\\\2"}', "names group 2"),
        ("CI_BLOCKING", r"ok,(\w)\1", r"(\\w)\\1"),
        ("CI_BLOCKING", "x" * 501, "too long"),
    ],
)
async def test_a_pattern_that_cannot_be_used_is_named_at_start(tmp_path, name, value, words):
    code, said = await ootbot(tmp_path, "serve", **{name: value})
    assert code == 2
    line = next(line for line in said.splitlines() if f"OOTBOT_{name} is wrong" in line)
    assert words in line
