"""Is what we write down true? Manifest, defaults and documents against the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import handlers
from bot.console.setup import as_markdown, as_toml
from bot.core.settings import Settings, options
from bot.ingest import tables
from bot.oot.allowlist import allowlist

ROOT = Path(__file__).parent.parent
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
