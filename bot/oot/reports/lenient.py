"""Lenient reading of reports, with REPORTS=lenient: what clients of other relays leave out or write otherwise.

What cannot be read is dropped and flagged instead of refused. Nothing becomes better by that: a job that ended without
a conclusion is neutral, and no backend passes with one.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import msgspec
from msgspec import Raw, Struct, field

from bot.oot.reports import bodies
from bot.oot.reports.bodies import CONCLUSIONS, MOST_ATTEMPT, MOST_COUNT

NO_NAME = "(no name)"
COUNTS = ("passed", "failed", "skipped", "total")
TEXTS = ("classname", "file", "message", "stacktrace")
MOST_INT = 2**63


class _Body(Struct):
    """A report of which nothing is demanded yet."""

    delivery_id: Any = None
    workflow: Any = None
    event_type: Any = None
    callback_token: Any = None
    payload: Raw = field(default_factory=lambda: Raw(b"null"))
    downstream_repo: Any = None
    verified_repo: Any = None
    downstream_repo_level: Any = None
    level: Any = None


class _Needed(Struct):
    """What even a lenient reader needs."""

    delivery_id: bodies.TextId
    workflow: bodies.Workflow


_decoder = msgspec.json.Decoder(_Body)


def read_report(body: bytes, flags: dict[str, Any]) -> bodies.Report:
    """Read a report, flagging what is dropped; raises DecodeError where what identifies the job is missing."""
    sent = decode(_decoder, body)
    workflow = _workflow(sent.workflow, flags) if isinstance(sent.workflow, dict) else sent.workflow
    needed = msgspec.convert({"delivery_id": text(sent.delivery_id), "workflow": workflow}, _Needed)
    return bodies.Report(
        delivery_id=needed.delivery_id,
        workflow=needed.workflow,
        event_type=text(sent.event_type),
        callback_token=text(sent.callback_token),
        payload=sent.payload,
        downstream_repo=sent.downstream_repo,
        verified_repo=sent.verified_repo,
        downstream_repo_level=sent.downstream_repo_level,
        level=sent.level,
    )


def decode(decoder: Any, body: bytes) -> Any:
    """Decode JSON, also with escaped lone surrogates, which some encoders write for names of files."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"\\u" not in body:
            raise
        return decoder.decode(_without_surrogates(body))


def text(value: Any) -> str | None:
    """Return a text, or a number as one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else None


def number(value: Any, least: float, most: float) -> float | None:
    """Return a number, also from text, within its bounds."""
    try:
        found = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None
    return found if found is not None and math.isfinite(found) and least <= found <= most else None


def _workflow(sent: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a workflow as a strict reader takes them."""
    kept = dict(sent)
    kept["name"] = text(sent.get("name")) or _dropped("name", NO_NAME, flags)
    kept["job_name"] = text(sent.get("job_name"))
    kept["run_id"] = _id(sent.get("run_id"))
    kept["check_run_id"] = _optional(sent, "check_run_id", _id, flags)
    kept["run_attempt"] = _attempt(sent.get("run_attempt"), flags)
    for name in ("url", "artifact_url"):
        kept[name] = _optional(sent, name, _as_it_is(str), flags)
    kept["environment"] = _optional(sent, "environment", _as_it_is(dict), flags)
    kept["test_results"] = _counts(_optional(sent, "test_results", _as_it_is(dict), flags), flags)
    for name in ("failed_tests", "failed_tests_detail"):
        kept[name] = _tests(_optional(sent, name, _as_it_is(list), flags), flags)
    if sent.get("status") == "completed":
        kept["conclusion"] = _conclusion(sent.get("conclusion"), flags)
    else:
        kept.pop("conclusion", None)
    return kept


def _conclusion(sent: Any, flags: dict[str, Any]) -> str:
    word = sent.strip().lower() if isinstance(sent, str) else ""
    if word in CONCLUSIONS:
        return word
    flags["no_conclusion"] = True
    return "neutral"


def _attempt(sent: Any, flags: dict[str, Any]) -> int:
    if sent is None:
        return 1
    found = number(sent, 1, MOST_ATTEMPT)
    return int(found) if found else _dropped("run_attempt", 1, flags)


def _id(sent: Any) -> str | None:
    return text(int(sent) if isinstance(sent, bool) else sent) or None


def _counts(sent: Any, flags: dict[str, Any]) -> dict[str, int] | None:
    """Return whole numbers, also those written as texts or with a fraction of zero."""
    if sent is None:
        return None
    found = {name: number(sent[name], 0, MOST_COUNT) for name in COUNTS if sent.get(name) is not None}
    kept = {name: int(count) for name, count in found.items() if count is not None and count.is_integer()}
    if len(kept) < len(found):
        flags["counts_dropped"] = True
    return kept


def _tests(sent: Any, flags: dict[str, Any]) -> list[dict[str, Any]] | None:
    if sent is None:
        return None
    read_ones = [_test(one) for one in sent]
    kept = [one for one in read_ones if one is not None]
    if len(kept) < len(read_ones):
        flags["failed_tests_dropped"] = len(read_ones) - len(kept)
    return kept


def _test(sent: Any) -> dict[str, Any] | None:
    """Return one failed test; a text alone is its name."""
    fields = sent if isinstance(sent, dict) else {"name": sent}
    name = text(fields.get("name"))
    if name is None:
        return None
    return {"name": name, "line": fields.get("line"), **{key: text(fields.get(key)) for key in TEXTS}}


def _optional(sent: dict[str, Any], name: str, read_one: Any, flags: dict[str, Any]) -> Any:
    """Return a field that may be left out; one that cannot be read is dropped."""
    value = sent.get(name)
    if value is None or value == "":
        return None
    found = read_one(value)
    return _dropped(name, None, flags) if found is None else found


def _as_it_is(kind: type) -> Any:
    return lambda value: value if isinstance(value, kind) else None


def _dropped(name: str, instead: Any, flags: dict[str, Any]) -> Any:
    flags[f"{name}_dropped"] = True
    return instead


def _without_surrogates(body: bytes) -> bytes:
    """Return the same JSON with a question mark for every half of a pair."""
    try:
        return json.dumps(json.loads(body, parse_constant=_refuse), ensure_ascii=False).encode(
            "utf-8", "replace"
        )
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError(f"JSON is malformed: {error}") from None


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
