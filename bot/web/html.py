"""How does a page come out of a template? The environment, its filters, and errors as pages."""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import jinja2
from aiohttp import web

import bot
from bot.domain import charts, failures, inert, matrix, stats, words
from bot.domain.readiness import Word, percent
from bot.domain.reading import FULL_NAME, show_time
from bot.domain.view import State, anchor_of
from bot.errors import Rejected, StoreUnavailable
from bot.web import drawing, refresh, serving
from bot.web.keys import CONTEXT
from bot.web.remarks import REMARKS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from markupsafe import Markup

    from bot.domain.view import Backend, Job
    from bot.web.refresh import Refresh


HERE = Path(__file__).parent
STATIC = HERE / "static"
LINES = 4_000  # kept as they were made: most say the same for long
# the address of a stylesheet names its content, so that it may be kept
LOOK = hashlib.sha256((STATIC / "style.css").read_bytes()).hexdigest()[:8]
TEMPLATES: web.AppKey[jinja2.Environment] = web.AppKey("templates", jinja2.Environment)
SIGNS = {"good": "✓", "warn": "!", "bad": "✕", "wait": "…", "idle": "–"}  # noqa: RUF001 - a dash is the sign
READY = {Word.MEETS: "good", Word.MISSES: "bad", Word.UNKNOWN: "idle"}
GRADES = {"green": "good", "amber": "warn", "red": "bad", "none": "idle"}


def environment() -> jinja2.Environment:
    """Return the templates; everything they show is escaped, an unknown name is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "anchor": anchor_of,
        "word": word,
        "block": inert.clean,
        "url": inert.url,
        "duration": words.duration,
        "short": words.short,
        "percent": percent,
        "sparkline": charts.sparkline,
        "worst_tone": matrix.worst,
        "spark_words": spark_words,
        "minute": lambda at: show_time(at)[:16].replace("T", " ") + " UTC",
        "tone_of_word": lambda said: READY[said],
        "time": show_time,
        "path": path,
        "plural": words.plural,
        "state": words.word,
        "job_word": words.job_word,
        "tally": tally,
        "tone_of_state": tone_of_state,
        "tone_of_job": tone_of_job,
        "tone_of_rate": lambda rate: GRADES[stats.grade(rate)],
        "job_counts": job_counts,
        "points": drawing.points,
        "values": drawing.values,
        "by_urgency": failures.by_urgency,
    }
    made.globals |= {"SIGNS": SIGNS, "version": bot.__version__, "ok_to_test": words.OK_TO_TEST, "look": LOOK}
    made.globals["kept"] = functools.lru_cache(LINES)(functools.partial(_line, made))
    return made


def render(
    request: web.Request, name: str, *, status: int = 200, fresh: Refresh | None = None, **values: Any
) -> web.Response:
    """Return a page; `now` is what ages are counted from, `fresh` is for pages that can load themselves anew."""
    now = request.app[CONTEXT].clock.now()
    template = request.app[TEMPLATES].get_template(name)
    since = functools.partial(ago, now=now)
    text = template.render(now=now, status=status, fresh=fresh, ago=since, **values)
    return web.Response(text=text, content_type="text/html", charset="utf-8", status=status)


def _line(made: jinja2.Environment, name: str, *told: object) -> Markup:
    """Return one of many lines of a page; it depends on nothing but what it is told."""
    template: Any = made.get_template(name).module
    return cast("Markup", template.made(*told))


def page(
    handler: Callable[[web.Request], Awaitable[web.Response]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Make a handler's refusals pages, for people, and its pages quick to show again."""

    @functools.wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        return await serving.answer(request, functools.partial(refused, request, handler))

    return answer


async def refused(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.Response]]
) -> web.Response:
    """Return what a handler makes; what it refuses is a page too."""
    try:
        return await handler(request)
    except Rejected as said:
        return refusal(request, said)
    except StoreUnavailable as error:
        request.app[REMARKS].unavailable(error)
        detail = "the database cannot be used right now; try again in a moment"
        return refusal(request, Rejected(503, "store_unavailable", detail))


def refusal(request: web.Request, said: Rejected) -> web.Response:
    """Return what is refused as a page, with a way on."""
    asked = request.match_info.get("repo", "")
    page = render(
        request,
        "error.html",
        status=said.status,
        fresh=refresh.of_failure(request) if said.status >= 500 else None,
        code=said.code,
        detail=said.detail,
        asked=asked[:100],
    )
    page.headers.update(said.headers)
    page.headers.setdefault("Cache-Control", "no-cache")
    return page


def is_for_a_person(request: web.Request) -> bool:
    """Whether a browser looks for a page here."""
    wanted = "text/html" in request.headers.get("Accept", "")
    return wanted and request.method in {"GET", "HEAD"} and TEMPLATES in request.app


def word(text: object, limit: int = inert.TITLE_LIMIT) -> str:
    """Return a word from outside on one line, nothing unseen in it."""
    return inert.shorten(inert.one_line(str(text)), limit) or inert.NAMELESS


def path(repo: str) -> str | None:
    """Return /owner/name of a repository, None when its name could lead somewhere else."""
    return f"/{repo}" if FULL_NAME.fullmatch(repo) else None


def tone_of_state(state: State) -> str:
    """Return which colour and sign a backend's state has."""
    if state.red:
        return "bad"
    if not state.finished:
        return "wait"
    return "good" if state is State.SUCCESS else "idle"


def tone_of_job(job: Job) -> str:
    """Return which colour and sign a job has."""
    if job.red:
        return "bad"
    if not job.finished:
        return "wait"
    return "good" if job.conclusion == "success" else "idle"


def tally(backends: Iterable[Backend]) -> list[tuple[State, int]]:
    """Return how many backends are in each state that occurs: the red ones first, then the unfinished ones."""
    counts = Counter(backend.state for backend in backends)
    return sorted(counts.items(), key=lambda item: (not item[0].red, item[0].finished))


def job_counts(jobs: Sequence[Job]) -> str:
    """Return how a backend's jobs stand, as in "3 of 4 passed, 1 running"."""
    failed = sum(job.red for job in jobs)
    running = sum(not job.finished for job in jobs)
    passed = sum(job.conclusion == "success" for job in jobs)
    parts = [f"{passed} of {len(jobs)} passed"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{running} running"] if running else []
    return ", ".join(parts)


def spark_words(rates: Sequence[float | None]) -> str:
    """Return the ends of a line of pass rates, for those who do not see it."""
    known = [rate for rate in rates if rate is not None]
    return f"lowest {percent(min(known))}, last {percent(known[-1])}" if known else "no data"


def ago(at: int | None, *, now: int) -> str:
    """Return how long ago a time was, in its largest unit; unknown is empty."""
    if at is None:
        return ""
    number, unit, *_ = words.duration(max(0, now - at) / 1000).split()
    return "just now" if (number, unit) == ("0", "s") else f"{number} {unit} ago"
