"""Is in the end everything as the story says? What both sides have recorded, compared with what was promised."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from bot.demo import cast, seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bot.demo.github import Call, CheckRun, Delivery, Pull
    from bot.demo.loopback import Loopback

ACCEPTED = 202
SETTLED = 2.0  # seconds without a call after which nothing more is expected of the bot


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence that should be true, and what contradicts it: nothing when it is."""

    sentence: str
    against: str = ""


async def findings(on: Loopback, pulls: list[Pull]) -> list[Finding]:
    """Return every finding on these pull requests; delivers every webhook once more on the way."""
    first, second = pulls
    return [
        *_once(on, pulls),
        *_quiet_levels(on, pulls),
        *_answers(on),
        *[
            await _page(on, path, words)
            for path, words in (
                ("/oot", cast.BACKENDS),
                (f"/{cast.UPSTREAM}/pull/{first.number}", (first.head_sha[:7], "tpu", cast.RISCV)),
                (f"/{cast.UPSTREAM}/pull/{second.number}", (str(cast.MATMUL["name"]), cast.FPGA, "queued")),
                (f"/api/oot/pulls/{cast.UPSTREAM}/{second.number}", (str(cast.MATMUL["name"]), cast.NPU)),
                (f"/api/oot/backends/{cast.TPU}", (first.head_sha, second.head_sha)),
                ("/readyz", ()),
                ("/metrics", ("ootbot",)),
            )
        ],
        await _redelivered(on, pulls),
        Finding(sentence="the bot logged no error", against=on.bot.first_error()),
    ]


def summary(on: Loopback, pulls: list[Pull]) -> Iterator[str]:
    """Tell what the pull requests show, and how much it took."""
    for pull in pulls:
        yield f"{cast.UPSTREAM} #{pull.number} at {pull.head_sha[:7]}: {pull.title}"
        for run in seen.checks(on.github, on.app, pull).values():
            yield f"  {run.name:<10}  {seen.outcome(run):<11}  {run.output.title}"
        for comment in seen.comments(on.github, on.app, pull):
            yield f"  {comment.user.login}: {seen.headline(comment.body)}"
    made = [*_made(on, "check-runs"), *_made(on, "comments")]
    writes = [call for call in on.github.calls if _is_write(call)]
    yield (
        f"{len(on.github.deliveries)} webhooks delivered, {len(on.github.dispatches)} dispatches, "
        f"{len(writes)} API writes: {len(_made(on, 'check-runs'))} check runs and "
        f"{len(_made(on, 'comments'))} comments made, {len(writes) - len(made)} updates and re-runs"
    )


def _once(on: Loopback, pulls: list[Pull]) -> Iterator[Finding]:
    """Nothing was made twice, and nobody else made it."""
    for pull in pulls:
        said = on.github.comments(pull)
        authors = [f"{comment.user.login} by {comment.app}" for comment in said if comment.app is not on.app]
        yield Finding(
            sentence=f"#{pull.number} has exactly one comment, and its author is the App",
            against=f"{len(said)} comments, {authors}" if len(said) != 1 or authors else "",
        )
    keys = Counter(call.body["external_id"] for call in _made(on, "check-runs"))
    yield _unless("no check run was made twice on the same basis", _twice(keys))
    told = Counter(
        (dispatch.client_payload["delivery_id"], dispatch.repo.full_name) for dispatch in on.github.dispatches
    )
    yield _unless("no backend was told twice of one delivery", _twice(told))


def _quiet_levels(on: Loopback, pulls: list[Pull]) -> Iterator[Finding]:
    """Levels 1 and 2 show nothing on the pull request, and an old commit what it showed before."""
    runs = [run for run in on.github.check_runs_all(cast.UPSTREAM) if run.app is on.app]
    known = {cast.GATE, cast.TPU_CHECK, cast.NPU_CHECK}
    yield _unless("L1 and L2 backends have no check", {run.name for run in runs} - known)
    old = seen.checks(on.github, on.app, pulls[0], pulls[0].commits[0])
    lost = [name for name in (cast.GATE, cast.TPU_CHECK) if not _failed(old.get(name))]
    yield _unless("the old commit keeps its verdict", lost)
    reports = [(name, each) for name, backend in on.backends.items() for each in backend.reports]
    refused = [f"{name}: {each.output}" for name, each in reports if each.exit_code]
    yield _unless("every report was accepted", refused)


def _answers(on: Loopback) -> Iterator[Finding]:
    refused = [f"{each.event} {each.status_code}" for each in on.github.deliveries if not _taken(each)]
    yield _unless("every webhook was answered 202", refused)
    calls = [f"{call.method} {call.path} {call.status}" for call in on.github.calls if call.status >= 400]
    yield _unless("GitHub refused none of the bot's calls", calls)


async def _page(on: Loopback, path: str, words: Iterable[str]) -> Finding:
    sentence = f"the bot answers {path}"
    try:
        async with on.http.get(on.bot.url + path) as answer:
            text = await answer.text()
            answer.raise_for_status()
    except (aiohttp.ClientError, TimeoutError) as error:
        return Finding(sentence=sentence, against=repr(error))
    missing = [word for word in words if word not in text]
    return _unless(sentence, [f"it does not say {word}" for word in missing])


async def stopping(on: Loopback) -> Finding:
    """Stop the bot; it has to end in time and by itself."""
    code = await on.bot.stop()
    return Finding(sentence="the bot stops cleanly", against=f"exit code {code}" if code else "")


async def _redelivered(on: Loopback, pulls: list[Pull]) -> Finding:
    """Deliver everything once more; nothing may come of it."""
    await on.quiet(SETTLED)
    before = _shown(on, pulls)
    again = [await on.github.redeliver(delivery) for delivery in list(on.github.deliveries)]
    await on.quiet(SETTLED)
    wrong = [f"{each.event} {each.status_code}" for each in again if not _taken(each)]
    if _shown(on, pulls) != before:
        wrong.append("the pull requests, dispatches or writes are not what they were")
    return _unless(f"all {len(again)} webhooks delivered once more change nothing", wrong)


def _shown(on: Loopback, pulls: list[Pull]) -> Any:
    """Return everything that a second handling could change."""
    checks = [(r.id, r.status, r.conclusion, r.output) for r in on.github.check_runs_all(cast.UPSTREAM)]
    comments = [(each.id, each.body) for pull in pulls for each in on.github.comments(pull)]
    writes = sum(_is_write(call) for call in on.github.calls)
    return checks, comments, len(on.github.dispatches), writes


def _made(on: Loopback, what: str) -> list[Call]:
    """Return the calls that have made a check run or a comment."""
    return [call for call in on.github.calls if call.method == "POST" and call.path.endswith(f"/{what}")]


def _is_write(call: Call) -> bool:
    """Whether a call changed a repository; asking for a token does not, dispatches are counted apart."""
    return (
        call.method != "GET" and not call.path.startswith("/app/") and not call.path.endswith("/dispatches")
    )


def _taken(delivery: Delivery) -> bool:
    return delivery.status_code == ACCEPTED


def _failed(run: CheckRun | None) -> bool:
    return run is not None and run.conclusion == "failure"


def _twice(counted: Counter[Any]) -> list[Any]:
    return [key for key, count in counted.items() if count > 1]


def _unless(sentence: str, exceptions: Iterable[object]) -> Finding:
    return Finding(sentence=sentence, against=", ".join(map(str, exceptions)))
