"""The list of failures: each once, whatever reports, logs and results of tests say of it."""

from bot.oot.verdict.failure import FailedJob
from bot.oot.verdict.failure_list import list_failures
from bot.oot.verdict.view import FailedTest
from bot.web.failures import (
    FailingTest,
    FailurePlace,
    Failures,
    FailureStanding,
    JobKey,
    JobRemark,
    ReasonLine,
)
from bot.web.failures import TestCase as Case

NEW, KNOWN = (
    FailureStanding(word="new", why="passes on main"),
    FailureStanding(word="known", why="fails too", tone="warn"),
)


def key(repo="org/npu", run="7", name="test"):
    return JobKey(repo, run, 1, name)


def failed(label="npu", name="test", *, run="7", tests=(), count=0, standing=None, blocking=False):
    """A job that a backend, or upstream, failed in."""
    repo = "octo/core" if label == "upstream" else f"org/{label}"
    return FailedJob(
        key=key(repo, run, name), label=label, name=name, group="CI", word="failed", attempt=1, url=None, tests=tests,
        failed=max(count, len(tests)), standing=standing, blocking=blocking,
    )  # fmt: skip


def known_test(name="test_add", *, suite="Ops", standing=NEW, jobs=(), places=()):
    """A failing test as results of tests know it."""
    return FailingTest(
        name=f"{suite} {name}", cases=frozenset({Case(suite, name)}), url="/t", message="3 != 4", standing=standing,
        places=places, jobs=frozenset(jobs),
    )  # fmt: skip


def line(text="FAILED test_add", *, infra=False):
    return ReasonLine(
        kind="infra" if infra else "test", text=text, place="line 1", url="/log", page="/job", infra=infra
    )


def drawn(found):
    """The list as lines: what failed, where, how it stands; `~` where it is folded."""
    rows = [(one, "") for one in found.first] + [(one, "~") for one in found.aside]
    return [
        f"{fold}{one.name} @ {', '.join(one.failing_on)}: {one.standing.word or '-'}"
        + (f" +{one.unnamed}" if one.unnamed else "")
        for one, fold in rows
    ]


def test_a_test_that_two_backends_reported_is_one_failure_of_both():
    add = FailedTest(name="test_add", classname="Ops", message="3 != 4")
    jobs = [failed("npu", tests=(add,), standing=KNOWN), failed("tpu", tests=(add,), standing=NEW)]
    found = list_failures(jobs, Failures())
    assert drawn(found) == ["Ops.test_add @ npu, tpu: new"]
    assert (found.first[0].whose, [one.labels for one in found.first[0].details]) == (
        "shared",
        [("npu", "tpu")],
    )


def test_what_a_report_and_results_of_tests_say_of_a_test_is_one_failure():
    add = FailedTest(name="test_add", classname="tests.Ops", message="3 != 4", stacktrace="here")
    sub = FailedTest(name="test_sub", classname="tests.Ops")
    places = (
        FailurePlace(label="npu", passed=False),
        FailurePlace(label="upstream cuda", passed=True, upstream=True),
    )
    found = list_failures(
        [failed(tests=(add, sub), count=9)],
        Failures(tests=[known_test(jobs=[key()], places=places)], tests_left=7),
    )
    assert drawn(found) == ["Ops test_add @ npu: new", "tests.Ops.test_sub @ npu: -"]
    assert found.total == 9  # what is left is not counted again with its job
    assert found.first[0].details[0].trace == "here"


def test_tests_that_were_only_counted_are_told_of_with_their_job():
    found = list_failures([failed(tests=(FailedTest(name="test_add"),), count=3)], Failures())
    assert drawn(found) == ["test_add @ npu: -", "CI / test @ npu: - +2"]


def test_the_only_job_of_a_run_has_its_tests_and_its_log_whatever_it_is_called():
    said = key(name="test (default, 1, 2)")
    found = list_failures(
        [failed(blocking=True)],
        Failures(tests=[known_test(jobs=[said])], jobs=[JobRemark(job=said, line=line(), alone=True)]),
    )
    assert drawn(found) == ["Ops test_add @ npu: new"]
    assert (found.first[0].blocking, found.first[0].line) == (True, line())


def test_of_two_jobs_none_is_taken_for_a_third_of_another_name():
    said = JobRemark(job=key(name="inner"), line=line("boom"), alone=True)
    found = list_failures([failed(name="a"), failed(name="b")], Failures(jobs=[said]))
    assert drawn(found) == ["CI / a @ npu: -", "CI / b @ npu: -", "inner @ npu: -"]


def test_a_run_that_never_started_is_no_check_of_another_app():
    lone = JobRemark(job=key("octo/core", "", "docs / (did not start)"), line=line(""), alone=True)
    found = list_failures([failed("upstream", "cla", run="")], Failures(jobs=[lone]))
    assert drawn(found) == ["CI / cla @ upstream: -", "docs / (did not start) @ upstream: -"]


def test_remarks_on_jobs_that_do_not_fail_here_are_left_out():
    assert drawn(list_failures([], Failures(jobs=[JobRemark(job=key(), line=line(), alone=True)]))) == []


def test_jobs_that_failed_at_the_same_line_are_one_failure():
    jobs = [failed(name=f"test {shard}", run=str(shard)) for shard in range(3)]
    remarks = [JobRemark(job=one.key, line=line("No space left")) for one in jobs]
    found = list_failures(jobs, Failures(jobs=remarks))
    assert drawn(found) == ["CI / test 0 @ npu: -"]
    assert len(found.first[0].jobs) == 3
    vague = ReasonLine(kind="generic", text="exit code 1", place="line 1", url="/log", page="/job")
    found = list_failures(jobs, Failures(jobs=[JobRemark(job=one.key, line=vague) for one in jobs]))
    assert len(drawn(found)) == 3


def test_what_is_known_or_of_the_machine_is_folded_unless_it_blocks():
    jobs = [
        failed(name="known", standing=KNOWN), failed(name="machine", run="8"),
        failed("tpu", "known", standing=KNOWN, blocking=True),
    ]  # fmt: skip
    machine = JobRemark(job=key(run="8", name="machine"), line=line("runner lost", infra=True))
    found = list_failures(jobs, Failures(jobs=[machine]))
    assert drawn(found) == ["CI / known @ tpu: known", "~CI / machine @ npu: -", "~CI / known @ npu: known"]
    assert found.summary == "3 failures: 1 infrastructure, 2 known"


def test_what_failed_in_a_job_that_passed_or_was_overtaken_is_no_failure():
    failing, passed = failed("npu"), failed("tpu", "allowed", run="8")
    overtaken, elsewhere = key(run="6"), key("org/gpu")
    tests = [
        known_test("here", jobs=[failing.key]), known_test("allowed", jobs=[passed.key]),
        known_test("overtaken", jobs=[overtaken]), known_test("unheard_of", jobs=[elsewhere]),
        known_test("both", jobs=[failing.key, passed.key]),
    ]  # fmt: skip
    found = list_failures(
        [failing], Failures(tests=tests), passed={passed.key}, judged={"org/npu", "org/tpu"}
    )
    assert sorted(one.name for one in found.all) == ["Ops both", "Ops here", "Ops unheard_of"]
    assert [one.jobs for one in found.all if one.name == "Ops both"] == [(failing,)]
    assert found.count_on("org/tpu").total == 0


def test_a_test_is_new_on_one_backend_and_known_on_another():
    add = FailedTest(name="test_add")
    jobs = [failed("npu", tests=(add,), count=3, standing=KNOWN), failed("tpu", tests=(add,), standing=NEW)]
    found = list_failures(jobs, Failures())
    assert (found.count_on("org/npu").phrase, found.count_on("org/tpu").phrase) == (
        "3 known failures",
        "1 new failure",
    )
    assert found.summary == "3 failures: 1 new, 2 known"
    assert [(label, one.word) for label, one in found.first[0].differing] == [("npu", "known")]


def test_a_test_that_is_new_on_one_backend_is_new_where_nothing_is_known():
    add = FailedTest(name="test_add")
    found = list_failures(
        [failed("npu", tests=(add,)), failed("tpu", tests=(add,), standing=NEW)], Failures()
    )
    assert (found.count_on("org/npu").phrase, found.all[0].differing) == ("1 new failure", ())


def test_nothing_known_of_a_test_on_one_backend_keeps_it_from_being_known():
    add = FailedTest(name="test_add")
    jobs = [failed("npu", tests=(add,)), failed("tpu", tests=(add,), standing=KNOWN)]
    assert drawn(list_failures(jobs, Failures())) == ["test_add @ npu, tpu: -"]


def test_the_nearest_evidence_decides_and_the_rest_stands_below():
    other = JobRemark(job=key(), standing=KNOWN)
    (one,) = list_failures([failed(standing=NEW)], Failures(jobs=[other])).first
    assert (one.standing, one.others) == (NEW, (KNOWN,))
