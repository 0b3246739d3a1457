"""The body of a notice: JSON of ours, or what an incoming webhook of Slack or of a workflow in Teams takes.

Every text may come from outside: it is one line without invisible characters, and has no meaning in any markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from bot.core.escaping import one_line, shorten
from bot.core.json_fields import iso_time
from bot.notify.receivers import DIGEST, TEST

if TYPE_CHECKING:
    from bot.notify.tables import NoticeRow

VERSION = 1  # of our JSON; fields may be added without another one
SLACK_HEADER, SLACK_SECTION, SLACK_TEXT = 150, 3_000, 3_900  # characters that Slack takes
MOST_TEAMS = 27_000  # bytes; Teams takes 28 KB
LINE, HEADING = 500, 300  # characters of ours
SIGNS = {
    "backend_red": "✕", "trunk_broken": "✕", "backend_silent": "!", "gate_waiting": "…",
    "backend_recovered": "✓", "backend_reporting": "✓", "trunk_repaired": "✓", "culprit_found": "!",
    DIGEST: "–", TEST: "–",  # noqa: RUF001 - a dash is the sign
}  # fmt: skip
_SLACK = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# a blank that takes no room keeps each of these from meaning anything in Markdown
_TEAMS = str.maketrans({sign: f"{sign}\u200b" for sign in "*_[]()<>`~#|!:/\\@-+"})
_MARKS = str.maketrans({sign: f"{sign}\u200b" for sign in "*_~`"})


def body_of(notice: NoticeRow, *, kind: str, url: str) -> bytes:
    """Return the body of a notice in one of the formats; `url` is the address of this bot."""
    make = {"json": _json, "slack": _slack, "teams": _teams}[kind]
    return msgspec.json.encode(make(_Words(notice, url)))


class _Words:
    """What a notice says, as plain text."""

    def __init__(self, notice: NoticeRow, url: str) -> None:
        self.notice = notice
        self.heading = shorten(one_line(notice["heading"]), HEADING)
        self.titled = f"{SIGNS.get(notice['event'], '–')} {self.heading}"  # noqa: RUF001 - a dash is the sign
        self.lines = [shorten(one_line(line), LINE) for line in notice["lines"]]
        self.url = f"{url}{notice['path']}" if notice["path"].startswith("/") else url


def _json(words: _Words) -> dict[str, Any]:
    notice = words.notice
    return {
        "version": VERSION,
        "id": notice["id"],
        "type": notice["event"],
        "timestamp": iso_time(notice["at"]),
        "data": {
            "heading": words.heading,
            "lines": words.lines,
            "since": None if notice["began_at"] is None else iso_time(notice["began_at"]),
            "repository": notice["repo"] or None,
            "branch": notice["branch"] or None,
            "backend": notice["backend"] or None,
            "oncalls": notice["oncalls"],
            "url": words.url,
        },
    }


def _slack(words: _Words) -> dict[str, Any]:
    """Return a message for an incoming webhook: blocks, and the text that notifications and old clients show."""
    lines = [line.translate(_SLACK).translate(_MARKS) for line in words.lines]
    link = f"<{words.url}|Open>"
    section = _fitting([f"• {line}" for line in lines], SLACK_SECTION - len(link) - 1)
    return {
        "text": words.titled.translate(_SLACK)[:SLACK_TEXT],
        "unfurl_links": False,
        "blocks": [
            {
                "type": "header",
                "text": {"type": "plain_text", "text": shorten(words.titled, SLACK_HEADER), "emoji": False},
            },
            {
                "type": "section",
                "text": {"type": "mrkdwn", "text": f"{section}\n{link}".strip(), "verbatim": True},
            },
        ],
    }


def _teams(words: _Words) -> dict[str, Any]:
    """Return a message for a workflow that was made to post to a channel when a webhook request is received."""
    kept = list(words.lines)
    while kept and len(msgspec.json.encode(_card(words, kept))) > MOST_TEAMS:
        kept.pop()
    return _card(words, kept)


def _card(words: _Words, lines: list[str]) -> dict[str, Any]:
    missing = len(words.lines) - len(lines)
    shown = [line.translate(_TEAMS) for line in lines] + ([f"and {missing} more"] if missing else [])
    title = {
        "type": "TextBlock",
        "text": words.titled.translate(_TEAMS),
        "weight": "Bolder",
        "size": "Medium",
    }
    texts = [title, *({"type": "TextBlock", "text": line, "spacing": "Small"} for line in shown)]
    return {
        "type": "message",
        "attachments": [
            {
                "contentType": "application/vnd.microsoft.card.adaptive",
                "contentUrl": None,
                "content": {
                    "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                    "type": "AdaptiveCard",
                    "version": "1.4",
                    "body": [{**text, "wrap": True} for text in texts],
                    "actions": [{"type": "Action.OpenUrl", "title": "Open", "url": words.url}],
                },
            }
        ],
    }


def _fitting(lines: list[str], most: int) -> str:
    """Return as many whole lines as fit, and how many are missing."""
    while (text := "\n".join(lines)) and len(text) > most:
        lines = [*lines[:-2], "• …"] if lines[-1] == "• …" else [*lines[:-1], "• …"]
        if lines == ["• …"]:
            break
    return text
