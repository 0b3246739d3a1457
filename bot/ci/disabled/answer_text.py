"""What our answer on an issue says: what it disables and where, or why it changes nothing, and how to undo it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core import escaping

if TYPE_CHECKING:
    from bot.ci.disabled.tables import DisablingRow

MARKER = "<!-- ootbot:disabled -->"
SHOWN = 50  # tests that are named


def render_answer(issue: DisablingRow, page: str | None) -> str:
    """Return the answer on an issue; `page` is the address of the list of its repository."""
    lines = [MARKER, _effect(issue), ""]
    if issue["listed"]:
        for name, platforms in issue["entries"][:SHOWN]:
            lines.append(f"- {escaping.code(name)} {_where(platforms)}")
        if len(issue["entries"]) > SHOWN:
            lines.append(f"- and {len(issue['entries']) - SHOWN} more")
    if issue["problems"]:
        lines += ["", "Not understood:" if issue["listed"] else "Because:"]
        lines += [f"- {escaping.text(problem)}" for problem in issue["problems"]]
    if issue["listed"]:
        lines += ["", "Close this issue to undo it. A pull request that says it closes this issue is exempt."]
    if address := escaping.url(page):
        lines += ["", f"[All of them]({address})"]
    return "\n".join(lines)


def _effect(issue: DisablingRow) -> str:
    if not issue["listed"]:
        return "**This issue disables nothing.**"
    if issue["unstable"]:
        return "**While this issue is open, this job may fail:**"
    what = "this job is" if issue["kind"] == "job" else _counted(len(issue["entries"]))
    return f"**While this issue is open, {what} skipped:**"


def _counted(tests: int) -> str:
    return "this test is" if tests == 1 else f"these {tests} tests are"


def _where(platforms: list[str]) -> str:
    return f"on {', '.join(map(escaping.code, platforms))}" if platforms else "everywhere"
