"""What is read from JUnit XML, producer by producer, as `ootbot tests read` says it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from bot.cli import main
from bot.evidence.collect.parse.contract import Broken, Refused
from bot.evidence.tests.parse.junit import NoReport
from bot.evidence.tests.parse.reports import parse_report
from tests.samples import each

ROOT = Path(__file__).parents[3]
FAIL = "<failure message='no'>trace</failure>"
PRODUCERS = {
    "pytest, passed at the second attempt": (
        (
            "<testsuites name='pytest tests'><testsuite name='x'><testcase classname='a' name='t'/>"
            "<testcase classname='a' name='t'/></testsuite></testsuites>"
        ),
        [("t", "passed", 2, 1)],
        1,
    ),
    "pytest, failed three times": (
        (
            "<testsuite name='pytest'><testcase classname='a' name='t'/><testcase classname='a' name='t'/>"
            f"<testcase classname='a' name='t'>{FAIL}</testcase></testsuite>"
        ),
        [("t", "failed", 3, 3)],
        0,
    ),
    "pytest, a failure that says why is no re-run": (
        (
            f"<testsuite name='pytest'><testcase classname='a' name='t'>{FAIL}</testcase>"
            "<testcase classname='a' name='t'/></testsuite>"
        ),
        [("t", "failed", 1, 1)],
        0,
    ),
    "pytest, the same test in two suites is no re-run": (
        (
            "<testsuites><testsuite name='pytest'><testcase classname='a' name='t'/></testsuite>"
            "<testsuite name='pytest'><testcase classname='a' name='t'/></testsuite></testsuites>"
        ),
        [("t", "passed", 1, 0), ("t", "passed", 1, 0)],
        0,
    ),
    "PyTorch's pytest": (
        "<testsuite name='pytest'><testcase classname='a' name='t'><rerun message='m'>text</rerun></testcase></testsuite>",
        [("t", "passed", 2, 1)],
        1,
    ),
    "pytest, expected failures": (
        (
            "<testsuite name='pytest'><testcase name='x'><skipped type='pytest.xfail' message='later'/></testcase>"
            "<testcase name='s'><skipped type='pytest.skip'/></testcase>"
            "<testcase name='p'><failure message='[XPASS(strict)] fixed'/></testcase></testsuite>"
        ),
        [("x", "xfailed", 1, 0), ("s", "skipped", 1, 0), ("p", "failed", 1, 1)],
        0,
    ),
    "unittest-xml-reporting": (
        (
            "<testsuite name='m.C' tests='17'><testcase classname='m.C' name='setUpClass (m.C)' file='m.py'>"
            "<error type='E' message='e'/></testcase></testsuite>"
        ),
        [("setUpClass (m.C)", "error", 1, 1)],
        0,
    ),
    "Surefire, flaky": (
        (
            "<testsuite><testcase name='t'><flakyFailure message='f'><stackTrace>s</stackTrace>"
            "<system-out>o</system-out></flakyFailure><flakyError message='e'/></testcase></testsuite>"
        ),
        [("t", "passed", 3, 2)],
        1,
    ),
    "Surefire, failed again": (
        f"<testsuite><testcase name='t'>{FAIL}<rerunFailure message='m'/></testcase></testsuite>",
        [("t", "failed", 2, 2)],
        0,
    ),
    "two tests of one name, or one test with two sets of data": (
        f"<testsuite><testcase name='t'>{FAIL}</testcase><testcase name='t'/></testsuite>",
        [("t", "failed", 1, 1)],
        0,
    ),
    "a pass, then a failure": (
        f"<testsuite><testcase name='t'/><testcase name='t'>{FAIL}</testcase></testsuite>",
        [("t", "failed", 1, 1)],
        0,
    ),
    "gtest": (
        (
            "<testsuites><testsuite name='S'><testcase name='a/0' status='notrun' classname='S'/>"
            "<testcase name='b' status='run' result='suppressed'/><testcase name='c' status='run' result='completed'/>"
            f"<testcase name='d' status='run' result='completed'>{FAIL}{FAIL}</testcase></testsuite></testsuites>"
        ),
        [("b", "skipped", 1, 0), ("c", "passed", 1, 0), ("d", "failed", 1, 1), ("a/0", "skipped", 1, 0)],
        0,
    ),
    "ctest": (
        (
            "<testsuite><testcase name='t' classname='t' status='fail'><failure message=''/><system-out>said</system-out>"
            "</testcase><testcase name='u' status='disabled'/></testsuite>"
        ),
        [("t", "failed", 1, 1), ("u", "skipped", 1, 0)],
        0,
    ),
    "only a status says that it failed": (
        "<testsuite><testcase name='t' status='failed'/></testsuite>",
        [("t", "failed", 1, 1)],
        0,
    ),
    "failure and error": (
        f"<testsuite><testcase name='t'><error message='e'/>{FAIL}</testcase></testsuite>",
        [("t", "failed", 1, 1)],
        0,
    ),
    "nested suites, namespaces and unknown elements": (
        (
            "<n:testsuites xmlns:n='u'><n:testsuite><x><y/></x><n:testsuite><n:testcase name='t'><n:properties>"
            "<n:failure/></n:properties></n:testcase></n:testsuite></n:testsuite></n:testsuites>"
        ),
        [("t", "passed", 1, 0)],
        0,
    ),
    "names that look like numbers, and newlines": (
        "<testsuite><testcase name='1e5'/><testcase name='nan'/><testcase name='a&#10;b'/></testsuite>",
        [("1e5", "passed", 1, 0), ("nan", "passed", 1, 0), ("a\nb", "passed", 1, 0)],
        0,
    ),
}
LAUGHS = "<!DOCTYPE l [<!ENTITY a 'ha'>" + "".join(
    f"<!ENTITY {b} '{f'&{a};' * 10}'>" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
PARTS = (
    b"<?xml version='1.0' encoding='gbk'?>", b"<?xml version='1.0' encoding='utf-16'?>", b"<?xml version='1.0'?>",
    b"<testsuites name='pytest tests'>", b"<testsuites>", b"<testsuite name='a' failures='9'>", b"<testsuite>",
    b"<testcase name='t' classname='c' line='3'/>", b"<testcase name='t' classname='c' line='4'>", b"<testcase/>",
    b"<failure message='m'>", b"<error/>", b"<skipped type='todo'/>", b"<flakyFailure/>", b"<system-out>", b"<properties/>",
    b"</system-out>", b"</failure>", b"</testcase>", b"</testsuite>", b"</testsuites>", b"\x1b[31m", b"&#27;", b"&#0;",
    b"\xff\xfe", b"\0", b"\xc2", b"text", b"]]>", b"<![CDATA[", b"<!-- ", b" -->", b"<!DOCTYPE x>", b"<gtester>", b"&amp;",
    b"<xsl:stylesheet>", b"\n", b"name='" + b"n" * 2_000 + b"'", b"<a:testsuite xmlns:a='u'>",
)  # fmt: skip


def run(*paths):
    return CliRunner().invoke(main, ["tests", "read", *map(str, paths), "--json"])


def said(*paths):
    done = run(*paths)
    return json.loads(done.output)


@pytest.fixture
def read(tmp_path):
    def read(text, name="report.xml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return said(path)

    return read


def cases(found):
    return [
        (case["name"], case["outcome"], case["attempts"], case["failed_attempts"]) for case in found["cases"]
    ]


@pytest.mark.parametrize("producer", PRODUCERS)
def test_cases_and_attempts_of_each_producer(read, producer):
    text, expected, flaky = PRODUCERS[producer]
    found = read(text)
    assert found["unreadable"] == []
    assert sorted(cases(found)) == sorted(expected)
    assert found["counts"]["flaky"] == flaky
    counts = found["counts"]
    assert counts["tests"] == len(expected) == sum(counts.values()) - counts["tests"] - counts["flaky"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.0015", 2),
        ("1,234.5", 1_234_500),
        ("", None),
        ("NaN", None),
        ("-1", None),
        ("inf", None),
        ("1_0", None),
        ("soon", None),
        ("604800", 604_800_000),
        ("604801", None),
    ],
)
def test_a_time_is_a_number_or_nothing(read, text, expected):
    (case,) = read(f"<testsuite><testcase name='t' time='{text}'/></testsuite>")["cases"]
    assert case["time_ms"] == expected


@pytest.mark.parametrize(
    ("suite", "attributes", "file", "classname"),
    [
        ("x", "classname='test.inductor.test_x.TestY'", "inductor/test_x.py", "TestY"),
        ("x", "classname='.TestFoo'", "", ".TestFoo"),
        ("x", "classname='a.b.'", "", "a.b."),
        ("x", "classname='TestFoo'", "", "TestFoo"),
        ("x", "classname='test.TestFoo'", "", "TestFoo"),
        ("x", "classname='a.TestFoo' file='b.py'", "b.py", "a.TestFoo"),
        ("x", "classname='github.com/org/pkg'", "", "github.com/org/pkg"),
        ("pytest", "classname='pkg.test_a'", "pkg/test_a.py", ""),
        ("pytest", "classname='pkg.test_a.TestB'", "pkg/test_a.py", "TestB"),
        ("pytest", "classname='pkg.test_a.TestB.TestC'", "pkg/test_a.py", "TestB.TestC"),
        ("x", "", "", "x"),
    ],
)
def test_file_and_suite_of_a_case(read, suite, attributes, file, classname):
    (case,) = read(f"<testsuite name='{suite}'><testcase name='t' {attributes}/></testsuite>")["cases"]
    assert (case["file"], case["suite"]) == (file, classname)


def test_messages_are_cut(read):
    (case,) = read(f"<testsuite><testcase name='t'><failure message='{'é' * 3000}'/></testcase></testsuite>")[
        "cases"
    ]
    assert case["message"] == "é" * 512
    (case,) = read("<testsuite><testcase name='t'><error>\n first\nsecond</error></testcase></testsuite>")[
        "cases"
    ]
    assert case["message"] == "first"


@pytest.mark.parametrize(
    "content",
    [
        "\N{BYTE ORDER MARK}<testsuite><testcase name='é'/></testsuite>".encode(),
        "<testsuite><testcase name='é'/></testsuite>".encode("utf-16"),
        "<?xml version='1.0' encoding='latin-1'?><testsuite><testcase name='é'/></testsuite>".encode(
            "latin-1"
        ),
        "\n<?xml version='1.0' encoding='utf-8'?><testsuite><testcase name='é'/></testsuite>".encode(),
        "<?xml version='1.0' encoding='ISO-8859-15'?><testsuite><testcase name='é'/></testsuite>".encode(
            "iso8859-15"
        ),
        "<?xml version='1.0' encoding='gb18030'?><testsuite><testcase name='é'/></testsuite>".encode(
            "gb18030"
        ),
    ],
)
def test_encodings(read, content):
    assert [case["name"] for case in read(content)["cases"]] == ["é"]


def suite(inner):
    return f"<testsuite>{inner}</testsuite>"


def attribute(length):
    return suite(f"<testcase name='{'a' * length}'/>")


def attributes(count):
    return suite("<testcase " + " ".join(f"a{number}=''" for number in range(count)) + "/>")


def nested(depth):
    return "<testsuite>" * depth + "</testsuite>" * depth


@pytest.mark.parametrize("text", [attribute(64 * 1024), attributes(64), nested(64), "<testsuites/>"])
def test_at_the_limit_a_report_is_read(read, text):
    assert read(text)["unreadable"] == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (LAUGHS + "]><testsuite><testcase name='&i;'/></testsuite>", "DOCTYPE"),
        ("<!DOCTYPE x SYSTEM 'file:///etc/hostname'><testsuite/>", "DOCTYPE"),
        (attribute(64 * 1024 + 1), "attribute of 65,537"),
        (attribute(4 * 1024 * 1024), "attribute of 4,194,304"),
        (attribute(12 * 1024 * 1024), "8 MiB"),
        (attributes(65), "65 attributes"),
        (nested(65), "64 deep"),
        ("<testsuite>\n<testcase name='a'/>\n<testcase", "truncated at line 3"),
        ("<testsuite>\n<testcase name='a'/>\n", "truncated at line 3"),
        ("<testsuite><testcase></testsuite>", "line 1: mismatched tag"),
        ("", "empty"),
        ("<gtester><testbinary><testcase path='t'/></testbinary></gtester>", "GLib's gtester"),
        ("<?xml version='1.0' encoding='no-such'?><testsuite/>", "encoding"),
        ("<testsuite><testcase name=t/></testsuite>", "line 1: not well-formed"),
    ],
)
def test_a_hostile_or_broken_report_is_named_and_gives_no_case(read, tmp_path, content, reason):
    found = read(content)
    assert found["cases"] == []
    (unreadable,) = found["unreadable"]
    assert reason in unreadable["reason"]
    assert run(tmp_path / "report.xml").exit_code == 1


@pytest.fixture
def fifty(tmp_path):
    """Fifty reports, one of them broken."""
    return [
        (
            f"sub/r{number:02}.xml",
            suite(f"<testcase name='t{number}'/>") if number != 7 else "<testsuite>\n\n<testcase",
        )
        for number in range(50)
    ]


def test_one_unreadable_report_of_an_archive_is_named_and_the_others_are_read(tmp_path, fifty):
    path = tmp_path / "reports.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in [*fifty, ("notes.txt", "x")]:
            archive.writestr(name, text)
    found = said(path)
    assert found["counts"]["tests"] == 49
    assert found["unreadable"] == [{"member": "sub/r07.xml", "reason": "truncated at line 3"}]
    assert run(path).exit_code == 0
    plain = CliRunner().invoke(main, ["tests", "read", str(path)]).output
    assert "1 of 50 reports unreadable" in plain


def test_a_folder_is_read_like_an_archive(tmp_path, fifty):
    for name, text in fifty:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = said(tmp_path)
    assert (found["counts"]["tests"], [one["member"] for one in found["unreadable"]]) == (49, ["sub/r07.xml"])


def test_all_paths_are_one_job_and_the_same_report_counts_once(tmp_path):
    for name, text in {
        "a/r.xml": suite(f"<testcase name='t'>{FAIL}</testcase>"),
        "b/r.xml": suite("<testcase name='t'/>"),
        "c/r.xml": suite("<testcase name='t'/>"),
    }.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    assert cases(said(*(tmp_path / folder / "r.xml" for folder in "abc"))) == [
        ("t", "failed", 1, 1),
        ("t", "passed", 1, 0),
    ]


def test_a_test_launched_by_two_files_is_two_cases(tmp_path):
    for launcher in ("test_ninja", "test_no_ninja"):
        folder = tmp_path / "test" / "test-reports" / "python-unittest" / launcher
        folder.mkdir(parents=True)
        (folder / "r.xml").write_text(suite(f"<testcase name='{'t'}' time='{len(launcher)}'/>"))
    assert said(tmp_path)["counts"]["tests"] == 2


def test_an_archive_that_is_none_is_named(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 torn")
    found = said(tmp_path / "a.zip")
    assert found["unreadable"][0]["member"].endswith("a.zip")


def test_a_time_that_no_test_can_have_taken_is_left_out_and_said(tmp_path):
    (tmp_path / "r.xml").write_text(
        suite("<testcase name='a' time='604801'/><testcase name='b' time='1'/><testcase name='c' time='-1'/>")
    )
    found = said(tmp_path / "r.xml")
    assert [case["time_ms"] for case in found["cases"]] == [None, 1000, None]
    assert found["times_left_out"] == 1
    plain = CliRunner().invoke(main, ["tests", "read", str(tmp_path / "r.xml")]).output
    assert "times left out, as they are over seven days: 1" in plain


def test_words_from_outside_are_one_visible_line(tmp_path):
    (tmp_path / "r.xml").write_text(
        suite("<testcase name='a&#10;\u202eb'><failure message='&#10;x'/></testcase>")
    )
    plain = CliRunner().invoke(main, ["tests", "read", str(tmp_path / "r.xml")]).output
    assert "  a b: x" in plain


@pytest.mark.nightly
def test_reports_of_very_many_suites_are_refused(read):
    def of(count):
        return suite("".join(f"<testcase classname='c{number}'/>" for number in range(count)))

    assert read(of(100_000))["counts"]["tests"] == 100_000
    assert read(of(100_001))["unreadable"][0]["reason"] == "over 100,000 suites"


def test_the_reader_loads_no_database_and_no_server():
    """The parser child runs it; an import contract says the same of our own modules."""
    code = "import sys, bot.evidence.tests.parse.reports; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"aiohttp", "sqlalchemy", "asyncio"} & set(done.stdout.split())


def test_a_path_that_is_not_there_is_a_wrong_command(tmp_path):
    assert run(tmp_path / "none.xml").exit_code == 2


def pieces(content, seed):
    """A content in pieces of any size, as often as it is asked for."""
    cuts = sorted(random.Random(seed).choices(range(len(content) + 1), k=3))
    return lambda: (content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True))


def generated(seed):
    chance = random.Random(seed)
    parts = list(chance.choices(PARTS, k=chance.randrange(1, 30)))
    if chance.random() < 0.7:  # most of a report that is whole
        parts = [b"<testsuites><testsuite name='s'>", *parts[:6], b"</testsuite></testsuites>", *parts[6:8]]
    return b"".join(parts)


@pytest.mark.parametrize("block", each(10, range(20)))
def test_whatever_a_report_holds_it_is_read_or_named_with_a_reason(block):
    read, reasons = 0, set()
    for seed in range(block * 100, block * 100 + 100):
        try:
            report = parse_report("r.xml", pieces(generated(seed), seed))
        except (Broken, Refused, NoReport) as error:
            reasons.add(str(error))
        else:
            read += 1
            counted = sum(len(group.in_order()) for group in report.cases.groups.values())
            assert counted == len(report.cases)
    assert read < 100
    assert "" not in reasons
