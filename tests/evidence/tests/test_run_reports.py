"""What is read from run reports (`.jsonl`, schema 0.1), alone and beside JUnit."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bot.cli import main
from bot.evidence.tests.parse import run_report

HEAD = {
    "type": "report",
    "schema_version": "0.1",
    "report_uuid": "u1",
    "repo": "o/r",
    "github_workflow_job_id": 0,
}
RUN = {"type": "run", "schema_version": "0.1", "file": "a.py", "suite": "S", "outcome": "passed"}


def line(**fields):
    return RUN | {"case_name": "t"} | fields


def text(*lines):
    return "".join(json.dumps(one) + "\n" for one in lines)


@pytest.fixture
def read(tmp_path):
    def read(**files):
        for name, content in files.items():
            (tmp_path / name.replace("_", ".")).write_text(content)
        return json.loads(CliRunner().invoke(main, ["tests", "read", str(tmp_path), "--json"]).output)

    return read


def cases(found):
    return [
        (case["name"], case["outcome"], case["attempts"], case["failed_attempts"]) for case in found["cases"]
    ]


def test_attempts_are_ordered_by_their_number(read):
    late = line(rerun_number=1, started_at=1000, ended_at=1250)
    found = read(a_jsonl=text(HEAD, late, line(outcome="failed", outcome_summary="no", rerun_number=0)))
    assert cases(found) == [("t", "passed", 2, 1)]
    assert (found["counts"]["flaky"], found["cases"][0]["time_ms"], found["cases"][0]["message"]) == (
        1,
        250,
        "no",
    )


@pytest.mark.parametrize("outcome", ["passed", "failed", "error", "skipped", "xfailed", "xpassed"])
def test_every_outcome_is_counted(read, outcome):
    found = read(a_jsonl=text(HEAD, line(outcome=outcome)))
    assert found["cases"][0]["outcome"] == outcome
    assert found["counts"]["errors" if outcome == "error" else outcome] == 1


def test_a_torn_last_line_is_left_out(read):
    found = read(a_jsonl=text(HEAD, line()) + '{"type": "run", "sch')
    assert (cases(found), found["unreadable"]) == ([("t", "passed", 1, 0)], [])


def test_a_last_line_without_line_feed_counts_if_it_is_whole(read):
    assert len(read(a_jsonl=text(HEAD, line(), line(case_name="u")).rstrip())["cases"]) == 2


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([HEAD | {"schema_version": "0.2"}], "'0.2'"),
        ([HEAD, line(schema_version="1")], "line 2: schema '1'"),
        ([HEAD | {"schema_version": 0.1}], "line 1"),
        ([line()], "not of type report"),
        ([HEAD, line(outcome="great")], "line 2: unknown outcome"),
        ([HEAD, line(case_name=5)], "line 2"),
        ([HEAD, line(rerun_number=-1)], "line 2"),
        ([HEAD, HEAD], "second report"),
        ([HEAD, line(case_name="x" * 1024 * 1024)], "1024 KiB"),
        ([HEAD, ["x"], line()], "line 2"),
        ([], "empty"),
    ],
)
def test_what_is_no_report_is_refused_visibly(read, lines, reason):
    found = read(a_jsonl=text(*lines))
    assert found["cases"] == []
    assert reason in found["unreadable"][0]["reason"]


def test_deep_nesting_is_refused(read):
    found = read(a_jsonl=text(HEAD) + '{"type":"run","properties":' + "[" * 100_000 + "\n")
    assert "line 2" in found["unreadable"][0]["reason"]


def test_the_same_report_twice_is_one(read):
    assert cases(read(a_jsonl=text(HEAD, line()), b_jsonl=text(HEAD, line()))) == [("t", "passed", 1, 0)]


def test_reports_of_a_job_are_ordered_by_when_they_began(read):
    early = text(HEAD, line(outcome="failed", started_at=1000))
    late = text(HEAD | {"report_uuid": "u2"}, line(started_at=2000), line(case_name="u", started_at=None))
    untold = text(HEAD | {"report_uuid": "u3"}, line(case_name="u", outcome="failed"))
    found = read(a_jsonl=late, b_jsonl=early, A_jsonl=untold)
    assert cases(found) == [("t", "passed", 2, 1), ("u", "failed", 2, 1)]


def test_run_reports_win_by_file_and_junit_fills_the_rest(read):
    junit = "<testsuite><testcase file='a.py' name='lost'/><testcase file='b.py' name='kept'/></testsuite>"
    found = read(a_jsonl=text(HEAD, line()), b_xml=junit)
    assert [case["name"] for case in found["cases"]] == ["t", "kept"]


def test_the_end_of_a_stack_trace_is_kept_where_there_is_one():
    failed = line(outcome="failed", properties={"stack": "x" * 5000 + "here"})
    others = [line(case_name=str(stack), properties={"stack": stack}) for stack in (5, None, [])]
    others.append(line(case_name="none", properties=None))
    (group,) = run_report.parse_run_report([text(HEAD, failed, *others).encode()]).cases.groups.values()
    stacks = [attempt.stack for attempts in group.attempts.values() for attempt in attempts]
    assert [(len(stack), stack[-4:]) for stack in stacks if stack] == [(4096, "here")]
