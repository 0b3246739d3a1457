"""Does a pull request's page say what the gate says? In words, and whatever backends do that nobody waits for."""

import re

from tests.agreement import counts_of_page, gate_of_page, mark_of_page
from tests.harness import ALLOWLIST, L2, L3, L4, UPSTREAM
from tests.pages.page_checks import page_text
from tests.serving import SQLITE

pytestmark = SQLITE
LATE = 24 * 3600 + 61  # seconds until a silent backend counts as never started
TESTS = {"test_results": {"passed": 7, "failed": 2, "skipped": 0}}


async def finish(bot, github, repo, conclusion="success", **said):
    run = await github.start_run(repo, event="repository_dispatch", name="CI")
    await bot.report(bot.dispatch(repo), conclusion=conclusion, run_id=str(run.id), **said)
    await github.finish_run(run, conclusion)
    await bot.settle()


async def seen(bot, pull, sha=""):
    """The page, and the JSON behind it."""
    query = f"?sha={sha}" if sha else ""
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}{query}")
    _, answer = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}{query}")
    return page, answer


async def test_a_backend_nobody_waits_for_turns_no_commit_red(bot, github, pull):
    await bot.list_backends(ALLOWLIST.replace(f'{{{L2}: "alice, bob"}}', f"{{repo: {L2}, answers: all}}"))
    await github.push_commit(pull)
    await bot.settle()
    await finish(bot, github, L4)
    await bot.wait(LATE)
    page, answer = await seen(bot, pull)
    assert gate_of_page(page) == ("passed", "backends allow it: 1 of 1 blocking backend passed")
    assert mark_of_page(page) == "good"
    counts = counts_of_page(page)
    assert counts["blocking"] == {"passed": 1}
    assert counts["watching"]["never started"] == 2
    assert [head["gate"] for head in answer["heads"] if head["current"]] == ["passed"]
    assert {one["repo"]: one["role"] for one in answer["backends"]} == {
        L4: "blocking", L3: "watching", L2: "watching",
    }  # fmt: skip


async def test_it_says_for_whom_it_waits_and_how_long(bot, github, pull):
    bot.clock.advance(720)
    page, answer = await seen(bot, pull)
    assert gate_of_page(page) == ("waiting", "waiting for tpu")
    assert "waiting for tpu 12 min oot / gate" in await page_text(bot, f"/{UPSTREAM}/pull/{pull.number}")
    assert answer["gate"]["waiting_since"] == next(
        one["dispatched_at"] for one in answer["backends"] if one["repo"] == L4
    )
    check = answer["gate"]["check_run_id"]
    assert f'href="{github.url}/{UPSTREAM}/runs/{check}"' in page
    assert (await bot.http.get(f"{github.url}/{UPSTREAM}/runs/{check}")).status == 200


async def test_it_says_by_whom_and_by_what_it_is_blocked(bot, github, pull):
    await finish(bot, github, L4, "failure", **TESTS)
    page, answer = await seen(bot, pull)
    assert gate_of_page(page) == ("failed", "blocked by tpu: 2 failures")
    assert answer["gate"] == answer["gate"] | {
        "name": "oot / gate", "state": "failed", "title": "tpu failed", "blocking": 1, "passed": 0, "ignored": 0,
        "pull_number": pull.number, "waiting_since": None,
    }  # fmt: skip
    bot.clock.advance(1)
    await github.comment(pull, "/oot ignore tpu the lab moves", by="alice")
    await bot.settle(horizon=60)
    page, answer = await seen(bot, pull)
    assert gate_of_page(page) == ("passed", "backends allow it: 1 blocking backend ignored")
    assert answer["gate"]["ignored"] == 1


async def test_it_says_that_upstreams_own_failures_are_not_judged(bot, github, pull):
    await finish(bot, github, L4)
    run = await github.start_run(UPSTREAM, event="pull_request", name="lint", head_sha=pull.head_sha)
    await github.finish_job(await github.start_job(run, "lint"), "failure")
    await github.finish_run(run, "failure")
    await bot.settle()
    page, _ = await seen(bot, pull)
    assert gate_of_page(page) == ("passed", "backends allow it: 1 of 1 blocking backend passed")
    banner = await page_text(bot, f"/{UPSTREAM}/pull/{pull.number}")
    assert "not judged here: upstream's own CI , 0 of 1 passed, 1 failed" in banner
    await bot.report(bot.dispatch(L3), conclusion="failure")
    await github.label(pull, "ciflow/oot/npu")
    await bot.settle(horizon=60)
    said = github.comments(pull)[-1].body.splitlines()
    assert said[2] == "**✅ backends allow it: 1 of 1 blocking backend passed · `npu`: 1 failure**"
    assert said[4].endswith("upstream's own checks are not judged here")


async def test_failures_that_are_new_with_the_change_are_called_new(bot, github):
    (bot.context.settings.data_dir / "allowlist.yml").write_text(
        f"L4:\n  tpu: {{{L4}: {{events: [pull_request, push]}}}}\n"
    )
    bot.clock.advance(600)
    await bot.wait(600)
    await github.push(UPSTREAM, "main", message="before")
    await bot.settle()
    await bot.report(bot.dispatch(L4), run_id="77")
    bot.clock.advance(60)
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    await finish(bot, github, L4, "failure", **TESTS)
    page, answer = await seen(bot, pull)
    assert gate_of_page(page) == ("failed", "blocked by tpu: 2 new failures")
    assert answer["gate"]["sentence"] == "blocked by tpu: 2 new failures"


async def test_older_commits_keep_their_marks_and_do_not_say_can_merge(bot, github, pull):
    first = pull.head_sha
    await finish(bot, github, L4)
    bot.clock.advance(60)
    await github.push_commit(pull)
    await bot.settle()
    page, _ = await seen(bot, pull, first)
    assert gate_of_page(page) == ("passed", "passed: 1 of 1 blocking backend passed")
    assert re.findall(r'<span class="sign (\w+)" aria-hidden="true">.</span><span class="mono">', page) == [
        "wait",
        "good",
    ]


async def test_where_nobody_blocks_no_commit_is_marked(bot, github):
    (bot.context.settings.data_dir / "allowlist.yml").write_text(f"L2: [{L2}]\n")
    bot.clock.advance(600)
    await bot.wait(600)
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    await bot.report(bot.dispatch(L2), conclusion="failure")
    page, answer = await seen(bot, pull)
    assert (gate_of_page(page), mark_of_page(page), answer["gate"]) == (None, "idle", None)
    assert counts_of_page(page) == {"watching": {"failed": 1}}
