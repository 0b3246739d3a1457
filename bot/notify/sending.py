"""The task `notify`: sends a receiver the notices that wait for it, the oldest first (key: its name).

A notice has the same id in every attempt, so that a receiver can recognize one that it gets twice: after a crash or a
lost answer it is sent again. What cannot be sent for a day is given up, and shown to the operator. Every text may come
from outside: it becomes one line without invisible characters, and means nothing in any markup.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
import structlog

import bot
from bot.context import Resource
from bot.core import metrics
from bot.core.errors import RetryLater, in_words
from bot.core.escaping import one_line, shorten
from bot.core.json_fields import iso_time
from bot.github.download import AddressGuard, DownloadRefused
from bot.notify import rows
from bot.notify.receivers import DIGEST, TEST, NotifySettings
from bot.notify.rows import hidden_of, is_hidden

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.notify.receivers import Receiver
    from bot.notify.tables import NoticeRow, SendingRow
    from bot.queue.tasks import Task

VERSION = 1  # of our JSON; fields may be added without another one
SLACK_HEADER, SLACK_SECTION, SLACK_TEXT = 150, 3_000, 3_900  # characters that Slack takes
MOST_TEAMS = 27_000  # bytes; Teams takes 28 KB
LINE_MOST, HEADING_MOST = 500, 300  # characters of ours
SIGNS = {
    "backend_red": "✕", "trunk_broken": "✕", "backend_silent": "!", "gate_waiting": "…",
    "backend_recovered": "✓", "backend_reporting": "✓", "trunk_repaired": "✓", "culprit_found": "!",
    DIGEST: "–", TEST: "–",  # noqa: RUF001 - a dash is the sign
}  # fmt: skip
_SLACK = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# a blank that takes no room keeps each of these from meaning anything in Markdown
_TEAMS = str.maketrans({sign: f"{sign}\u200b" for sign in "*_[]()<>`~#|!:/\\@-+"})
_MARKS = str.maketrans({sign: f"{sign}\u200b" for sign in "*_~`"})
CONNECT_TIMEOUT, WHOLE_TIMEOUT = 5, 10  # seconds: to connect, in all
MOST_ANSWER = 500  # bytes of an answer that are read, to be shown
LONGEST_WAIT = 3_600  # seconds that a receiver may ask us to wait
FINAL_STATUSES = frozenset({400, 410, 413, 422})  # the same notice will never be taken
log = structlog.get_logger("bot.notify.sending")

SEND_TASK = "notify"
BACKOFF = (5.0, 30.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0)  # seconds
GIVE_UP_AFTER = 86_400_000  # milliseconds


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The result of one attempt; without an error it succeeded."""

    error: str = ""
    final: bool = False  # another attempt would end the same
    after: float | None = None  # seconds the receiver asks to wait


def body_of(notice: NoticeRow, *, kind: str, url: str) -> bytes:
    """Return the body of a notice in one of the formats; `url` is the address of this bot."""
    make = {"json": _json_body, "slack": _slack_body, "teams": _teams_body}[kind]
    return msgspec.json.encode(make(_NoticeWords(notice, url)))


def sign_notice(body: bytes, *, identifier: str, at: int, keys: Sequence[bytes]) -> dict[str, str]:
    """Return the headers that identify a notice and prove its origin; `at` is in seconds.

    The signature is an HMAC-SHA256 over `id.timestamp.body`, one for each key.
    """
    signed = b".".join((identifier.encode(), str(at).encode(), body))
    digests = [hmac.new(key, signed, hashlib.sha256).digest() for key in keys]
    headers = {"webhook-id": identifier, "webhook-timestamp": str(at)}
    if digests:
        headers["webhook-signature"] = " ".join(
            f"v1,{base64.b64encode(digest).decode()}" for digest in digests
        )
    return headers


class Webhooks:
    """Posts to receivers: one session for those that may be in our own network, one for all others."""

    def __init__(self, *, own_port: int, proxy: str | None) -> None:
        self._guards = {
            internal: AddressGuard(own_port=own_port, proxy=proxy, internal=internal)
            for internal in (False, True)
        }
        self._sessions = {
            internal: aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=guard.resolver(), limit=20, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                proxy=proxy,
                timeout=aiohttp.ClientTimeout(total=WHOLE_TIMEOUT, connect=CONNECT_TIMEOUT),
            )
            for internal, guard in self._guards.items()
        }

    async def close(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            await session.close()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, internal: bool) -> Attempt:
        """Post a body once."""
        sent = {"Content-Type": "application/json", "User-Agent": f"ootbot/{bot.__version__}", **headers}
        try:
            address = await self._guards[internal].parse(url)
            response = await self._sessions[internal].post(
                address, data=body, headers=sent, allow_redirects=False
            )
            async with response:
                return await _judge_answer(response)
        except DownloadRefused as error:
            hint = "" if internal else "; internal = true allows addresses in our own network"
            return Attempt(error=f"the address is refused: {error}{hint}", final=True)
        except (aiohttp.ClientError, TimeoutError) as error:
            return Attempt(error=in_words(error)[:300])


def _make_webhooks(context: Context) -> Webhooks:
    return Webhooks(own_port=context.settings.port, proxy=context.settings.proxy)


WEBHOOKS: Resource[Webhooks] = Resource("notify webhooks", _make_webhooks)


def request_sending(tx: Transaction, receiver: Receiver) -> None:
    """Queue the sending to a receiver, for the end of its quiet hours."""
    tx.enqueue(SEND_TASK, receiver.name, delay=receiver.quiet_seconds(tx.now))


def find_receiver(settings: Settings, name: str) -> Receiver | None:
    """Return a receiver by its name."""
    return next((receiver for receiver in settings.of(NotifySettings).notify if receiver.name == name), None)


async def send_notices(context: Context, task: Task) -> None:
    """Send a receiver what waits for it; raises RetryLater if it does not take it yet."""
    receiver = find_receiver(context.settings, task.key)
    if receiver is None:
        return  # what waits for it is dropped
    if wait := receiver.quiet_seconds(context.clock.now()):
        raise RetryLater("its quiet hours", after=wait)
    while True:
        async with context.store.read() as tx:
            waiting = await rows.waiting_notices(tx, receiver.name)
            hidden = await hidden_of(tx, context.settings, receiver.audience)
        for row, notice in waiting:
            if is_hidden(hidden, notice):
                await _drop_notice(context, row)
            else:
                await _send_notice(context, receiver, row, notice)
        if len(waiting) < rows.AT_ONCE:
            return


async def post_notice(
    webhooks: Webhooks, receiver: Receiver, notice: NoticeRow, *, url: str, now: int
) -> Attempt:
    """Post a notice to a receiver once; `url` is the address of this bot."""
    body = body_of(notice, kind=receiver.format, url=url)
    headers = sign_notice(body, identifier=notice["id"], at=now // 1000, keys=receiver.keys)
    return await webhooks.post(receiver.url, body, headers, internal=receiver.internal)


class _NoticeWords:
    """What a notice says, as plain text."""

    def __init__(self, notice: NoticeRow, url: str) -> None:
        self.notice = notice
        self.heading = shorten(one_line(notice["heading"]), HEADING_MOST)
        self.titled = f"{SIGNS.get(notice['event'], '–')} {self.heading}"  # noqa: RUF001 - a dash is the sign
        self.lines = [shorten(one_line(line), LINE_MOST) for line in notice["lines"]]
        self.url = f"{url}{notice['path']}" if notice["path"].startswith("/") else url


def _json_body(words: _NoticeWords) -> dict[str, Any]:
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


def _slack_body(words: _NoticeWords) -> dict[str, Any]:
    """Return a message for an incoming webhook: blocks, and the text that notifications and old clients show."""
    lines = [line.translate(_SLACK).translate(_MARKS) for line in words.lines]
    link = f"<{words.url}|Open>"
    section = _fitting_lines([f"• {line}" for line in lines], SLACK_SECTION - len(link) - 1)
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


def _teams_body(words: _NoticeWords) -> dict[str, Any]:
    """Return a message for a workflow of Teams that posts webhook requests to a channel."""
    kept = list(words.lines)
    while kept and len(msgspec.json.encode(_teams_card(words, kept))) > MOST_TEAMS:
        kept.pop()
    return _teams_card(words, kept)


def _teams_card(words: _NoticeWords, lines: list[str]) -> dict[str, Any]:
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


def _fitting_lines(lines: list[str], most: int) -> str:
    """Return as many whole lines as fit, and an ellipsis for the others."""
    while (text := "\n".join(lines)) and len(text) > most:
        lines = [*lines[:-2], "• …"] if lines[-1] == "• …" else [*lines[:-1], "• …"]
        if lines == ["• …"]:
            break
    return text


async def _judge_answer(response: aiohttp.ClientResponse) -> Attempt:
    status = response.status
    if 200 <= status < 300:
        return Attempt()
    if 300 <= status < 400:
        return Attempt(
            error=f"it answered {status}: redirects are not followed, write the final url", final=True
        )
    said = one_line((await response.content.read(MOST_ANSWER)).decode("utf-8", "replace"))[:200]
    asked = response.headers.get("Retry-After", "")
    after = (
        min(float(asked), LONGEST_WAIT) if asked.isascii() and asked.isdigit() and len(asked) < 9 else None
    )
    return Attempt(
        error=f"it answered {status}: {said}".rstrip(": "), final=status in FINAL_STATUSES, after=after
    )


async def _drop_notice(context: Context, row: SendingRow) -> None:
    """Drop a notice that became private while it waited."""
    async with context.store.transaction() as tx:
        await rows.record_attempt(tx, row, "dropped", "its repository is private now")


async def _send_notice(context: Context, receiver: Receiver, row: SendingRow, notice: NoticeRow) -> None:
    attempt = await post_notice(
        context.resource(WEBHOOKS), receiver, notice, url=context.settings.url, now=context.clock.now()
    )
    late = context.clock.now() - row["created_at"] >= GIVE_UP_AFTER
    state = "sent" if not attempt.error else "dead" if attempt.final or late else "waiting"
    metrics.NOTICES.labels(state if state != "waiting" else "failed").inc()
    async with context.store.transaction() as tx:
        await rows.record_attempt(tx, row, state, attempt.error or None)
    if state == "dead":
        log.warning(
            "a notice was given up", receiver=receiver.name, notice=notice["id"], reason=attempt.error
        )
    elif state == "waiting":
        step = BACKOFF[min(row["attempts"], len(BACKOFF) - 1)]
        raise RetryLater(f"{receiver.name}: {attempt.error}", after=max(step, attempt.after or 0))
