"""Nightlies are builds: each run has its line, with its times and its link, also where it says no commit."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from tests.harness import L2, L3, UPSTREAM
from tests.interop.client import Client

pytestmark = pytest.mark.logic


def iso(bot, ago):
    return datetime.fromtimestamp(bot.clock.now() // 1000 - ago, UTC).isoformat().replace("+00:00", "Z")


async def build(bot, run_id, conclusion, *, repo=L2, delivery=None, minutes=90, **more):
    """Report on a build that a timer began."""
    step = Client(bot, repo, run_id=run_id, job="all", workflow="Nightly")
    times = {"started_at": iso(bot, minutes * 60), "completed_at": iso(bot, 0)}
    return await step.nightly(delivery or f"buildkite-{run_id}-all", conclusion, **times | more)


def lines(page):
    """Return the first cell and the cell of the job of each line of the grid, in words."""
    grid = page.partition('<table class="grid">')[2].partition("</table>")[0]
    rows = grid.partition("<tbody>")[2].split("<tr>")[1:]
    return [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in rows]


@pytest.mark.parametrize("commit", [None, "a" * 40], ids=["without a commit", "of one commit"])
async def test_the_red_one_of_three_builds_is_seen(bot, commit):
    for run_id, conclusion in (("701", "success"), ("702", "failure"), ("703", "success")):
        await build(bot, run_id, conclusion, delivery=commit)
        bot.clock.advance(86_400)
    await bot.settle()
    _, page = await bot.get(f"/oot/{L2}?tab=nightly")
    found = lines(page)
    assert [re.search(r"build (\d+)", line)[1] for line in found] == ["703", "702", "701"]
    assert ["failed" in line for line in found] == [False, True, False]
    assert "+2" not in page
    for run_id in ("701", "702", "703"):
        assert f'href="https://github.com/{L2}/actions/runs/{run_id}"' in page


async def test_reported_times_are_shown(bot):
    await build(bot, "701", "success")
    await bot.settle()
    _, page = await bot.get(f"/oot/{L2}?tab=nightly")
    latest = page.partition('id="latest"')[2]
    assert "1 h 30 min" in latest


async def test_who_has_nightlies_only_lands_on_them(bot, github):
    await build(bot, "701", "failure")
    await bot.settle()
    status, page = await bot.get(f"/crcr/{L2}?days=7")
    assert status == 200
    assert 'aria-current="true">Nightly' in page
    assert "build 701" in lines(page)[0]
    assert 'aria-current="true">7' in page
    _, page = await bot.get(f"/oot/{L2}?tab=pulls")
    assert 'aria-current="true">Pull requests' in page
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await Client(bot, L2, bot.dispatch(L2).client_payload).ended()
    await bot.settle()
    assert 'aria-current="true">Pull requests' in (await bot.get(f"/oot/{L2}"))[1]


@pytest.mark.parametrize(
    ("asked", "ours"),
    [
        ("/crcr?days=7&level=2", "/oot?days=7&level=2"),
        (f"/crcr/{L2}?tab=nightly&days=7", f"/oot/{L2}?tab=nightly&days=7"),
        ("/crcr/metrics?days=90", "/oot/metrics?days=90"),
    ],
)
async def test_redirects_keep_their_query(bot, asked, ours):
    async with bot.http.get(bot.url + asked, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, ours)
    assert (await bot.get(asked))[0] == 200


async def test_a_build_that_names_anothers_run_is_its_own(bot):
    await build(bot, "701", "success")
    step = Client(bot, L3, run_id="702", job="all", workflow="Nightly")
    fields = step.fields("completed", "failure", {"run_id": "701"})
    body = {
        "event_type": "nightly", "delivery_id": "buildkite-701-all",
        "payload": {"repository": {"full_name": UPSTREAM}}, "workflow": fields,
    }  # fmt: skip
    await step.post(body)  # the run is that of its token
    await bot.settle()
    jobs = {row["downstream_repo"]: row for row in await bot.rows("oot_workflow_job")}
    assert {repo: (row["run_id"], row["conclusion"]) for repo, row in jobs.items()} == {
        L2: ("701", "success"),
        L3: ("702", "failure"),
    }
    assert jobs[L3]["flags"]["run_id_mismatch"]
    assert len(lines((await bot.get(f"/oot/{L2}?tab=nightly"))[1])) == 1
