"""Which runs are trusted is decided in one place: `is_trusted_run` and `is_trusted_dispatch` of `bot.jobs.runs`."""

from __future__ import annotations

import ast
from pathlib import Path

BOT = Path(__file__).parents[3] / "bot"


def test_only_jobs_decide_which_runs_are_trusted():
    deciding = {
        str(path.relative_to(BOT))
        for path in BOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "bot.jobs.runs"
        for name in node.names
        if name.name == "is_trusted"
    }
    assert deciding == set()  # is_trusted says only what GitHub says of a run
