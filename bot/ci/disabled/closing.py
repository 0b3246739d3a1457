"""The issues that a text closes, by the keywords of GitHub's documentation on linking a pull request to an issue.

A keyword, perhaps with a colon, and an issue: `Closes #10`, `FIXES: #10`, `resolved owner/repo#10`, or its address.
"""

from __future__ import annotations

import re2

from bot.core.json_fields import FULL_NAME

TEXT_MOST = 262_144  # characters of one text; GitHub allows descriptions of 65,536
ISSUES_MOST = 1_000  # closed by one text
_REPO = FULL_NAME.pattern
_CLOSES = re2.compile(
    r"(?i)\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)(?::\s*|\s+)"
    rf"(?:({_REPO})?#|https?://[a-z0-9.:-]{{1,100}}/({_REPO})/issues/)([0-9]{{1,10}})\b"
)
_HIDDEN = re2.compile(r"(?s)<!--.*?(?:-->|$)|(?m:^)[ \t]*```.*?(?:(?m:^)[ \t]*```|$)|`[^`\n]*`")


def closed_issues(text: str, repo: str) -> set[tuple[str, int]]:
    """Return repository (case folded) and number of the issues that a text in a repository closes."""
    found: set[tuple[str, int]] = set()
    rest = text[:TEXT_MOST]
    for match in _CLOSES.finditer(rest):
        named, addressed, number = match.groups()
        found.add(((named or addressed or repo).casefold(), int(number)))
        if len(found) == ISSUES_MOST:
            break
    return found


def closed_by_description(text: str, repo: str) -> set[tuple[str, int]]:
    """Return the issues that a pull request's description closes; what stands in comments and code closes nothing."""
    return closed_issues(_HIDDEN.sub(" ", text[:TEXT_MOST]), repo)
