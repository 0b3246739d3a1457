"""A device's label asks for its check run: whenever it is added, removed and added again, on every head."""

from __future__ import annotations

import itertools

import pytest

from bot.demo.github import payloads
from bot.oot.publish.desired_checks import LABEL_GONE
from tests.harness import L2, L3, L4, UPSTREAM
from tests.serving import SQLITE

TWO_DEVICES = f"""
L3:
  npu: {{{L3}: {{oncalls: [carol], answers: all}}}}
  fpga: {{{L2}: {{oncalls: [bob], answers: all}}}}
L4: [{{{L4}: [dave]}}]
"""
SHOWN = "ciflow/oot/npu"


def npu(bot, sha):
    found = bot.checks(UPSTREAM, sha).get("oot / npu")
    return found and found[:2]


async def report(bot, github, step):
    if step == "begin":
        await bot.report(bot.dispatch(L3), status="in_progress")
    elif step == "end":
        await bot.report(bot.dispatch(L3), conclusion="success")


@SQLITE
@pytest.mark.parametrize("prefix", ["ciflow/oot/", "ciflow/crcr/"])
@pytest.mark.parametrize("at", [0, 1, 2, 3])
async def test_it_may_come_before_during_or_after_the_run(bot, github, prefix, at):
    pull = await github.open_pull(UPSTREAM, labels=[f"{prefix}npu"] if at == 0 else [])
    await bot.settle()
    for moment, step in enumerate(("begin", "end"), start=1):
        if at == moment:
            await github.label(pull, f"{prefix}npu")
        await report(bot, github, step)
        await bot.settle()
    if at == 3:
        await bot.wait(3 * 24 * 3600)
        assert npu(bot, pull.head_sha) is None
        await github.label(pull, f"{prefix}npu")
    await bot.settle(horizon=20)
    assert npu(bot, pull.head_sha) == ("completed", "success")


@pytest.mark.logic
async def test_the_case_a_label_was_created_in_makes_no_difference(bot, github):
    pull = await github.open_pull(UPSTREAM, labels=["CIFlow/OOT/NPU"])
    await bot.settle()
    await report(bot, github, "end")
    await bot.settle(horizon=20)
    assert npu(bot, pull.head_sha) == ("completed", "success")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "order", sorted(set(itertools.permutations(("begin", "end", "on", "off", "on"))))[::3]
)
async def test_in_the_end_only_what_is_on_counts(bot, github, order):
    """A report of the beginning that comes last is refused, as always: the verdict is the same."""
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    for step in order:
        bot.clock.advance(2)
        if step == "on":
            await github.label(pull, SHOWN)
        elif step == "off":
            await github.unlabel(pull, SHOWN)
        else:
            await report(bot, github, step)
        await bot.settle()
    bot.clock.advance(2)
    await github.label(pull, SHOWN)
    await bot.settle(horizon=30)
    assert npu(bot, pull.head_sha) == ("completed", "success")
    made = [run for run in github.check_runs_all(UPSTREAM, pull.head_sha) if run.name == "oot / npu"]
    assert len(made) == 1


@pytest.mark.logic
async def test_two_devices_are_shown_apart(bot, github):
    (bot.context.settings.data_dir / "allowlist.yml").write_text(TWO_DEVICES)
    bot.clock.advance(60)
    await bot.settle()
    pull = await github.open_pull(UPSTREAM, labels=["ciflow/oot/fpga"])
    await bot.settle()
    shown = set(bot.checks(UPSTREAM, pull.head_sha)) - {"oot / gate"}
    assert shown == {"oot / fpga", f"oot / {L4}"}
    bot.clock.advance(5)
    await github.label(pull, SHOWN)
    await github.unlabel(pull, "ciflow/oot/fpga")
    await bot.settle(horizon=20)
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / fpga"][:2] == ("completed", "neutral")
    assert checks["oot / npu"][:2] == ("queued", None)


@pytest.mark.logic
async def test_a_label_of_another_devices_name_shows_nothing(bot, github):
    pull = await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu2", "ciflow/npu", "npu"])
    await bot.settle()
    assert npu(bot, pull.head_sha) is None


@pytest.mark.logic
async def test_a_reopened_pull_request_and_a_new_head_show_it_again(bot, github):
    pull = await github.open_pull(UPSTREAM, labels=[SHOWN])
    await bot.settle()
    await bot.report(bot.dispatch(L3), run_id="1", conclusion="cancelled")
    await bot.settle()
    first = pull.head_sha
    bot.clock.advance(60)
    await github.close(pull)
    await bot.settle()
    bot.clock.advance(60)
    await github.reopen(pull)
    await bot.settle(horizon=20)
    assert npu(bot, first) == ("queued", None)
    await bot.report(bot.dispatch(L3), conclusion="failure", run_id="2")
    await bot.settle()
    assert npu(bot, first) == ("completed", "neutral")
    bot.clock.advance(60)
    second = await github.push_commit(pull)
    await bot.settle(horizon=20)
    assert npu(bot, second) == ("queued", None)
    assert npu(bot, first) == ("completed", "neutral")


@pytest.mark.logic
async def test_a_label_that_went_before_the_new_head_is_not_shown_on_it(bot, github):
    pull = await github.open_pull(UPSTREAM, labels=[SHOWN])
    await bot.settle()
    bot.clock.advance(60)
    await github.unlabel(pull, SHOWN)
    head = await github.push_commit(pull)
    await bot.settle(horizon=20)
    assert npu(bot, head) is None


@pytest.mark.logic
async def test_a_label_shows_nothing_new_on_heads_that_were_overtaken(bot, github):
    pull = await github.open_pull(UPSTREAM)
    heads = [pull.head_sha]
    for _ in range(3):
        await bot.settle(horizon=20)
        bot.clock.advance(60)
        heads.append(await github.push_commit(pull))
    await bot.settle(horizon=20)
    bot.clock.advance(60)
    await github.label(pull, SHOWN)
    await bot.settle(horizon=20)
    assert [npu(bot, sha) for sha in heads] == [None, None, None, ("queued", None)]


@pytest.mark.logic
async def test_what_was_shown_on_an_overtaken_head_is_concluded_and_not_begun_again(bot, github):
    pull = await github.open_pull(UPSTREAM, labels=[SHOWN])
    await bot.settle(horizon=20)
    first, dispatch = pull.head_sha, bot.dispatch(L3)
    await github.push_commit(pull)
    await bot.settle(horizon=20)
    for step in (github.unlabel, github.label):
        bot.clock.advance(60)
        await step(pull, SHOWN)
        await bot.settle(horizon=20)
    assert npu(bot, first) == ("completed", "neutral")
    await bot.report(dispatch, conclusion="failure")
    await bot.settle(horizon=20)
    assert bot.checks(UPSTREAM, first)["oot / npu"][2] == LABEL_GONE
    assert npu(bot, pull.head_sha) == ("queued", None)


@pytest.mark.logic
async def test_an_unfinished_check_of_an_older_run_ends_when_a_newer_one_takes_its_place(bot, github):
    pull = await github.open_pull(UPSTREAM, labels=[SHOWN])
    await bot.settle()
    await bot.report(bot.dispatch(L3), status="in_progress", run_id="1")
    await bot.settle(horizon=20)
    bot.clock.advance(60)
    await github.comment(pull, "/oot run npu", "carol")
    await bot.wait(60)
    made = [run for run in github.check_runs_all(UPSTREAM, pull.head_sha) if run.name == "oot / npu"]
    assert [(run.status, run.conclusion) for run in made] == [("completed", "neutral"), ("queued", None)]


@pytest.mark.logic
async def test_a_level_lowered_below_checks_still_concludes_what_was_begun(bot, github):
    pull = await github.open_pull(UPSTREAM, labels=[SHOWN])
    await bot.settle()
    await bot.report(bot.dispatch(L3), status="in_progress")
    await bot.settle(horizon=20)
    (bot.context.settings.data_dir / "allowlist.yml").write_text(f"L2: [{L3}]")
    bot.clock.advance(60)
    await bot.settle()
    await bot.report(bot.dispatch(L3))
    await bot.settle(horizon=20)
    assert npu(bot, pull.head_sha) == ("completed", "success")
    head = await github.push_commit(pull)
    await bot.settle(horizon=20)
    assert npu(bot, head) is None


# One second of GitHub's clock


@pytest.mark.logic
@pytest.mark.parametrize("last", ["labeled", "unlabeled"])
@pytest.mark.parametrize("swapped", [False, True])
async def test_labels_of_one_second_end_as_github_shows_them(bot, github, last, swapped):
    """Off and on within a second look alike in time: whichever delivery comes last, GitHub is asked."""
    bot.app.webhook_url = None
    pull = await github.open_pull(UPSTREAM)
    bot.app.webhook_url = f"{bot.url}/api/github/webhooks"
    github.state.deliveries.clear()
    opened = pulled(github, pull, "opened")
    await bot.send("pull_request", opened)
    await bot.settle()
    bot.clock.advance(60)
    steps = ["labeled", "unlabeled"] if last == "unlabeled" else ["labeled", "unlabeled", "labeled"]
    bodies = []
    for step in steps:
        change = pull.labels.append if step == "labeled" else pull.labels.remove
        change(SHOWN)
        pull.updated_at = github.state.now()
        bodies.append(pulled(github, pull, step, label={"id": 9, "name": SHOWN}))
    for body in reversed(bodies) if swapped else bodies:
        await bot.send("pull_request", body)
    await bot.settle(horizon=20)
    shown = npu(bot, pull.head_sha)
    assert shown == (("queued", None) if last == "labeled" else None)
    await bot.report(bot.dispatch(L3), conclusion="failure")
    await bot.wait(60)
    assert ["@carol" in one.body for one in github.comments(pull)] == ([True] if last == "labeled" else [])
    if last == "labeled":
        return
    bot.clock.advance(5)
    await github.label(pull, SHOWN)
    await bot.settle(horizon=20)
    assert npu(bot, pull.head_sha) == ("completed", "neutral")


@pytest.mark.logic
async def test_while_nothing_is_in_doubt_github_is_not_asked_for_labels(bot, github):
    pull = await github.open_pull(UPSTREAM)
    for on in (True, False, True):
        bot.clock.advance(2)
        await (github.label if on else github.unlabel)(pull, SHOWN)
        await bot.settle(horizon=20)
    await report(bot, github, "end")
    await bot.settle(horizon=20)
    assert not [call for call in github.calls if call.path.endswith("/labels")]


def pulled(github, pull, action, **extra):
    """The body of a pull_request event as GitHub sends it now."""
    event = payloads.pull_request(github.state, pull, action, "alice", **extra)
    return payloads.envelope(github.state, event, github.state.installed_on(pull.repo)[0])
