"""Which issues a text closes: GitHub's keywords, one line a case."""

from __future__ import annotations

import pytest

from bot.evidence.disabled.pull_closes import ISSUES_MOST, closed_by_description, closed_issues

HERE, OTHER = "Org/Repo", "octo-org/octo-repo"


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
