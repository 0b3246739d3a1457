"""Reports as many tools write them, small ones, with what is right: `reports/expected.json`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from bot.cli import main

REPORTS = Path(__file__).parent / "reports"
EXPECTED = json.loads((REPORTS / "expected.json").read_text())


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
def read(tmp_path):
    def read(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".xml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return said(tmp_path)

    return read


def listed(found):
    return sorted((case["suite"], case["name"], case["outcome"], case["repeats"]) for case in found["cases"])


FAIL = "<failure message='no'>trace</failure>"


def test_names_of_tests_that_are_told_apart_do_not_depend_on_other_tests(read):
    same = "<testsuite name='{}'><testcase classname='c' name='same'/>{}</testsuite>"
    other = "<testcase classname='c' name='other'/>"
    found = read(a=f"<testsuites>{same.format('x', other)}{same.format('y', '')}</testsuites>")
    assert listed(found) == [
        ("c", "other", "passed", 1), ("c [x]", "same", "passed", 1), ("c [y]", "same", "passed", 1),
    ]  # fmt: skip


def test_cases_of_one_name_in_a_suite_are_one_and_the_worst_counts(read):
    (case,) = read(
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
def test_attempts_are_believed_where_the_tool_writes_them(read, text):
    found = read(a=text)
    assert (found["counts"]["passed"], found["counts"]["flaky"], found["cases"][0]["attempts"]) == (1, 1, 2)


def test_a_second_form_of_the_same_results_adds_nothing(read):
    suite = f"<testsuite name='T'><testcase classname='T' name='a'>{FAIL}</testcase></testsuite>"
    found = read(out__Suite__T=suite, out__junitreports__T_1=suite)
    assert listed(found) == [("T", "a", "failed", 1)]


def test_a_list_of_failures_longer_than_what_was_read_is_told(read):
    found = read(a="<testsuite name='s' failures='3'><testcase name='t'><failure/></testcase></testsuite>")
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


def test_names_of_any_length_are_kept_short_and_stay_different(read):
    long = "n" * 30_000
    found = read(
        a=f"<testsuite><testcase classname='{long}' name='{long}a'/><testcase classname='{long}' name='{long}b'/></testsuite>"
    )
    assert len({case["name"] for case in found["cases"]}) == 2
    assert max(len(case[part]) for case in found["cases"] for part in ("suite", "name")) < 540


def test_colours_are_taken_out_across_pieces(read):
    text = "<testsuite><testcase name='t'><failure>{}\x1b[31mred\x1b[0m{}</failure></testcase></testsuite>"
    found = read(a=text.format("x" * (1024 * 1024 - 44), ""))
    assert found["counts"]["failed"] == 1
    assert "repaired" in found["notes"][0]["reason"]


def test_many_documents_in_one_file_are_read_in_linear_time(read):
    document = (
        "<?xml version='1.0'?><testsuite name='s{0}'><testcase classname='c' name='t{0}'/></testsuite>\n"
    )
    assert read(a="".join(map(document.format, range(9_000))))["counts"]["tests"] == 9_000
    assert (
        "10,000 documents" in read(b="".join(map(document.format, range(10_001))))["unreadable"][0]["reason"]
    )


def test_a_comment_full_of_beginnings_of_documents_takes_linear_time(read):
    began = time.process_time()
    found = read(a=f"<testsuite><!-- {'<?xml ' * 1_000_000}--><testcase name='t'/></testsuite>")
    assert found["counts"]["tests"] == 1
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("encoding", "name"),
    [("Shift_JIS", "テスト"), ("Big5", "測試"), ("EUC-KR", "시험"), ("windows-1251", "тест")],
)
def test_encodings_of_many_bytes(read, encoding, name):
    text = f"<?xml version='1.0' encoding='{encoding}'?><testsuite><testcase name='{name}'/></testsuite>"
    found = read(a=text.encode(encoding))
    assert ([case["name"] for case in found["cases"]], found["notes"]) == ([name], [])


def test_a_transformation_is_no_report(read):
    found = read(
        a="<xsl:stylesheet xmlns:xsl='u'><xsl:template><testsuite><testcase name='t'/></testsuite></xsl:template>"
        "</xsl:stylesheet>"
    )
    assert (found["cases"], found["unreadable"], len(found["no_reports"])) == ([], [], 1)
