"""Is a test flaky or broken, what differs between two sides, and where did it fail?"""

from __future__ import annotations

import json
import random
import time

import pytest

from bot.evidence.tests import states
from bot.evidence.tests.comparing import Change, add_jobs, compare_sides
from bot.evidence.tests.job_results import SourceLine, find_source_line
from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import NO_TIME, Code, code_of
from bot.evidence.tests.states import DAY, JudgedState, Observation, State
from tests.command import ootbot
from tests.evidence.tests.reported import case, known_tests, ran, xml
from tests.harness import UPSTREAM
from tests.serving import SQLITE

NOW = 100 * DAY
FLAKY = JudgedState(State.FLAKY, 5, {"flaky": 2})
P, F, E, S, X = Code.PASSED, Code.FAILED, Code.ERROR, Code.SKIPPED, Code.XFAILED


def runs(drawing, *, every=3_600_000, until=NOW):
    """Runs as drawn, the last one newest: . passed, F failed, ~ flaky; those in one [] are of one commit."""
    found, sha, inside = [], 0, False
    for sign in drawing:
        if sign in "[]":
            inside = sign == "["
            sha += 1
        else:
            sha += not inside
            found.append((sign, sha))
    return [
        Observation(
            at=until - (len(found) - 1 - index) * every,
            job_id=index,
            sha=str(sha),
            job_family="f",
            failed=sign == "F",
            flaky=sign == "~",
        )
        for index, (sign, sha) in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("drawing", "state"),
    [
        ("", "healthy"),
        ("..........", "healthy"),
        ("...~......", "healthy"),  # once is not enough
        ("...~...~..", "flaky"),
        ("...[F.].[.F]..", "flaky"),  # failed and passed on one commit, twice
        ("...F...F..", "healthy"),  # too few runs for a rate
        (".....F.....F.....F....", "flaky"),  # 3 of 22
        (".....F.....FF.........", "healthy"),  # two in a row are one
        ("F.F.F.F.F.F.F.F.F.F.F.F.", "healthy"),  # a rate of one half: neither
        ("..........FF", "healthy"),
        (".........FFF", "broken"),
        ("...~...~FFF", "broken"),
    ],
)
def test_a_state_by_what_runs_said(drawing, state):
    seen = runs(drawing)
    judged = states.evaluate(seen, None, now=NOW)
    assert judged.state == state
    shuffled = random.Random(1).sample(seen, len(seen))
    assert states.evaluate(shuffled, None, now=NOW) == judged


@pytest.mark.parametrize(
    ("drawing", "every", "state"),
    [
        ("~" + "." * 30, 3_600_000, "flaky"),
        ("~" + "." * 100, 3_600_000, "healthy"),  # a hundred runs without an event
        ("~" + "." * 13, DAY, "flaky"),
        ("~" + "." * 14, DAY, "healthy"),  # fourteen days
        ("", DAY, "healthy"),
    ],
)
def test_a_flaky_test_is_healthy_after_a_quiet_time_only(drawing, every, state):
    assert states.evaluate(runs(drawing, every=every), FLAKY, now=NOW).state == state


def test_a_broken_test_is_healthy_once_it_passes_for_good():
    broken = states.evaluate(runs(".FFF"), None, now=NOW)
    assert (broken.state, broken.since, broken.evidence["jobs"]) == (
        State.BROKEN,
        NOW - 2 * 3_600_000,
        [1, 2, 3],
    )
    for drawing, state in (("FFF.", "broken"), ("FFF..", "broken"), ("FFF...", "healthy")):
        assert states.evaluate(runs(drawing), broken, now=NOW).state == state


def test_after_a_reset_nothing_before_counts():
    seen = runs("...~...~..")
    healthy = states.reset_state(NOW - 1)
    again = states.evaluate(seen, healthy, now=NOW)
    assert (again.state, again.evidence) == (State.HEALTHY, {"reset": NOW - 1})
    later = [*seen, *runs("~.~", until=NOW + DAY)]
    assert states.evaluate(later, again, now=NOW + DAY).state is State.FLAKY


def test_what_people_quarantined_stays_so():
    quarantined = JudgedState(State.QUARANTINED, 1, {})
    assert states.evaluate(runs("....."), quarantined, now=NOW) == quarantined


async def shown(bot):
    names = await known_tests(bot)
    return {names[row["test_id"]][2]: row["state"] for row in await bot.rows("test_state")}


@pytest.mark.logic
async def test_trusted_runs_make_a_test_flaky_and_a_fork_called_main_does_not(bot, github):
    fork = github.add_repo("someone/pytorch", install=[])
    for _ in range(2):
        bot.clock.advance(3600)
        await ran(github, {"a.xml": xml(case("test_a", "flaky"), case("test_b"))})
        await ran(
            github, {"a.xml": xml(case("test_b", "flaky"))}, event="pull_request", head_branch="main", head_repo=fork
        )  # fmt: skip
        await bot.settle(horizon=900)
    assert await shown(bot) == {"test_a": "flaky"}
    (row,) = await bot.rows("test_state")
    assert (row["env_group"], row["by"], row["evidence"]["flaky"]) == ("linux cuda default", "bot", 2)
    before = row
    await bot.settle(horizon=3 * 3600)  # looked at again, nothing new
    (row,) = await bot.rows("test_state")
    assert (row["state"], row["since"]) == (before["state"], before["since"])
    async with bot.store.transaction() as tx:
        assert await states.reset_test(tx, row["repository_id"], row["test_id"], by="octocat") == 1
    await bot.settle(horizon=7 * 3600)
    assert await shown(bot) == {"test_a": "healthy"}
    (row,) = await bot.rows("test_state")
    assert row["by"] == "octocat"


@SQLITE
async def test_three_failures_in_a_row_are_broken(bot, github):
    for _ in range(3):
        bot.clock.advance(3600)
        await github.push(UPSTREAM)
        await ran(github, {"a.xml": xml(case("test_a", "failed"))}, conclusion="failure")
    await bot.settle(horizon=900)
    assert await shown(bot) == {"test_a": "broken"}


@SQLITE
async def test_the_console_shows_a_tests_history_and_resets_it(bot, github):
    for outcome in ("flaky", "flaky", "passed"):
        bot.clock.advance(3600)
        await ran(github, {"a.xml": xml(case("test_a", outcome), case("test_a", suite="Other"))})
    await bot.settle(horizon=900)
    name = "test_ops.py::TestOps::test_a"
    days = str(
        int(time.time() - bot.clock.now() / 1000) // 86_400 + 3
    )  # the command knows the real time only
    code, out, _ = await ootbot(bot, "tests", "history", UPSTREAM, name, "--days", days)
    assert code == 0
    assert "flaky since" in out
    assert "3 runs, 3 passed, 2 flaky, 0.25 s" in out
    _, out, _ = await ootbot(bot, "tests", "history", UPSTREAM, "test_a", "--json", "--days", days)
    found = {one["suite"]: one for one in json.loads(out)["tests"]}
    assert [(day["runs"], day["flaky"], day["env_group"]) for day in found["TestOps"]["days"]] == [
        (3, 2, "linux cuda default")
    ]
    assert found["Other"]["states"] == []
    code, _, err = await ootbot(bot, "tests", "reset", UPSTREAM, "test_a", "--by", "octocat")
    assert (code, "2 tests have that name" in err) == (1, True)
    code, out, _ = await ootbot(bot, "tests", "reset", UPSTREAM, name, "--by", "octocat")
    assert (code, out) == (0, f"{name} was flaky or broken in 1 environment, and is healthy now\n")
    assert (await shown(bot))["test_a"] == "healthy"
    code, _, err = await ootbot(bot, "tests", "history", UPSTREAM, "none")
    assert (code, "no test of that name" in err) == (1, True)


def side(jobs):
    return add_jobs({}, jobs)


def job(family="ci / test", **tests):
    """A job in which test t1 ended as `t1` says, after one attempt."""
    cases = [(int(name[1:]), code_of(outcome, 1), NO_TIME) for name, outcome in tests.items()]
    return family, block.decode(block.encode(cases))


def changes(base, head):
    found = compare_sides(side(base), side(head))
    assert {change: len(tests) for change, tests in found.changed.items()} == found.counts
    return {change.value: [one.test_id for one in tests] for change, tests in found.changed.items() if tests}


@pytest.mark.parametrize(
    ("base", "head", "change"),
    [
        (P, F, "newly_failing"),
        (P, E, "newly_failing"),
        (S, F, "newly_failing"),
        (F, E, "still_failing"),
        (F, P, "fixed"),
        (F, X, "fixed"),
        (F, S, None),  # skipping is no fix
        (P, S, "newly_skipped"),
        (X, S, "newly_skipped"),
        (P, P, None),
        (S, S, None),
        (S, P, None),
    ],
)
def test_how_a_test_changed(base, head, change):
    assert changes([job(t1=base)], [job(t1=head)]) == ({change: [1]} if change else {})


def test_tests_that_are_only_on_one_side_are_new_or_gone():
    assert changes([job(t1=P, t2=P)], [job(t1=P, t3=F)]) == {"new": [3], "gone": [2]}


def test_a_re_run_that_passes_takes_a_failure_back_in_any_order():
    failed, passed = job(t1=F, t2=P), job(t1=P)
    for head in ([failed, passed], [passed, failed]):
        assert changes([job(t1=P, t2=P)], head) == {}
    assert changes([job(t1=P)], [job(t1=F), job(t1=S)]) == {"newly_failing": [1]}


def test_shards_of_a_family_are_one():
    assert changes([job(t1=P), job(t2=P)], [job(t2=P), job(t1=F)]) == {"newly_failing": [1]}


def test_a_family_that_did_not_run_says_nothing():
    found = compare_sides(
        side([job("linux", t1=P), job("mac", t1=P)]), side([job("linux", t1=P), job("win", t1=F)])
    )
    assert (found.only_head, found.only_base, found.families) == (["win"], ["mac"], 1)
    assert sum(found.counts.values()) == 0


def test_of_very_many_changes_all_are_counted_and_some_named():
    base, head = [job(**{f"t{n}": P for n in range(1, 50)})], [job(**{f"t{n}": F for n in range(1, 50)})]
    found = compare_sides(side(base), side(head), most=10)
    assert found.counts[Change.NEWLY_FAILING] == 49
    assert [one.test_id for one in found.changed[Change.NEWLY_FAILING]] == list(range(1, 11))


@pytest.mark.parametrize(
    ("file", "line", "text", "expected"),
    [
        ("test_x.py", None, "test_x.py:41: in f\n    g()\nlib/g.py:9: AssertionError", ("test_x.py", 41)),
        ("", None, "/src/tests/op_test.cc:42\nExpected equality", ("/src/tests/op_test.cc", 42)),
        ("", None, "op_test.cc:42: Failure", ("op_test.cc", 42)),
        ("", None, "thread 't' panicked at src/lib.rs:10:5:\nassertion failed", ("src/lib.rs", 10)),
        ("", None, "thread 't' panicked at 'a: b', src/lib.rs:10:5", ("src/lib.rs", 10)),
        ("", None, "    add_test.go:12: 3 is not 4", ("add_test.go", 12)),
        ("t/test_x.py", None, 'File "D:\\a\\p\\t\\test_x.py", line 3, in f', ("D:/a/p/t/test_x.py", 3)),
        ("op_test.cc", 7, "no place", ("op_test.cc", 7)),
        ("op_test.cc", 7, "/x/other.cc:9: Failure", ("op_test.cc", 7)),
        ("op_test.cc", None, "/x/other.cc:9: Failure", None),
        ("", 7, "at 12:30:05 on 127.0.0.1:8080", None),
        ("", None, "../../etc/passwd.txt:3: x", None),
        ("", None, "a.py:0: x\nb.py:99999999999: x", None),
        ("", None, "x" * 4096 + ":1: x", None),
    ],
)
def test_where_a_test_failed_is_read_of_the_usual_texts(file, line, text, expected):
    assert find_source_line(file, line, text) == (expected and SourceLine(*expected))
