"""A dry run: what would be sent, and what is wrong with it. Nothing leaves the machine, not even for a token."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import body
import uploads
from sending import DeliveryError, Tokens, check_url

if TYPE_CHECKING:
    import argparse

COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
NOT_SHOWN = "(sent, not shown)"


@dataclass
class Findings:
    """What is wrong, and what is only worth knowing."""

    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run(options: argparse.Namespace) -> int:
    """Print the report as it would be sent and what is wrong; return 0 if nothing is, else 1."""
    found = Findings()
    report = _build(options, found)
    if report is not None:
        print("ootbot would get this report:")
        print(json.dumps(_shown(report), indent=2))
    for sentence in found.notes:
        print("note:", sentence)
    for sentence in found.wrong:
        print("wrong:", sentence)
    print("nothing was sent:", f"{len(found.wrong)} wrong" if found.wrong else "nothing is wrong")
    return 1 if found.wrong else 0


def _build(options: argparse.Namespace, found: Findings) -> dict[str, Any] | None:
    try:
        dispatch = body.read_event(options.event)
        report = body.build(options, dispatch, found.wrong.append)
    except body.InputError as error:
        found.wrong.append(str(error))
        return None
    size = len(body.encode(report))
    found.notes.append(f"{size:,} bytes, {len(report['workflow'].get('failed_tests', []))} failed tests")
    _look_at_address(options, dispatch, found)
    _look_at_token(options, found)
    _look_at_subject(report, found)
    uploads.describe(options, found.notes.append, found.wrong.append)
    return report


def _look_at_address(options: argparse.Namespace, dispatch: dict[str, Any], found: Findings) -> None:
    url = options.url or str(dispatch.get("callback_url") or "")
    try:
        check_url(url)
        found.notes.append(f"to {url}")
    except DeliveryError as error:
        found.wrong.append(str(error))


def _look_at_token(options: argparse.Namespace, found: Findings) -> None:
    """Say where the token would come from: in GitHub Actions it must be there, elsewhere a person may be trying."""
    try:
        found.notes.append(f"with a token from {Tokens(options.audience, options.token_file).source()}")
    except DeliveryError as error:
        in_actions = os.environ.get("GITHUB_ACTIONS") == "true"
        (found.wrong if in_actions else found.notes).append(str(error))


def _look_at_subject(report: dict[str, Any], found: Findings) -> None:
    """Check what the bot demands of a report that answers a dispatch, and of one that does not."""
    if report.get("event_type") not in uploads.SELF_TRIGGERED:
        if not report.get("callback_token"):
            found.notes.append("there is no callback_token: a backend at L3 or L4 is refused without it")
        return
    if not COMMIT.fullmatch(str(report["delivery_id"])):
        found.wrong.append(
            "`delivery-id` must be the whole id of an upstream commit in a nightly or periodic report"
        )
    if report["workflow"]["status"] != "completed":
        found.wrong.append("`status` must be completed in a nightly or periodic report")


def _shown(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report without its secret, and without the event that it echoes."""
    shown = dict(report)
    if "callback_token" in shown:
        shown["callback_token"] = NOT_SHOWN
    if "payload" in shown:
        shown["payload"] = f"({len(json.dumps(shown['payload'])):,} characters of the event)"
    return shown
