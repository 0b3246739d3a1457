"""Is what we write down true? Manifest, defaults and documents against the code."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

import pytest
import yaml

import handlers
from bot.domain import allowlist
from bot.settings import Settings

ROOT = Path(__file__).parent.parent
UNASKED = {"installation", "installation_repositories", "ping"}  # GitHub sends these to every App


def test_the_app_subscribes_to_what_there_are_handlers_for():
    manifest = yaml.safe_load((ROOT / "app.yml").read_text())
    files = {path.stem for path in (ROOT / "handlers").glob("*.py")} - {"__init__"}
    assert files == handlers.EVENTS
    assert files == set(manifest["default_events"]) | UNASKED


def test_every_permission_of_the_manifest_says_why():
    lines = (ROOT / "app.yml").read_text().splitlines()
    begin, end = lines.index("default_permissions:"), lines.index("default_events:")
    assert all("# " in line for line in lines[begin + 1 : end])


def test_default_toml_lists_every_option_with_its_default():
    text = (ROOT / "config" / "default.toml").read_text()
    listed = tomllib.loads("\n".join(line.removeprefix("# ") for line in text.splitlines() if " = " in line))
    options = {field.name: field for field in dataclasses.fields(Settings)}
    assert set(listed) == set(options)
    for name, field in options.items():
        if not field.metadata["required"] and listed[name] != "":
            value = listed[name] if isinstance(listed[name], str) else str(listed[name])
            assert field.metadata["read"](value) == field.default, name
        assert field.metadata["help"] in text


@pytest.mark.parametrize("name", [field.name.upper() for field in dataclasses.fields(Settings)])
def test_every_option_is_in_the_settings_reference(name):
    assert f"`{name}`" in (ROOT / "docs" / "settings.md").read_text()


def test_the_example_allowlist_is_valid():
    assert allowlist.parse((ROOT / "config" / "allowlist.example.yml").read_text()).entries
