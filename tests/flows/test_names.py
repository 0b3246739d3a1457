"""Every job is itself, whatever it is called: a row, a check run, a line of JSON and of the page."""

from __future__ import annotations

import html
import itertools
from pathlib import Path

from tests.harness import L3, UPSTREAM, report_body
from tests.serving import SQLITE

NAMES = [
    "build:cuda",
    "build/cuda",
    "a / b",
    "a  b",
    "测试 🚀",
    "x" * 300 + "1",
    "x" * 300 + "2",
    "<b>&amp;",
    "null",
]
IDS = ["8d0c4c1e-7b1f-4a52-9d2e-0d6f2b9c41aa", "900:1"]


@SQLITE
async def test_strange_names_and_ids_are_checks_of_their_own_and_come_back_as_they_were(bot, github):
    path = Path(bot.context.settings.allowlist)
    path.write_text(f"L3: {{npu: {{repo: {L3}, checks: jobs}}}}")
    await bot.wait(61)
    pull = await github.open_pull(UPSTREAM)
    await github.label(pull, "ciflow/oot/npu")
    await bot.settle()
    told = list(itertools.product(NAMES, IDS))
    for number, (name, run_id) in enumerate(told):
        body = report_body(
            bot.dispatch(L3), status="in_progress", conclusion=None, job=name, run_id=run_id, attempt=1
        )
        body["workflow"] |= {"name": f"w/{name}"[:300], "check_run_id": f"{run_id}/{number}"}
        headers = {"Authorization": f"Bearer {bot.issuer.mint(repository=L3, run_id=run_id)}"}
        status, answer = await bot.request("POST", "/api/oot/callback", json=body, headers=headers)
        assert (status, answer["status"]) == (200, "in_progress")
    await bot.wait(60)
    checks = bot.checks(UPSTREAM, pull.head_sha)
    running = [name for name, (status, _, _) in checks.items() if status == "in_progress" and "/ w" in name]
    assert len(running) == len(told)
    assert {conclusion for _, conclusion, _ in checks.values()} == {None}
    _, answer = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    shown = {(row["job_name"], row["run_id"], row["check_run_id"]) for row in answer["jobs"]}
    assert shown == {(name, run_id, f"{run_id}/{number}") for number, (name, run_id) in enumerate(told)}
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    for name in ("build:cuda", "build/cuda", "测试 🚀", "<b>&amp;"):
        assert html.escape(name) in page
