"""Reports that could not be delivered: each is kept in a file, to be sent again from the same run.

A file holds the address and the report, no token: a fresh one is asked for when it is sent.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import body
from sending import DeliveryError, Sender, Tokens

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

ENDING = ".unsent.json"
MOST_BYTES = 3 * 1024 * 1024


def keep(url: str, report: bytes) -> Path | None:
    """Keep a report that was not delivered; returns its file, None where none can be written."""
    folder = Path(os.environ.get("RUNNER_TEMP") or tempfile.gettempdir()) / "ootbot-unsent"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(ENDING, "", folder)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            json.dump({"url": url, "report": json.loads(report)}, file)
    except OSError:
        return None
    return Path(name)


def resend(options: argparse.Namespace, warn: Callable[[str], None]) -> int:
    """Send what was kept in a file or below a folder, the oldest first; returns the exit code.

    A file is deleted once its report was taken. What was taken before is a duplicate to the bot: nothing counts twice.
    """
    given = Path(options.resend)
    files = (
        sorted(given.rglob(f"*{ENDING}"), key=lambda file: file.stat().st_mtime)
        if given.is_dir()
        else [given]
    )
    if not files:
        warn(f"there is no report that was kept below {given}")
    lost = 0
    for file in files:
        try:
            kept = _read(file)
            sender = Sender(
                options.url or kept["url"], Tokens(options.audience, options.token_file), options.deadline
            )
            sender.send(body.encode(kept["report"]))
        except (body.InputError, DeliveryError) as error:
            lost += 1
            warn(f"{file}: {error}")
        else:
            file.unlink()
            print(f"ootbot took {file}")
    return 1 if lost and options.fail_on_error != "false" else 0


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open(encoding="utf-8") as opened:
            kept = json.loads(opened.read(MOST_BYTES))
        url, report = str(kept["url"]), dict(kept["report"], workflow=dict(kept["report"]["workflow"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise body.InputError(f"not a report that was kept: {error!r}") from error
    return {"url": url, "report": report}
