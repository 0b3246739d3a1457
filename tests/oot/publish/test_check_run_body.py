"""The body of check runs: as in its snapshot, within GitHub's limits, and inert whatever it quotes."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.oot.publish import check as annotate
from bot.oot.publish.check_text import CheckRun, gate_check
from bot.oot.verdict.gate import judge_gate
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import History
from tests import samples
from tests.oot.publish import injections
from tests.oot.publish.checked import DONE, FAILURE, HELD, RUNNING, check, gate, per_job, red
from tests.oot.publish.heads import HEAD, HUD, backend, failed_test, failing_job, hostile, job
from tests.oot.publish.rendered import complaints, see
from tests.oot.publish.snapshots import snapshot


def test_the_body_carries_what_github_asks_for():
    body = check(red()).body()
    assert body["name"] == "oot / npu"
    assert body["head_sha"] == HEAD
    assert body["external_id"] == "key-1"
    assert body["details_url"] == f"{HUD}/octo/core/pull/7#npu"
    assert body["started_at"] == "2026-09-21T14:13:20Z"
    assert body["completed_at"] == "2026-09-21T14:44:20Z"
    assert set(body["output"]) == {"title", "summary", "text"}


def test_the_body_of_a_queued_check_has_no_empty_fields():
    body = check(backend("npu", state=State.QUEUED, page_url="", dispatched_at=None)).body()
    assert set(body) == {"name", "head_sha", "external_id", "status", "output", "actions"}
    assert set(body["output"]) == {"title", "summary"}


@pytest.mark.parametrize("name", ["red_l4", "red_l3", "never_started", "gate_red", "gate_waiting"])
def test_a_check_run_reads_as_in_its_snapshot(name):
    silent = backend("asic", state=State.NEVER_STARTED, reason="no report within 24 h")
    ignored = backend("asic", state=FAILURE, ignored_by="carol", ignored_reason="lab is moving")
    running = backend("tpu", *DONE, job("d", None), state=RUNNING)
    known = failing_job("slow", History.KNOWN, run_attempt=2)
    run = {
        "red_l4": lambda: check(red()),
        "red_l3": lambda: check(backend("fpga", known, job("e", None), state=FAILURE, level=3)),
        "never_started": lambda: check(silent),
        "gate_red": lambda: gate(red(), running, ignored),
        "gate_waiting": lambda: gate(running, backend("npu", state=HELD), ignored),
    }[name]()
    text = f"# {run.name}\n\n## {run.title}\n\n{run.summary}\n\n---\n\n{run.text}\n"
    assert text == snapshot(f"check_{name}", text)


def test_very_much_is_cut_to_githubs_bytes_and_says_where_the_rest_is():
    trace = "日本語\n" * 2_000
    tests = tuple(failed_test(f"試験_{n}", stacktrace=trace) for n in range(60))
    jobs = [failing_job(f"部品 {n:04}", failed_tests=tests, failed=60) for n in range(300)]
    output = check(backend("npu", *jobs, state=FAILURE)).body()["output"]
    for part in ("summary", "text"):
        assert len(output[part].encode()) <= 65_535
        assert complaints(output[part]) == []
    assert re.search(r"Cut to fit: [\d,]+ of [\d,]+ bytes are left out", output["text"])
    assert ("All of it is here", f"{HUD}/octo/core/pull/7#npu") in see(output["text"]).links
    assert "…and 200 more jobs" in output["summary"]


def test_a_limit_met_exactly_is_not_cut():
    fields = {"name": "n", "head_sha": HEAD, "external_id": "e", "status": "queued", "title": "t"}
    fitting = "ü" * 32_767 + "x"
    assert CheckRun(**fields, summary=fitting).body()["output"]["summary"] == fitting
    longer = CheckRun(**fields, summary=fitting + "x").body()["output"]["summary"]
    assert "Cut to fit" in longer


@pytest.mark.parametrize("word", samples.each(3, injections.ALL), ids=injections.short)
def test_no_injection_does_anything_in_a_check_run(word):
    does_nothing(word)


@settings(max_examples=40)
@given(st.text(st.characters(codec=None), max_size=120) | st.text("`|@#<>!-/[]()*_~$\\\n ", max_size=40))
def test_random_words_do_nothing_in_a_check_run(word):
    does_nothing(word)


def does_nothing(word):
    head = hostile(word)
    one = head.backends[5]
    waiting = judge_gate([], unknown=word)
    unknown = gate_check(waiting, prefix="oot", head_sha=HEAD, external_id="k", page_url=word)
    marked = annotate.annotate_backend(check(one), one, (), {word.removeprefix("./")})
    assert annotate.annotate_backend(check(one), one, (), {"src/op.py"}).annotations == ()
    runs = [check(one) for one in head.backends] + [gate(*head.backends), unknown, marked]
    runs += per_job(one)
    assert len(marked.annotations) == 2
    for mark in marked.annotations:
        assert mark["path"] == word.removeprefix("./")  # as GitHub itself listed it
        for field, most in (("title", 255), ("message", 64_000)):
            assert len(mark[field].splitlines()) == 1
            assert len(mark[field].encode()) <= most * 4
            assert len(mark[field]) <= most
            assert not re.search(r"@\w", mark[field])
    for run in runs:
        body = run.body()
        for line in (body["name"], body["output"]["title"]):
            assert len(line.splitlines()) == 1
            assert len(line) <= 255
            assert not re.search(r"@\w", line)
        for part in ("summary", "text"):
            assert complaints(body["output"].get(part, "")) == []
