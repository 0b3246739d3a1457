"""Receivers of notices: which events reach whom, where and in which format; quiet hours; the options of notices."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from bot.core import setting_types
from bot.core.feature import CONDITION_EVENTS
from bot.core.settings import option

if TYPE_CHECKING:
    from collections.abc import Iterable

DIGEST, TEST = "digest", "test"
TOLD = (*CONDITION_EVENTS, *(after for after in CONDITION_EVENTS.values() if after))  # events to choose from
MOST_RECEIVERS = 50
SECRET_PREFIX = "whsec_"  # noqa: S105 - as Standard Webhooks writes secrets
SECRET_BYTES = range(24, 65)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
ONE_DAY = timedelta(days=1)

Url = Annotated[str, Meta(min_length=1, max_length=2_000)]
Globs = Annotated[tuple[str, ...], Meta(max_length=100)]


class Receiver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One receiver of notices, a table `[[notify]]` of the settings."""

    name: str
    url: Url
    format: Literal["json", "slack", "teams"] = "json"
    secret: str = ""  # signs; several, comma separated, while it is changed
    events: tuple[str, ...] = TOLD
    repos: Globs = ()  # globs over upstream's owner/name; empty: all, as for the next two
    backends: Globs = ()
    oncall: Globs = ()  # logins: only what is about backends that one of them is on call for
    private: bool = False  # it may be told of private repositories
    internal: bool = False  # its address may be in our own network, and plain http
    quiet: str = ""  # 22:00-07:00: what comes then is sent at the end
    digest: str = ""  # 09:00: once a day at this time
    time_zone: str = "UTC"

    def __repr__(self) -> str:
        """Leave out secrets: a chat's address is one."""
        return f"Receiver({self.name!r})"

    @property
    def audience(self) -> str:
        """The audience whose notices it may get."""
        return "private" if self.private else "public"

    @property
    def host(self) -> str:
        """The host, as it may be shown: the rest of the address may be a secret."""
        return self.url.partition("//")[2].partition("/")[0].rpartition("@")[2]

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys to sign with."""
        return tuple(_decode_key(text) for text in self.secret.split(",")) if self.secret else ()

    def wants(self, event: str, *, repo: str, backend: str, oncalls: Iterable[str]) -> bool:
        """Whether it wants to be told of an event."""
        return event in self.events and self.concerns(repo=repo, backend=backend, oncalls=oncalls)

    def concerns(self, *, repo: str, backend: str, oncalls: Iterable[str]) -> bool:
        """Whether its filters pass something; what is about no backend passes no filter over backends.

        What is about no single repository passes every filter over repositories.
        """
        logins = {login.casefold() for login in self.oncall}
        return (
            (not repo or _matches_globs(self.repos, repo))
            and _matches_globs(self.backends, backend)
            and (not logins or not logins.isdisjoint(login.casefold() for login in oncalls))
        )

    def local(self, now: int) -> datetime:
        """Return a time, in epoch milliseconds, in its time zone."""
        return datetime.fromtimestamp(now / 1000, UTC).astimezone(ZoneInfo(self.time_zone))

    def quiet_seconds(self, now: int) -> float:
        """Return how long its quiet hours still last, 0 outside of them."""
        if not self.quiet:
            return 0
        here = self.local(now)
        begins, ends = (_minutes_of_day(text) for text in self.quiet.split("-"))
        minute = here.hour * 60 + here.minute
        within = begins <= minute < ends if begins < ends else minute >= begins or minute < ends
        if not within:
            return 0
        end = here.replace(hour=ends // 60, minute=ends % 60, second=0, microsecond=0, fold=0)
        if ends <= minute:
            end += ONE_DAY
        # an aware time counts its own clock: the difference has to be that of the moments, as clocks are changed
        return max(end.astimezone(UTC).timestamp() - now / 1000, 1.0)

    def digest_due(self, now: int) -> tuple[str, float] | None:
        """Return the day of its digest and how many seconds ago it was due; None if none is due."""
        if not self.digest:
            return None
        here, minute = self.local(now), _minutes_of_day(self.digest)
        late = here.hour * 60 + here.minute - minute
        return None if late < 0 else (here.date().isoformat(), late * 60.0)


def read_receivers(text: str) -> tuple[Receiver, ...]:
    """Read the receivers, a JSON list; raises ValueError with what to write instead."""
    try:
        receivers = msgspec.json.decode(text, type=list[Receiver])
    except msgspec.MsgspecError as error:
        raise ValueError(f"write tables [[notify]], or a JSON list of objects: {error}") from None
    if len(receivers) > MOST_RECEIVERS:
        raise ValueError(f"at most {MOST_RECEIVERS} receivers")
    names = [receiver.name for receiver in receivers]
    for number, receiver in enumerate(receivers, 1):
        if problem := "its name is taken" if receiver.name in names[: number - 1] else _problem_of(receiver):
            raise ValueError(f"receiver {number} ({receiver.name[:40]!r}): {problem}")
    return tuple(receivers)


@dataclass(frozen=True, kw_only=True)
class NotifySettings:
    """Who is told of what."""

    notify: tuple[Receiver, ...] = option(
        "Receivers of notices: tables `[[notify]]`, or a JSON list; docs/notify.md says what one has.",
        read_receivers,
        default=(),
        secret=True,
    )
    notify_gate_wait: int = option(
        "How long a gate waits for backends before people are told.",
        setting_types.duration,
        default=2 * 3600,
    )


def _problem_of(receiver: Receiver) -> str:
    """Return what is wrong with a receiver, and what to write instead; empty if nothing is."""
    if not NAME.fullmatch(receiver.name):
        return "its name is not a word of letters, digits, - and _, at most 40"
    if not receiver.url.startswith("https://") and not (
        receiver.internal and receiver.url.startswith("http://")
    ):
        return "its url must begin with https://; http:// takes internal = true"
    if unknown := [name for name in receiver.events if name not in TOLD]:
        return f"{unknown[0][:40]!r} is not an event; the events are {', '.join(TOLD)}"
    return _problem_of_secret(receiver) or _problem_of_times(receiver)


def _problem_of_secret(receiver: Receiver) -> str:
    if receiver.format != "json":
        return f"{receiver.format} checks no signature: leave secret out" if receiver.secret else ""
    how = "write whsec_ and base64 of 24 to 64 random bytes, as from `echo whsec_$(openssl rand -base64 32)`"
    try:
        keys = receiver.keys
    except ValueError:
        return f"its secret cannot be read: {how}"
    if not keys:
        return f"it has no secret, so it could not tell our notices from forged ones: {how}"
    return "" if all(len(key) in SECRET_BYTES for key in keys) else f"its secret has the wrong length: {how}"


def _problem_of_times(to: Receiver) -> str:
    begins, dash, ends = to.quiet.partition("-")
    if to.quiet and not (dash and CLOCK.fullmatch(begins) and CLOCK.fullmatch(ends) and begins != ends):
        return f"quiet is {to.quiet[:20]!r}: write two times, as in 22:00-07:00"
    if to.digest and not CLOCK.fullmatch(to.digest):
        return f"digest is {to.digest[:20]!r}: write a time, as in 09:00"
    try:
        ZoneInfo(to.time_zone)
    except (KeyError, ValueError, OSError):
        return f"{to.time_zone[:40]!r} is not a known time zone: write one such as Europe/Berlin, or install tzdata"
    return ""


def _decode_key(text: str) -> bytes:
    """Return the bytes of a secret; raises ValueError."""
    plain = text.strip()
    if not plain.startswith(SECRET_PREFIX):
        raise ValueError(f"it does not begin with {SECRET_PREFIX}")
    try:
        return base64.b64decode(plain.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _matches_globs(globs: Iterable[str], name: str) -> bool:
    wanted = [glob.casefold() for glob in globs]
    return not wanted or any(fnmatchcase(name.casefold(), glob) for glob in wanted)


def _minutes_of_day(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)
