"""Does the code keep to the layout it promises? Directions of import, sizes, no stray habits."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from bot.core.feature import load
from bot.features import FEATURES
from tests import first_migration

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for folder in ("bot", "handlers") for path in (ROOT / folder).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MOST_LINES = 600


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_short_and_says_what_it_answers(path):
    text = path.read_text()
    if path != first_migration.FILE:  # it is generated
        assert len(text.splitlines()) <= MOST_LINES
    assert ast.get_docstring(ast.parse(text)), "the first line says which question the file answers"


# where one thread alone decodes, before any other is started or in a process of its own
SINGLE_THREADED = {"health.py", "registration.py", "parser_pool.py", "artifact.py"}


def test_types_that_are_decoded_in_threads_are_learned_when_imported():
    """Two threads that have msgspec look at a class for the first time at the same moment crash the process."""
    late = {
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in SOURCES
        if path.name not in SINGLE_THREADED
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "decode"
        for given in call.keywords
        if given.arg == "type" and isinstance(given.value, ast.Name) and given.value.id != "Seconds"  # a dict
    }
    assert late == set()


# what shows or asks, and what the parser child imports; pages keep their statements in modules of rows
WITHOUT_STATEMENTS = ("handlers/", "bot/web/", "bot/console/", "bot/pages/")
STATEMENTS = {"select", "insert", "update", "delete", "exists", "union_all", "text"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sql_stands_in_the_module_of_its_subject(path):
    place = str(path.relative_to(ROOT))
    rows_of_pages = place.startswith("bot/pages/") and "rows" in path.stem
    without = (place.startswith(WITHOUT_STATEMENTS) or "/parse/" in place) and not rows_of_pages
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    made = [call.lineno for call in calls if _makes_sql(call)]
    assert not (without and made), (
        f"statements in lines {made}: they stand below pages, endpoints and commands"
    )


def _makes_sql(call):
    if isinstance(call, ast.Attribute):
        return isinstance(call.value, ast.Name) and call.value.id == "sa" and call.attr in STATEMENTS
    return isinstance(call, ast.Name) and call.id == "select"


def test_files_of_tests_are_short_too():
    long = [path for path in TESTS if len(path.read_text().splitlines()) > MOST_LINES]
    assert long == []


def test_only_worker_applier_and_web_catch_everything():
    """Broad excepts hide bugs, but for the outermost places."""
    allowed = {"worker.py", "deliveries.py", "server.py"}
    broad = {
        path.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler) and _catches_all(node) and not _raises_again(node)
    }
    assert broad <= allowed


def test_a_start_reads_nothing_that_only_other_commands_or_migrations_need():
    code = "import sys, bot.cli, bot.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    unneeded = {"alembic", "nh3", "bot.demo.github", "bot.ops.doctor", "bot.ops.registration"}
    assert unneeded & set(done.stdout.split()) == set()


def _catches_all(node: ast.ExceptHandler) -> bool:
    return node.type is None or (
        isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}
    )


def _raises_again(node: ast.ExceptHandler) -> bool:
    """Tidying up on the way out catches nothing."""
    last = node.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_everything_a_feature_names_is_there(feature):
    """The names are text, which mypy does not follow."""
    for field in dataclasses.fields(feature):
        value = getattr(feature, field.name)
        if field.name == "navigation":
            value = tuple(entry.shown for entry in value)
        named = value.values() if isinstance(value, dict) else [value]
        named = [name for each in named for name in (each if isinstance(each, tuple | frozenset) else [each])]
        for reference in named if field.name not in {"name", "background"} else ():
            assert not reference or (
                load(reference) if ":" in reference else importlib.import_module(reference)
            )
    for one in map(load, feature.sums):
        assert all(map(load, filter(None, (one.count, one.after))))
