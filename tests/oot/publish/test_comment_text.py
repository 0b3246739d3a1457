"""Text of the pull request's comment, and what a stranger can inject into it."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.oot.publish.comment_text import MARKER, has_failures, render_comment
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import History
from tests import samples
from tests.oot.publish import injections
from tests.oot.publish.heads import CI, HUD, backend, failed_test, failing_job, hostile, job, pull
from tests.oot.publish.rendered import complaints, see
from tests.oot.publish.snapshots import snapshot

OLD = "fedcba9876543210fedcba9876543210fedcba98"
QUEUED, RUNNING, FAILURE = State.QUEUED, State.RUNNING, State.FAILURE


def passing(passed=8430, **fields):
    return job("unit", passed=passed, skipped=20, failed=0, **fields)


def npu_red(**fields):
    given = {"state": FAILURE, "oncalls": ("alice", "bob")}
    return backend("npu", failing_job(), job("build"), **{**given, **fields})


def all_green():
    return pull(
        backend("npu", passing(), job("build")),
        backend("tpu", passing(120)),
        backend("fpga", passing(77), level=3),
    )


def one_new_failure():
    return pull(
        npu_red(),
        backend("tpu", passing(120), job("bench", None), state=RUNNING),
        backend("fpga", passing(77), level=3),
        backend("watch", passing(), level=2),
    )


def known_and_new():
    known = failing_job("slow", History.KNOWN, failed_tests=(failed_test("test_wait"),))
    flaky = failing_job("net", History.FLAKY, failed=3, artifact_url=f"{CI}/77/files")
    alone = job("lint", "startup_failure", history=History.NO_BASELINE)
    silent = {"state": State.NEVER_STARTED, "reason": "no report within 24 h"}
    return pull(
        backend("npu", failing_job(), known, job("build"), state=FAILURE, oncalls=("alice",)),
        backend("tpu", flaky, alone, state=FAILURE, level=3, oncalls=("bob",)),
        backend("asic", **silent, ignored_by="carol", ignored_reason="lab is moving this week."),
        backend("fpga", state=State.CANCELLED, level=3, reason="stopped by `alice`"),
        backend("watch-1", failing_job(), state=FAILURE, level=2, oncalls=("dave",)),
        backend("watch-2", passing(), level=2),
    )


def nothing_yet():
    held = backend("fpga", state=State.HELD, level=3)
    return pull(backend("npu", state=QUEUED), backend("tpu", state=QUEUED), held)


def new_head():
    waiting = (backend("npu", state=QUEUED), backend("tpu", state=QUEUED))
    return pull(*waiting, previous=replace(one_new_failure(), head_sha=OLD))


def forty():
    states = [FAILURE, RUNNING, State.SUCCESS, State.SUCCESS]
    jobs = [(failing_job(),), (passing(), job("bench", None)), (passing(),), (passing(), job("a"))]
    return pull(
        *(
            backend(f"device-{n:02}", *jobs[n % 4], state=states[n % 4], level=4 if n < 8 else 3)
            for n in range(40)
        )
    )


def two_thousand_failing_jobs():
    trace = "\n".join(f'  File "tests/ops.py", line {n}, in check' for n in range(90))
    tests = tuple(failed_test(f"test_{n}", stacktrace=trace) for n in range(6))
    return pull(
        *(
            backend(
                f"device-{n:02}",
                *(failing_job(f"shard {k:03}", failed_tests=tests, failed=9) for k in range(100)),
                state=FAILURE,
                level=4 if n < 10 else 3,
                oncalls=(f"user-{n}",),
            )
            for n in range(20)
        )
    )


def other_scripts():
    test = failed_test(
        "test_обработка_данных", classname="テスト.演算", message="予期しない値: 3 ≠ 4", file="试验/运算.py"
    )
    return pull(
        backend("昇騰", failing_job("ユニット 🧪", failed_tests=(test,)), state=FAILURE),
        backend("процессор", passing(workflow="сборка")),
        backend("מעבד", job("בדיקה", workflow="בנייה"), level=3),
        backend("معالج", job("اختبار"), level=3),
    )


HEADS = {
    make.__name__: make
    for make in (
        all_green,
        one_new_failure,
        known_and_new,
        nothing_yet,
        new_head,
        forty,
        two_thousand_failing_jobs,
        other_scripts,
    )
}


@pytest.mark.parametrize("name", HEADS)
def test_the_comment_reads_as_in_its_snapshot(name):
    body = render_comment(HEADS[name]())
    assert body == snapshot(f"comment_{name}", body)


@pytest.mark.parametrize("name", HEADS)
def test_every_comment_is_well_formed_within_the_limits_and_the_same_twice(name):
    body = render_comment(HEADS[name]())
    live = frozenset({"alice", "bob", *(f"user-{n}" for n in range(20))})
    assert complaints(body, live=live, comments=1) == []
    assert body.startswith(MARKER + "\n")
    assert len(body) <= 60_000
    assert render_comment(HEADS[name]()) == body


@pytest.mark.parametrize(
    ("word", "limit"), samples.in_turn(injections.ALL, (60_000, 9_000), step=3), ids=injections.short
)
def test_no_injection_does_anything_in_the_comment(word, limit):
    head = hostile(word)
    body = render_comment(head, limit=limit)
    assert complaints(body, live=frozenset({"alice", word}), comments=1) == []
    assert body.count(MARKER) == 1
    plain = [one for one in head.backends if one.state is State.SUCCESS and not one.ignored_by]
    rows = sum(one.level > 2 for one in head.backends) - len(plain) + 1
    assert see(body).tags.count("tr") == (rows if "| Backend |" in body else 0)


@settings(max_examples=60)
@given(st.text(st.characters(codec=None), max_size=120) | st.text("`|@#<>!-/[]()*_~$\\\n ", max_size=40))
def test_random_words_do_nothing_in_the_comment(word):
    for head in (hostile(word), pull(backend("npu", state=QUEUED), previous=hostile(word))):
        body = render_comment(head, mention=())
        assert complaints(body, comments=1) == []
        body.encode("utf-8")


def test_on_calls_are_mentioned_live_once_in_the_section_of_their_red_backend():
    body = render_comment(one_new_failure())
    assert body.count("@alice") == 1
    assert body.index("<details") < body.index("@alice") < body.index("</details>")


@pytest.mark.parametrize("state", [State.CANCELLED, State.NEUTRAL, State.SUCCESS, RUNNING, QUEUED])
def test_nobody_is_mentioned_unless_the_backend_is_red(state):
    assert "@" not in render_comment(pull(backend("npu", job("unit"), state=state, oncalls=("alice",))))


def test_the_verdict_comes_first_with_whose_failures_are_new():
    known, flaky = failing_job("slow", History.KNOWN, failed=None), failing_job("net", History.FLAKY)
    head = pull(
        backend("tpu", failing_job(failed=2), state=FAILURE),
        backend("npu", failing_job(), state=FAILURE, level=3),
        backend("fpga", known, flaky, state=FAILURE, level=3),
    )
    assert render_comment(head).splitlines()[2:5] == [
        "**❌ `tpu` blocks merging: 2 new failures · `npu`: 1 new failure · 1 unrelated**",
        "",
        "`0123abc` on `main` at `ba5eba5` (2026-09-21 12:13 UTC) · upstream's own checks are not judged here",
    ]


@pytest.mark.parametrize(
    ("backends", "verdict"),
    [
        ([], "none blocks or was asked for"),
        ([backend("npu", level=3)], "✅ no backend blocks merging"),
        ([backend("npu", failing_job(), state=FAILURE, level=3)], "✅ no backend blocks merging · `npu`: 1 new failure"),
        ([backend("npu"), backend("tpu", failing_job(), state=FAILURE, ignored_by="carol")],
         "✅ backends allow it: 1 of 1 blocking backend passed, 1 ignored"),
        ([backend("npu"), backend("tpu", state=State.HELD)], "✋ `tpu` held back"),
        ([backend("npu", state=State.NEVER_STARTED)], "❌ `npu` blocks merging: never started"),
        ([backend(f"npu-{n}", state=State.CANCELLED) for n in range(5)],
         " · ".join(["❌ `npu-0` blocks merging: cancelled", *(f"`npu-{n}` blocks merging: cancelled" for n in (1, 2)),
                     "2 more block merging"])),
    ],
)  # fmt: skip
def test_the_verdict_in_words(backends, verdict):
    line = render_comment(pull(*backends)).splitlines()[2]
    assert line.strip("*").removeprefix("nothing reported yet · ") == verdict


def test_the_same_test_is_listed_once_with_its_backends():
    body = render_comment(forty())
    assert body.count("tests.ops.TestAdd.test_add") == 1
    assert "fails on `device-00`, `device-04`" in body


def test_a_missing_baseline_is_told_once():
    alone = failing_job(history=History.NO_BASELINE)
    head = pull(*(backend(f"npu-{n}", alone, failing_job("b", None), state=FAILURE) for n in range(3)))
    body = render_comment(head)
    assert body.lower().count("baseline") == 1
    assert "No baseline yet for `npu-0`, `npu-1`, `npu-2`: nothing to compare with." in body


def test_a_backend_without_checks_mentions_nobody():
    body = render_comment(pull(npu_red(level=2), npu_red(level=1)))
    assert "@" not in body
    assert "❌ 1 failed" in body


@pytest.mark.parametrize("level", [0, 5])
def test_a_failure_of_unknown_level_blocks_as_the_gate_says(level):
    body = render_comment(pull(npu_red(level=level)))
    assert body.splitlines()[2] == "**❌ `npu` blocks merging: 1 new failure**"
    assert f"| L{level}, blocking |" in body
    assert "This blocks merging. On call: @alice, @bob." in body


def test_on_calls_not_to_be_mentioned_are_named_in_code():
    body = render_comment(pull(npu_red()), mention={("org/npu", "bob")})
    assert "On call: `alice`, @bob." in body


@pytest.mark.parametrize("login", ["octocat[bot]", "a b", "@alice", "x" * 40, "", "a/b/c"])
def test_what_is_no_login_is_never_mentioned(login):
    assert not re.search(r"@\w", render_comment(pull(npu_red(oncalls=(login,)))))


def test_on_calls_are_still_called_when_their_section_did_not_fit():
    body = render_comment(two_thousand_failing_jobs(), limit=12_000)
    assert len(body) <= 12_000
    assert "<details" not in body
    assert [body.count(f"@user-{n}.") for n in range(20)] == [1] * 20


def test_the_previous_verdict_stays_until_the_first_report():
    body = render_comment(new_head())
    assert "nothing reported yet" in body
    assert "previous commit `fedcba9`" in body
    assert "@" not in body
    assert "On call: `alice`, `bob`." in body
    reported = pull(backend("npu", job("unit", None), state=RUNNING), previous=one_new_failure())
    assert "previous commit" not in render_comment(reported)


def test_sections_are_shed_from_the_bottom_with_a_link_to_the_page():
    test = failed_test(stacktrace="in test_add\n" * 100)
    head = pull(backend("npu", failing_job(failed_tests=(test,)), state=FAILURE))
    whole = render_comment(head)
    shorter = render_comment(head, limit=len(whole) - 1)
    assert "in test_add" in whole
    assert "in test_add" not in shorter
    assert "Shortened to fit, without stack traces." in shorter
    assert f"[this pull request's page]({HUD}/octo/core/pull/7)" in shorter
    assert "AssertionError" in shorter


@pytest.mark.parametrize("limit", [60_000, 20_000, 6_000, 2_000])
def test_a_comment_never_exceeds_its_limit(limit):
    for make in (forty, two_thousand_failing_jobs):
        assert len(render_comment(make(), limit=limit)) <= limit


def test_very_many_backends_of_unhelpful_names_still_fit():
    crowd = [backend("|" * 300 + str(n), job("|" * 300), page_url=HUD + "/|" * 600) for n in range(900)]
    body = render_comment(pull(*crowd))
    assert len(body) <= 60_000
    assert "✅ 900 passed" in body
    assert complaints(body, comments=1) == []


def test_blocking_failures_come_first_and_open():
    body = render_comment(known_and_new())
    assert re.findall(r"<details( open)?>\n<summary>❌ <code>(\w+)", body) == [
        (" open", "npu"),
        ("", "tpu"),
        ("", "asic"),
    ]


@pytest.mark.parametrize(
    ("head", "due"),
    [
        (pull(), False),
        (all_green(), False),
        (nothing_yet(), False),
        (one_new_failure(), True),
        (pull(npu_red(level=2)), True),
        (pull(npu_red(level=1)), False),
        (pull(npu_red(level=0)), True),
        (pull(backend("npu", state=State.CANCELLED)), False),
        (pull(backend("npu", state=State.NEVER_STARTED)), True),
        (new_head(), True),
        (replace(all_green(), previous=one_new_failure()), False),
    ],
)
def test_a_comment_is_due_when_a_backend_people_see_is_red(head, due):
    assert has_failures(head) is due
