"""What the title and body of an issue disable, and which issues a text closes: one line a case."""

from __future__ import annotations

import pytest

from bot.evidence.disabled import issue_text
from bot.evidence.disabled.issue_text import Entry
from bot.evidence.disabled.pull_closes import ISSUES_MOST, closed_by_description, closed_issues

TEST = "test_x (__main__.TestY)"
DEVICES = frozenset({"npu"})
HERE, OTHER = "Org/Repo", "octo-org/octo-repo"


def read(title, body=""):
    return issue_text.read_issue(title, body, DEVICES)


@pytest.mark.parametrize(
    ("body", "platforms"),
    [
        pytest.param("", (), id="without a body on all"),
        pytest.param(None, (), id="null"),
        pytest.param("It fails.\nPlatforms: linux, win\nbye", ("linux", "win"), id="a line"),
        pytest.param("  platforms:NPU,,\tLinux ", ("linux", "npu"), id="any case, any space, a device"),
        pytest.param("PLATFORMS:", (), id="an empty line means all"),
        pytest.param("see platforms: linux", (), id="not at the start of a line"),
        pytest.param("Platforms: mac\nPlatforms: linux", ("mac",), id="the first line counts"),
        pytest.param("Platforms: rocm\r\nmore\r\n", ("rocm",), id="line ends of Windows"),
    ],
)
def test_platforms_of_a_test(body, platforms):
    found = read(f"DISABLED {TEST}", body)
    assert (found.kind, found.entries) == ("test", (Entry(name=TEST, platforms=platforms),))
    assert found.problems == ()


def test_unknown_platforms_are_named_and_dropped():
    found = read(f"DISABLED {TEST}", "Platforms: linux, amiga")
    assert found.entries == (Entry(name=TEST, platforms=("linux",)),)
    assert found.problems == ("unknown platform: amiga",)


def test_only_unknown_platforms_disable_nothing():
    found = read(f"DISABLED {TEST}", "Platforms: amiga")
    assert found.entries == ()
    assert "nothing is disabled" in found.problems[-1]


@pytest.mark.parametrize(
    "title",
    ["DISABLED   test_x   (__main__.TestY)  ", "DISABLED test_x\t(__main__.TestY)"],
)
def test_space_in_titles_does_not_matter(title):
    assert read(title).entries == (Entry(name=TEST),)


@pytest.mark.parametrize(
    "name", ["test_x", "test_x (a b)", "test_x[cpu] (C)", "test_x (C) again", "test_ü (C)"]
)
def test_titles_that_begin_as_a_test_have_to_name_one(name):
    found = read(f"DISABLED {name}")
    assert (found.kind, found.entries) == ("test", ())
    assert "neither a test" in found.problems[0]


@pytest.mark.parametrize(
    ("title", "unstable"),
    [("DISABLED pull / linux / test (default)", False), ("UNSTABLE pull / linux / test (default)", True)],
)
def test_anything_else_is_a_job(title, unstable):
    found = read(title)
    assert (found.kind, found.unstable) == ("job", unstable)
    assert [entry.name for entry in found.entries] == ["pull / linux / test (default)"]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("pull / linux / test (default)", ("pull", "linux", "test (default)")),
        ("pull/linux", ("pull", "linux", "")),
        ("nightly", ("nightly", "", "")),
        ("a / b / c / d", ("a", "b", "c / d")),
    ],
)
def test_parts_of_a_job(name, parts):
    assert issue_text.job_parts(name) == parts


def test_several_tests_in_one_issue():
    body = (
        "Words.\n```\ntest_no (A.B)\n```\n Disable the following tests: \n\nmore\n```python\n"
        "test_a (__main__.A): linux, win\n\n test_b (__main__.B)\ntest_c (C): amiga\nnonsense\n"
        "test_d (D): amiga, npu\n```\n```\ntest_no (A.B)\n```"
    )
    found = read("DISABLED MULTIPLE dynamo tests", body)
    assert found.entries == (
        Entry(name="test_a (__main__.A)", platforms=("linux", "win")),
        Entry(name="test_b (__main__.B)"),
        Entry(name="test_d (D)", platforms=("npu",)),
    )
    assert found.problems == (
        "test_c (C): unknown platform: amiga",
        "test_c (C): no platform is left, so nothing is disabled",
        "not a test with its class: nonsense",
        "test_d (D): unknown platform: amiga",
    )


@pytest.mark.parametrize("body", ["", "```\ntest_a (A)\n```", "disable the following tests:\ntest_a (A)"])
def test_a_list_that_is_not_there_is_said(body):
    found = read("DISABLED MULTIPLE", body)
    assert found.entries == ()
    assert "code block" in found.problems[0]


@pytest.mark.parametrize(
    "body",
    [
        "disable the following tests:\n```\n" + "x" * 10_000_000,
        "disable the following tests:\n```\n" + "test_x (\n" * 1_000_000,
        "platforms:" + "," * 10_000_000,
        "platforms:" + "a," * 5_000_000,
        "disable the following tests:\n```\ntest_x (C):" + "b," * 5_000_000,
    ],
    ids=lambda body: body[:40],
)
@pytest.mark.parametrize("title", ["DISABLED MULTIPLE", f"DISABLED {TEST}"])
def test_answers_to_hostile_bodies_are_short(title, body):
    found = read(title, body)
    assert len(found.problems) <= issue_text.PROBLEMS_MOST + 1
    assert all(len(problem) < 500 for problem in found.problems)


@pytest.mark.parametrize(
    "keyword",
    [
        "close",
        "closes",
        "closed",
        "fix",
        "fixes",
        "fixed",
        "resolve",
        "resolves",
        "resolved",
        "CLOSES",
        "Fixes",
    ],
)
@pytest.mark.parametrize("colon", ["", ":"])
def test_every_keyword_of_the_documentation(keyword, colon):
    assert closed_issues(f"{keyword}{colon} #10", HERE) == {("org/repo", 10)}


@pytest.mark.parametrize(
    ("text", "issues"),
    [
        (
            "Resolves #10, resolves #123, resolves octo-org/octo-repo#100",
            {(HERE, 10), (HERE, 123), (OTHER, 100)},
        ),
        ("Fixes #1, #2", {(HERE, 1)}),
        ("fixes #1 fixes #2\nfixes\n#3", {(HERE, 1), (HERE, 2), (HERE, 3)}),
        ("(fixes #7).", {(HERE, 7)}),
        ("fixes:#7", {(HERE, 7)}),
        ("Fixes https://github.com/octo-org/octo-repo/issues/5", {(OTHER, 5)}),
        ("Fixes https://github.com/octo-org/octo-repo/pull/5", set()),
        ("see #10", set()),
        ("fixing #10, fix#10, prefixes #10, fix 10, fix # 10", set()),
        ("fixes #10a", set()),
        ("fixes a/b/c#10", set()),
        ("fixes #99999999999", set()),
        ("", set()),
    ],
)
def test_forms(text, issues):
    assert closed_issues(text, HERE) == {(repo.casefold(), number) for repo, number in issues}


@pytest.mark.parametrize(
    "text",
    [
        "<!-- Fixes #1 -->",
        "<!-- Fixes #1",
        "```\nFixes #1\n```",
        "  ```text\nFixes #1\n",
        "write `Fixes #1` here",
    ],
)
def test_comments_and_code_close_nothing(text):
    assert closed_by_description(text, HERE) == set()
    assert closed_by_description(f"{text}\n```\n-->\n\nFixes #2", HERE) <= {("org/repo", 2)}
    assert closed_by_description(f"Fixes #2\n{text}", HERE) == {("org/repo", 2)}


@pytest.mark.parametrize(
    "text", ["fixes " * 200_000, "fixes #1 " * 200_000, "<!--" * 200_000, "`" * 1_000_000]
)
def test_answers_to_hostile_texts_are_short(text):
    assert len(closed_by_description(text, HERE)) <= 1
    many = closed_issues(" ".join(f"fixes #{number}" for number in range(100_000)), HERE)
    assert len(many) == ISSUES_MOST
