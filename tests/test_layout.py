"""Where things stand: the layout of the tree, its interface, and what the documents promise."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml
from sqlalchemy.dialects import postgresql, sqlite

import handlers
from bot.app import make_app, operations
from bot.console.setup import as_markdown, as_toml
from bot.core.feature import import_tables, load
from bot.core.settings import Settings, options
from bot.db.rows import metadata
from bot.features import FEATURES
from bot.ingest import tables
from bot.oot.allowlist import allowlist
from bot.web.openapi_document import OPERATION, document
from tests import first_migration

# Does the code keep to the layout it promises? Directions of import, sizes, no stray habits.


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


# Does the public interface stay as it is? OpenAPI document, routes and tables, each compared with a kept text.


KEPT = Path(__file__).parent / "interface"


def kept(name, text):
    """Return the text kept under a name, written first where the environment asks for it."""
    file = KEPT / name
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        file.write_text(text, encoding="utf-8")
    return file.read_text(encoding="utf-8")


def openapi():
    """The OpenAPI document, as it is sent."""
    content = document("http://127.0.0.1", [*operations(FEATURES), OPERATION])
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def statements(dialect):
    """The statements that make every table and index."""
    import_tables(FEATURES)
    made = []
    for table in sorted(metadata.tables.values(), key=lambda one: one.name):
        made.append(str(sa.schema.CreateTable(table).compile(dialect=dialect)).strip())
        indexes = sorted(table.indexes, key=lambda one: one.name)
        made += [str(sa.schema.CreateIndex(index).compile(dialect=dialect)).strip() for index in indexes]
    return "\n".join(line.rstrip() for text in made for line in text.splitlines()) + "\n"


async def test_the_openapi_document_is_as_it_was():
    assert openapi() == kept("openapi.json", openapi())


@pytest.mark.parametrize("dialect", [sqlite.dialect(), postgresql.dialect()], ids=["sqlite", "postgresql"])
def test_tables_are_made_as_they_were(dialect):
    assert statements(dialect) == kept(f"tables-{dialect.name}.sql", statements(dialect))


@pytest.mark.logic
async def test_routes_are_as_they_were(bot):
    app = make_app(bot.context)
    found = {f"{route.method} {route.resource.canonical}" for route in app.router.routes()}
    text = "\n".join(sorted(found)) + "\n"
    assert text == kept("routes.txt", text)


# Is what we write down true? Manifest, defaults and documents against the code.


UNASKED = {"installation", "installation_repositories", "ping"}  # GitHub sends these to every App


def test_the_app_subscribes_to_what_there_are_handlers_for():
    manifest = yaml.safe_load((ROOT / "app.yml").read_text())
    files = {path.stem for path in (ROOT / "handlers").glob("*.py")} - {"__init__"}
    assert files == handlers.EVENTS
    assert files == {*manifest["default_events"], *manifest["optional_events"], *UNASKED}
    assert not set(manifest["default_events"]) & set(manifest["optional_events"])


@pytest.mark.parametrize("name", ["app.yml", "app.relay.yml"])
def test_every_permission_of_the_manifest_says_why(name):
    lines = (ROOT / name).read_text().splitlines()
    begin, end = lines.index("default_permissions:"), lines.index("default_events:")
    assert all("# " in line for line in lines[begin + 1 : end])
    if "optional_permissions:" in lines:
        begin, end = lines.index("optional_permissions:"), lines.index("optional_events:")
        assert all("# " in line for line in lines[begin + 1 : end])


def test_default_toml_says_what_the_code_says():
    text = (ROOT / "config" / "default.toml").read_text()
    assert text == as_toml(), "run `python3 dev.py generate`"
    listed = tomllib.loads("\n".join(line.removeprefix("# ") for line in text.splitlines() if " = " in line))
    for field in options(Settings).values():
        if not field.metadata["required"] and listed[field.name] != "":
            assert field.metadata["read"](str(listed[field.name])) == field.default, field.name


def test_the_settings_reference_says_what_the_code_says():
    assert (ROOT / "docs" / "settings.md").read_text() == as_markdown(), "run `python3 dev.py generate`"


def test_the_example_allowlist_is_valid():
    assert allowlist.parse_allowlist((ROOT / "config" / "allowlist.example.yml").read_text()).entries


def test_every_link_between_our_documents_leads_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "actions").rglob("*.md")]
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert dead == []


def test_the_merge_rule_of_every_table_is_written_down():
    text = (ROOT / "docs" / "records.md").read_text()
    for kind in tables.TYPES.values():
        key = ", ".join(f"`{name}`" for name in kind.key) if kind.key != ("guid",) else "delivery GUID"
        assert f"| `{kind.table}` | {key} | {kind.rule} |" in text
