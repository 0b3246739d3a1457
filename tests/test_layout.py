"""Does the code keep to the layout it promises? Directions of import, sizes, no stray habits."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for folder in ("bot", "handlers") for path in (ROOT / folder).rglob("*.py"))
MIGRATIONS = ROOT / "bot" / "store" / "migrations"
MOST_LINES = 300

# Who may import whom: a part may import the parts listed with it, and its own modules where it says so.
LEAVES = {"bot", "bot.errors", "bot.clock", "bot.metrics", "bot.traces", "bot.domain"}
STORE = LEAVES | {"bot.settings", "bot.parse", "bot.store", "bot.delivery"}
MIDDLE = STORE | {"bot.github", "bot.oidc", "bot.context", "bot.callback_token", "bot.query", "bot.upstream"}
ALLOWED = {
    "bot.errors": {"bot"},
    "bot.clock": {"bot"},
    "bot.memory": {"bot"},
    "bot.metrics": LEAVES | {"bot.store"},
    "bot.traces": {"bot"},
    "bot.domain": {"bot", "bot.domain"},
    "bot.shipped": {"bot"},
    "bot.parse": {"bot", "bot.domain", "bot.shipped"},
    "bot.settings_file": {"bot"},
    "bot.settings": {"bot", "bot.parse", "bot.errors", "bot.settings_file"},
    "bot.store": {"bot", "bot.errors", "bot.clock", "bot.domain", "bot.store"},
    "bot.delivery": {"bot", "bot.domain", "bot.store"},
    "bot.upstream": STORE,
    "bot.callback_token": {"bot"},
    "bot.pace": LEAVES,
    "bot.identity": LEAVES,
    "bot.tokens": LEAVES,
    "bot.github": LEAVES | {"bot.identity", "bot.pace", "bot.tokens"},
    "bot.issuer_keys": LEAVES | {"bot.parse"},
    "bot.oidc": LEAVES | {"bot.parse", "bot.issuer_keys"},
    "bot.context": STORE | {"bot.github", "bot.oidc"},
    "bot.query": STORE | {"bot.query"},
    "bot.allowlist_text": LEAVES | {"bot.github"},
    "bot.relay": MIDDLE,
    "bot.trust": MIDDLE,
    "bot.shares": MIDDLE | {"bot.trust"},
    "bot.results": MIDDLE | {"bot.trust", "bot.shares"},
    "bot.logs": {"bot", "bot.domain", "bot.errors"},
    "bot.doctor": MIDDLE | {"bot.allowlist_text", "bot.manifest", "bot.doctor"},
    "bot.manifest": {"bot", "bot.shipped"},
    "bot.setup": MIDDLE | {"bot.manifest", "bot.setup"},
    "bot.worker": MIDDLE | {"bot.logs"},
    "bot.tasks": MIDDLE | {"bot.tasks", "bot.allowlist_text", "bot.relay", "bot.results"},
    "bot.web": MIDDLE | {"bot.web", "bot.relay", "bot.results", "bot.trust", "bot.logs"},
    "handlers": {"bot.delivery", "bot.domain", "bot.store", "handlers"},
}


def part_of(module: str) -> str:
    """`bot.store.queue` belongs to `bot.store`, `handlers.push` to `handlers`."""
    names = module.split(".")
    return names[0] if names[0] == "handlers" else ".".join(names[:2])


def imports(path: Path) -> set[str]:
    """The parts of ours that a file imports, at the top, in functions and for types."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            package = node.module in {"bot", "handlers"}
            found |= {part_of(name) if package else part_of(node.module) for name in names}
        elif isinstance(node, ast.Import):
            found |= {part_of(alias.name) for alias in node.names}
    known = {part_of(".".join(source.relative_to(ROOT).with_suffix("").parts)) for source in SOURCES}
    return {name if name in known else "bot" for name in found if name.split(".")[0] in {"bot", "handlers"}}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_what_lies_below_it(path):
    part = part_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
    if part in {"bot.app", "bot.cli", "bot.commands", "bot.demo", "bot.__init__"}:
        assert part == "bot.app" or "handlers" not in imports(path), "only app.py imports handlers"
        return
    assert part in ALLOWED, f"{part} is new: say in this test what it may import"
    assert imports(path) - ALLOWED[part] == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_short_and_says_what_it_answers(path):
    text = path.read_text()
    if MIGRATIONS not in path.parents:
        assert len(text.splitlines()) <= MOST_LINES
    assert ast.get_docstring(ast.parse(text)), "the first line says which question the file answers"


def test_only_worker_and_web_catch_everything():
    """Broad excepts hide bugs, but for the outermost places."""
    allowed = {"worker.py", "middleware.py"}
    broad = {
        path.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler) and _catches_all(node) and not _raises_again(node)
    }
    assert broad <= allowed


def test_only_the_store_writes_sql():
    speakers = {
        path.relative_to(ROOT).parts[1]
        for path in SOURCES
        if "sqlalchemy" in path.read_text() and path.relative_to(ROOT).parts[0] == "bot"
    }
    assert speakers <= {"store"}


def test_a_start_reads_nothing_that_only_other_commands_or_migrations_need():
    code = "import sys, bot.cli, bot.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    unneeded = {"alembic", "nh3", "bot.demo.github", "bot.doctor.examine", "bot.setup.server"}
    assert unneeded & set(done.stdout.split()) == set()


def _catches_all(node: ast.ExceptHandler) -> bool:
    return node.type is None or (
        isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}
    )


def _raises_again(node: ast.ExceptHandler) -> bool:
    """Tidying up on the way out catches nothing."""
    last = node.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None
