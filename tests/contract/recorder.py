"""What a simulated GitHub was asked, answered and sent, compared with GitHub's description, each form of it once."""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from tests.contract import description

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

    from bot.demo.github import SimulatedGitHub
    from bot.demo.github.models import Call

WORD_MOST = 24  # characters of a text that may be one of a few words, such as a conclusion
MADE_UP = "made"  # the action of an event in tests of the simulation
NOT_DESCRIBED = re.compile(  # where GitHub itself sends what its description does not have
    r"app\.events\.\d+: 'merge_group' is not one of"  # the list there is an older one
    r"|app/installations: 200: \d+\.account: 'name' is a required"  # an account and an enterprise at once there
    r"|pulls: 200: \d+\.labels\.\d+\.description: None is not"  # null elsewhere, and in what it sends
)


class Recorder:
    """Compares what is new to it, and collects what differs."""

    def __init__(self) -> None:
        self.enabled = False  # with --nightly, where there is a description
        self._seen: set[object] = set()
        self.recorded: set[str] = set()  # names of operations
        self.problems: list[str] = []

    def call(self, call: Call, answer: web.Response) -> None:
        """Compare a call that succeeded and its answer."""
        if call.faulted or not call.status or call.status >= 400:
            return
        is_json = answer.content_type == "application/json" and answer.body
        body = json.loads(answer.body) if is_json else None
        query = dict(parse_qsl(call.query))
        described = description.described()
        with self._noting():
            operation = described.operation(call.method, call.path)
            self.recorded.add(operation.name)
            key = (operation.name, call.status, *query, form(call.body), form(body))
            if key not in self._seen:
                self._seen.add(key)
                described.check_request(operation, query, call.body)
                if is_json:
                    described.check_answer(operation, call.status, body)

    def webhooks(self, github: SimulatedGitHub) -> None:
        """Compare the webhooks that were sent."""
        for one in github.deliveries:
            key = (one.event, form(one.payload))
            made_up = one.action == MADE_UP or "sender" not in one.payload  # by a test, not by the simulation
            whole = not made_up and one.raw == json.dumps(one.payload).encode()
            if key not in self._seen and whole:
                self._seen.add(key)
                with self._noting():
                    description.described().check_webhook(one.event, one.action, one.payload)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except Exception as problem:  # noqa: BLE001 - raised by the test that looks at the problems
            self.problems += [line for line in str(problem).splitlines() if not NOT_DESCRIBED.search(line)]


def form(value: Any) -> object:
    """Return what two values have in common whose only difference is in numbers and free text."""
    if isinstance(value, dict):
        return tuple((key, form(one)) for key, one in sorted(value.items()))
    if isinstance(value, list):
        return tuple(dict.fromkeys(form(one) for one in value))
    if isinstance(value, str):
        return value if len(value) <= WORD_MOST and value.replace("_", "").isalpha() else "text"
    return type(value).__name__


RECORDER = Recorder()


@contextlib.contextmanager
def recorded(github: SimulatedGitHub) -> Iterator[None]:
    """Compare all that happens in the block; fails the test that made something differ first."""
    if not RECORDER.enabled:
        yield
        return
    before = len(RECORDER.problems)
    github.state.on_answer = RECORDER.call
    yield
    RECORDER.webhooks(github)
    new = sorted({*RECORDER.problems[before:]})
    assert not new, "\n".join(["not as GitHub describes it:", *new])
