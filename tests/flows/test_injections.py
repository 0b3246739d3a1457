"""What do a stranger's words become on the pull request? In through the front doors, looked at where GitHub holds them."""

from __future__ import annotations

import re

import pytest

from bot.oot.publish.comment_text import MARKER
from tests.harness import L3, L4, UPSTREAM
from tests.oot.publish import injections
from tests.oot.publish.rendered import complaints, see

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
KINDS = {"MENTIONS": True, "LINKS": False, "HTML": False, "MARKDOWN": True, "UNSEEN": True, "URLS": False}
ALLOWLIST = f"""
L3: {{npu: {{{L3}: [carol]}}}}
L4:
  tpu: {{repo: {L4}, oncalls: [dave], checks: jobs}}
"""


async def told(bot, github, words, *, by_job):
    """Return a pull request on which everybody has said these words where they can, and how many jobs are called so."""
    if by_job:
        (bot.context.settings.data_dir / "allowlist.yml").write_text(ALLOWLIST)
        await bot.wait(60)
    github.set_permission(UPSTREAM, "wendy", "write")
    # GitHub's own JSON is well formed
    sent = [word for word in words if not re.search("[\ud800-\udfff]", word)]
    reason = {"message": " ".join(sent)[:900]}
    github.faults.add(method="POST", path=f"{L3}/dispatches", status=422, body=reason)
    labels = ["ciflow/oot/npu", *sent[:20]]
    pull = await github.open_pull(UPSTREAM, title=sent[0], body=f"{MARKER}\n{sent[0]}", labels=labels)
    await bot.settle()
    taken = [await report(bot, word) for word in words]
    assert set(taken) <= {200, 400}
    assert taken.count(200) > len(words) / 2
    for word in sent[:8]:
        await github.comment(pull, f"/oot {word}\n/oot status {word}", "mallory")
    await github.comment(pull, f"{MARKER}\n{sent[0]}", "mallory")
    bot.clock.advance(1)
    await github.comment(pull, f"/oot ignore npu {sent[1]}", "wendy")
    await bot.settle(horizon=120)
    return pull, taken.count(200)


async def report(bot, word):
    tests = [
        {"name": word, "classname": word, "file": word, "line": 3, "message": word, "stacktrace": f"{word}\n{word}"},
        {"name": f"test {word}", "file": "src/operator.py", "line": 1, "message": word},
    ]  # fmt: skip
    said = {
        "name": word,
        "url": word,
        "artifact_url": word,
        "environment": {word: word},
        "failed_tests": tests,
    }
    status, _ = await bot.report(bot.dispatch(L4), conclusion="failure", job=word, **said)
    return status


@pytest.mark.parametrize(("kind", "by_job"), KINDS.items())
async def test_a_strangers_words_do_nothing_on_the_pull_request(bot, github, kind, by_job):
    words = getattr(injections, kind)
    pull, jobs = await told(bot, github, words, by_job=by_job)
    (ours,) = [one for one in github.comments(pull) if one.app is not None]
    assert complaints(ours.body, live=frozenset({"carol", "dave"}), comments=1) == []
    assert f"| {jobs} of {jobs} failed |" in ours.body
    assert ours.body.count(MARKER) == 1
    assert see(ours.body).tags.count("tr") == 3
    runs = [run for run in github.check_runs_all(UPSTREAM, pull.head_sha) if run.app is bot.app]
    assert len(runs) > (len(words) / 2 if by_job else 2)
    for run in runs:
        for line in (run.name, run.output.title):
            assert len(line.splitlines()) == 1
            assert not re.search(r"@\w", line)
        for text in (run.output.summary, run.output.text):
            assert complaints(text or "") == [], run.name
        for mark in run.output.annotations:
            assert not re.search(r"@\w", mark["message"] + mark.get("title", ""))
