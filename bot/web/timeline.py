"""Jobs over time: a bar for each, with when it waited, when it ran, and its steps."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from markupsafe import Markup

from bot.core import escaping, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.web.blocks import Tone

WIDTH, HEIGHT = 1000, 10  # of a bar, in units of the drawing
STEPS_MOST = 100  # of a job
WORDS_MOST = 120  # characters of a step's name


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a job, with its times in epoch milliseconds; its name comes from outside."""

    name: str
    failed: bool
    started_at: int
    ended_at: int


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A job with its times in epoch milliseconds; its name comes from outside."""

    name: str
    url: str | None  # a path on this bot, or where its CI shows it
    tone: Tone
    queued_at: int | None
    started_at: int | None
    ended_at: int | None  # None: it goes on
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A bar as its page shows it."""

    name: str
    url: str | None
    tone: Tone
    words: str
    drawing: Markup


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Bars under one axis."""

    began_at: int
    length: str
    bars: tuple[Drawn, ...]


def timeline(bars: Sequence[Bar], *, now: int) -> Timeline | None:
    """Return bars on an axis from the first time to the last, in the order of their starts; None where none has any."""
    known = [bar for bar in bars if bar.queued_at is not None or bar.started_at is not None]
    if not known:
        return None
    began = min(_first(bar) for bar in known)
    ended = max(max(_first(bar), bar.ended_at or now) for bar in known)
    axis = _Axis(began, max(ended - began, 1), now)
    return Timeline(
        began_at=began,
        length=text.duration((ended - began) / 1000),
        bars=tuple(axis.drawn(bar) for bar in sorted(known, key=lambda bar: (_first(bar), bar.name))),
    )


def _first(bar: Bar) -> int:
    return min(at for at in (bar.queued_at, bar.started_at) if at is not None)


class _Axis:
    """Where times lie in a drawing."""

    def __init__(self, began: int, length: int, now: int) -> None:
        self._began, self._length, self._now = began, length, now

    def drawn(self, bar: Bar) -> Drawn:
        """Return a bar drawn."""
        queued, started = _first(bar), bar.started_at
        ended = self._now if bar.ended_at is None else bar.ended_at
        parts = []
        if started is None or started > queued:
            parts.append(self._part("queue", queued, ended if started is None else started, at=3, height=4))
        if started is not None:
            parts.append(self._part(bar.tone, started, ended))
            parts += [
                self._part(
                    "step bad" if step.failed else "step", step.started_at, step.ended_at, _step_words(step)
                )
                for step in bar.steps[:STEPS_MOST]
            ]
        words = _words(queued, started, bar.ended_at, self._now)
        drawing = (
            f'<svg class="bar" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
            f'aria-label="{escape(words)}">{"".join(parts)}</svg>'
        )
        return Drawn(
            name=bar.name,
            url=bar.url,
            tone=bar.tone,
            words=words,
            drawing=Markup(drawing),  # noqa: S704 - words from outside are escaped below
        )

    def _part(
        self, kind: str, start: int, end: int, words: str = "", *, at: int = 0, height: int = HEIGHT
    ) -> str:
        left, right = self._place(start), self._place(max(start, end))
        title = f"<title>{escape(words)}</title>" if words else ""
        size = f'x="{left:g}" y="{at}" width="{max(right - left, 1):g}" height="{height}"'
        return f'<rect class="{kind}" {size}>{title}</rect>'

    def _place(self, at: int) -> float:
        return round(min(max(at - self._began, 0) / self._length, 1) * WIDTH, 1)


def _step_words(step: Step) -> str:
    name = escaping.shorten(escaping.one_line(step.name), WORDS_MOST) or escaping.NAMELESS
    took = text.duration(max(0, step.ended_at - step.started_at) / 1000)
    return f"{name}: {'failed after ' if step.failed else ''}{took}"


def _words(queued: int, started: int | None, ended: int | None, now: int) -> str:
    """Return "waited 3 min, took 20 min"."""
    if started is None:
        waited = text.duration(max(0, (now if ended is None else ended) - queued) / 1000)
        return f"waiting for {waited}" if ended is None else f"waited {waited}, never ran"
    ran = text.duration(max(0, (now if ended is None else ended) - started) / 1000)
    waited = text.duration(max(0, started - queued) / 1000)
    return f"waited {waited}, " + (f"running for {ran}" if ended is None else f"took {ran}")
