"""Sending the report and files: a fresh token, one POST, and retries while the bot is unavailable.

Connection errors, 408, 429 and 5xx are retried, honouring Retry-After, until the deadline. Any
other response is final.
"""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import json
import os
import random
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT = 30.0  # seconds for one request
TOKEN_AGE = 240.0  # seconds; a runner's token is valid for 300
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds; the pause doubles in between
MAX_ANSWER = 64 * 1024  # bytes read of any answer
RETRIED = {408, 429}
LOOPBACK = {"127.0.0.1", "::1", "localhost"}

NO_PERMISSION = (
    "this job cannot ask for an OpenID token: give it `permissions: id-token: write` in the "
    "workflow file (a pull_request run from a fork never gets it; a repository_dispatch run does)"
)
ELSEWHERE = "outside GitHub Actions, give the CI's OpenID token in --token-file or OOTBOT_TOKEN"


class DeliveryError(Exception):
    """The report could not be delivered, finally; the message is a sentence for the log."""


class LostError(DeliveryError):
    """The bot could not be reached until the deadline: the same report may be taken later."""


class _PassingError(Exception):
    """A temporary failure of one attempt; `after` is the Retry-After of the response, in seconds."""

    def __init__(self, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as a final response: following it would send the token to an unnamed host."""

    def redirect_request(self, *_arguments: Any, **_keywords: Any) -> None:
        return None


class Tokens:
    """The source of the bearer token: the runner, a file, or the environment."""

    def __init__(self, audience: str, token_file: str = "") -> None:
        self.audience = audience
        self.token_file = token_file
        self.token = ""
        self.fetched = 0.0  # on the monotonic clock

    def current(self, timeout: float) -> str:
        """Return a token valid for another minute or more; raise DeliveryError if there is none.

        The CI keeps a file or variable up to date, so the file is read again for each attempt.
        """
        if self.token_file:
            return _one_word(self._from_file(), self.token_file)
        if token := os.environ.get("OOTBOT_TOKEN"):
            return _one_word(token, "OOTBOT_TOKEN")
        if not self.token or time.monotonic() - self.fetched > TOKEN_AGE:
            asked = time.monotonic()
            self.token = self._from_runner(timeout)
            self.fetched = asked
        return self.token

    def source(self) -> str:
        """Return where the token comes from, without asking for it; raise DeliveryError if there is none."""
        if self.token_file:
            _one_word(self._from_file(), self.token_file)
            return self.token_file
        if token := os.environ.get("OOTBOT_TOKEN"):
            _one_word(token, "OOTBOT_TOKEN")
            return "OOTBOT_TOKEN"
        _runner()
        return f"the runner, for the audience {self.audience}"

    def _from_file(self) -> str:
        try:
            with Path(self.token_file).open(encoding="utf-8") as file:
                return file.read(MAX_ANSWER)
        except (OSError, UnicodeDecodeError) as error:
            raise DeliveryError(f"cannot read the token file: {error}") from error

    def _from_runner(self, timeout: float) -> str:
        url, secret = _runner()
        url += ("&" if "?" in url else "?") + urllib.parse.urlencode({"audience": self.audience})
        request = urllib.request.Request(url, headers=_headers(secret))  # noqa: S310 - the runner's own address
        answer = _ask(request, timeout)
        token = answer.get("value")
        if not isinstance(token, str) or not token:
            raise _PassingError("the runner's token service answered without a token")
        return token


def _runner() -> tuple[str, str]:
    """Return address and secret of the runner's token service; raise DeliveryError without the permission."""
    url = os.environ.get("ACTIONS_ID_TOKEN_REQUEST_URL")
    secret = os.environ.get("ACTIONS_ID_TOKEN_REQUEST_TOKEN")
    if not url or not secret:
        on_github = os.environ.get("GITHUB_ACTIONS") == "true"
        raise DeliveryError(NO_PERMISSION if on_github else ELSEWHERE)
    return url, secret


@dataclass(frozen=True)
class Sender:
    """Delivers to one bot: a report to its callback, files to an address beside it."""

    url: str
    tokens: Tokens
    deadline: float  # seconds for all attempts at one body together

    def send(
        self, body: bytes | Path, url: str = "", headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Post the report, or a file, until it is accepted; return the response or raise DeliveryError."""
        url = url or self.url
        check_url(url)
        ends = time.monotonic() + self.deadline
        pause = FIRST_PAUSE
        while True:
            try:
                return self._attempt(body, url, headers or {}, ends)
            except _PassingError as error:
                wait = max(error.after, pause / 2) + random.uniform(0, pause / 2)  # noqa: S311 - spreads clients, guards nothing
                if time.monotonic() + wait >= ends:
                    raise LostError(
                        f"{error}; gave up, because the next try in {wait:.0f} s would be past the "
                        f"deadline of {self.deadline:.0f} s"
                    ) from error
                print(f"{error}; trying again in {wait:.1f} s", flush=True)
            time.sleep(wait)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _attempt(self, body: bytes | Path, url: str, more: Mapping[str, str], ends: float) -> dict[str, Any]:
        token = self.tokens.current(_time_left(ends))
        headers = {**_headers(token), "Content-Type": "application/json", **more}
        with contextlib.ExitStack() as stack:
            data: Any = body
            if isinstance(body, Path):
                data = stack.enter_context(body.open("rb"))
                size = str(body.stat().st_size)
                headers |= {"Content-Type": "application/octet-stream", "Content-Length": size}
            request = urllib.request.Request(url, data=data, headers=headers, method="POST")  # noqa: S310 - check_url has seen it
            answer = _ask(request, _time_left(ends))
        if not answer:
            raise DeliveryError(f"{url} answered, but not as ootbot does: is the address right?")
        return answer


def check_url(url: str) -> None:
    """Refuse to send a token to anything but https or this machine."""
    if not url:
        raise DeliveryError("no address to report to: give `url`, or run on a dispatch that names one")
    try:
        parts = urllib.parse.urlsplit(url)
        safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
        usable = bool(parts.hostname) and parts.port != 0 and url.isascii() and " " not in url
    except ValueError:
        safe = usable = False
    if not (safe and usable and url.isprintable()):
        raise DeliveryError(f"cannot report to {url!r}: a plain https:// address is needed")


def _one_word(text: str, source: str) -> str:
    """Return a token that is valid in a header; raise DeliveryError, naming its source, if it is not."""
    token = text.strip()
    if not token or not token.isascii() or len(token.split()) != 1:
        raise DeliveryError(f"{source} does not hold a token")
    return token


def _headers(bearer: str) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {bearer}",
        "Accept": "application/json",
        "User-Agent": "ootbot-report",
    }


def _time_left(ends: float) -> float:
    return max(1.0, min(TIMEOUT, ends - time.monotonic()))


def _ask(request: urllib.request.Request, timeout: float) -> dict[str, Any]:
    """Make one request and return its JSON object; raise _PassingError or DeliveryError."""
    place = urllib.parse.urlsplit(request.full_url).netloc
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=timeout) as response:
            return _json_object(response.read(MAX_ANSWER))
    except urllib.error.HTTPError as error:
        with error:
            sentence = f"{place} answered {error.code}{_reason(error)}"
        if error.code in RETRIED or error.code >= 500:
            raise _PassingError(sentence, _retry_after(error.headers.get("Retry-After"))) from None
        raise DeliveryError(sentence) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", "") or error
        raise _PassingError(f"cannot reach {place}: {reason}") from error


def _reason(answer: urllib.error.HTTPError) -> str:
    """Return the bot's `error` and `detail` on one line, or an empty string."""
    try:
        said = _json_object(answer.read(MAX_ANSWER))
    except (OSError, http.client.HTTPException):
        return ""
    words = [" ".join(str(said[key]).split()) for key in ("error", "detail") if said.get(key)]
    return " " + ": ".join(words) if words else ""


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _retry_after(value: str | None) -> float:
    """Return the seconds a Retry-After asks for, given as a number or a date; 0 without a value."""
    if not value:
        return 0.0
    if value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0
