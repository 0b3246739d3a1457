"""What is read from run reports (`.jsonl`), and of reports as many tools write them: `reports/expected.json`."""

from __future__ import annotations

import json
import time
from pathlib import Path

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
REPORTS = Path(__file__).parent / "reports"
EXPECTED = json.loads((REPORTS / "expected.json").read_text())
FAIL = "<failure message='no'>trace</failure>"


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


def said(*paths):
    return json.loads(CliRunner().invoke(main, ["tests", "read", *map(str, paths), "--json"]).output)


def values(found, names):
    cases = found["cases"]
    first = cases[0] if cases else {}
    known = {
        "attempts": first.get("attempts"),
        "message": first.get("message"),
        "times": [case["time_ms"] for case in cases],
        "files": [case["file"] for case in cases],
        "unreadable": len(found["unreadable"]),
        "no_reports": len(found["no_reports"]),
    }
    return {name: known[name] if name in known else found["counts"][name] for name in names}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_report_is_read_as_its_tool_means_it(name):
    expected = EXPECTED[name]
    assert values(said(REPORTS / name), expected) == expected


def test_every_report_has_an_expectation():
    assert {path.name for path in REPORTS.iterdir()} - {"expected.json"} == EXPECTED.keys()


@pytest.fixture
def read_xml(tmp_path):
    def read_xml(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".xml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return said(tmp_path)

    return read_xml


def listed(found):
    return sorted((case["suite"], case["name"], case["outcome"], case["repeats"]) for case in found["cases"])


def test_names_of_tests_that_are_told_apart_do_not_depend_on_other_tests(read_xml):
    same = "<testsuite name='{}'><testcase classname='c' name='same'/>{}</testsuite>"
    other = "<testcase classname='c' name='other'/>"
    found = read_xml(a=f"<testsuites>{same.format('x', other)}{same.format('y', '')}</testsuites>")
    assert listed(found) == [
        ("c", "other", "passed", 1), ("c [x]", "same", "passed", 1), ("c [y]", "same", "passed", 1),
    ]  # fmt: skip


def test_cases_of_one_name_in_a_suite_are_one_and_the_worst_counts(read_xml):
    (case,) = read_xml(
        a=f"<testsuite name='s'><testcase name='t' time='1'/><testcase name='t' time='2'>{FAIL}</testcase>"
        "<testcase name='t'><skipped/></testcase><testcase name='t' time='3'/></testsuite>"
    )["cases"]
    assert (case["outcome"], case["attempts"], case["repeats"], case["time_ms"]) == ("failed", 1, 4, 6000)


@pytest.mark.parametrize(
    "text",
    [
        (
            "<testsuite name='p' tests='2'><properties><property name='go.version' value='go1.24'/></properties>"
            f"<testcase classname='p' name='T'>{FAIL}</testcase><testcase classname='p' name='T'/></testsuite>"
        ),
        (
            "<testsuite name='G' hostname='h' timestamp='2026-01-01T00:00:00'><properties/>"
            f"<testcase classname='G' name='T'>{FAIL}</testcase><testcase classname='G' name='T'/></testsuite>"
        ),
        f"<testsuite name='openshift-tests'><testcase name='T'>{FAIL}</testcase><testcase name='T'/></testsuite>",
    ],
    ids=["gotestsum", "Gradle without mergeReruns", "openshift-tests"],
)
def test_attempts_are_believed_where_the_tool_writes_them(read_xml, text):
    found = read_xml(a=text)
    assert (found["counts"]["passed"], found["counts"]["flaky"], found["cases"][0]["attempts"]) == (1, 1, 2)


def test_a_second_form_of_the_same_results_adds_nothing(read_xml):
    suite = f"<testsuite name='T'><testcase classname='T' name='a'>{FAIL}</testcase></testsuite>"
    found = read_xml(out__Suite__T=suite, out__junitreports__T_1=suite)
    assert listed(found) == [("T", "a", "failed", 1)]


def test_a_list_of_failures_longer_than_what_was_read_is_told(read_xml):
    found = read_xml(
        a="<testsuite name='s' failures='3'><testcase name='t'><failure/></testcase></testsuite>"
    )
    assert [one["reason"] for one in found["notes"]] == ["suite s claims 3 failures, it has 1"]


def test_files_of_macos_beside_a_report_are_no_reports(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("r.xml", "<testsuite><testcase name='t'/></testsuite>")
        archive.writestr("__MACOSX/._r.xml", b"\0\5\x16\7")
        archive.writestr("pom.xml", "<project/>")
    found = said(tmp_path / "a.zip")
    assert (found["counts"]["tests"], found["unreadable"]) == (1, [])
    assert [one["member"] for one in found["no_reports"]] == ["pom.xml"]


def test_names_of_any_length_are_kept_short_and_stay_different(read_xml):
    long = "n" * 30_000
    found = read_xml(
        a=f"<testsuite><testcase classname='{long}' name='{long}a'/><testcase classname='{long}' name='{long}b'/></testsuite>"
    )
    assert len({case["name"] for case in found["cases"]}) == 2
    assert max(len(case[part]) for case in found["cases"] for part in ("suite", "name")) < 540


def test_colours_are_taken_out_across_pieces(read_xml):
    text = "<testsuite><testcase name='t'><failure>{}\x1b[31mred\x1b[0m{}</failure></testcase></testsuite>"
    found = read_xml(a=text.format("x" * (1024 * 1024 - 44), ""))
    assert found["counts"]["failed"] == 1
    assert "repaired" in found["notes"][0]["reason"]


def test_many_documents_in_one_file_are_read_in_linear_time(read_xml):
    document = (
        "<?xml version='1.0'?><testsuite name='s{0}'><testcase classname='c' name='t{0}'/></testsuite>\n"
    )
    assert read_xml(a="".join(map(document.format, range(9_000))))["counts"]["tests"] == 9_000
    assert (
        "10,000 documents"
        in read_xml(b="".join(map(document.format, range(10_001))))["unreadable"][0]["reason"]
    )


def test_a_comment_full_of_beginnings_of_documents_takes_linear_time(read_xml):
    began = time.process_time()
    found = read_xml(a=f"<testsuite><!-- {'<?xml ' * 1_000_000}--><testcase name='t'/></testsuite>")
    assert found["counts"]["tests"] == 1
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("encoding", "name"),
    [("Shift_JIS", "テスト"), ("Big5", "測試"), ("EUC-KR", "시험"), ("windows-1251", "тест")],
)
def test_encodings_of_many_bytes(read_xml, encoding, name):
    text = f"<?xml version='1.0' encoding='{encoding}'?><testsuite><testcase name='{name}'/></testsuite>"
    found = read_xml(a=text.encode(encoding))
    assert ([case["name"] for case in found["cases"]], found["notes"]) == ([name], [])


def test_a_transformation_is_no_report(read_xml):
    found = read_xml(
        a="<xsl:stylesheet xmlns:xsl='u'><xsl:template><testsuite><testcase name='t'/></testsuite></xsl:template>"
        "</xsl:stylesheet>"
    )
    assert (found["cases"], found["unreadable"], len(found["no_reports"])) == ([], [], 1)
