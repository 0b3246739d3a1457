"""Which runs are trusted is decided in one place: `is_trusted_run` and `is_trusted_dispatch` of collecting."""

from __future__ import annotations

import ast
from pathlib import Path

BOT = Path(__file__).parents[3] / "bot"


def test_only_collecting_decides_which_runs_are_trusted():
    deciding = {
        str(path.relative_to(BOT))
        for path in BOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "bot.jobs.runs"
        for name in node.names
        if name.name == "is_trusted"
    }
    assert deciding == {"ci/collect/store/trusted_runs.py"}
