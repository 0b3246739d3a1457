"""A bot with `PRESET=crcr` and nothing else: every test here also runs without it where it says what differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.core import files
from bot.core.settings_loading import load
from tests.harness import SECRET, UPSTREAM


def under_preset(settings, name="crcr"):
    """Return the settings as they are with this preset in the environment."""
    environ = {
        "APP_ID": str(settings.app_id), "WEBHOOK_SECRET": SECRET, "PRIVATE_KEY": settings.private_key,
        "UPSTREAM_REPO": UPSTREAM, "ALLOWLIST": settings.allowlist, "PRESET": name,
    }  # fmt: skip
    chosen, _ = load({f"OOTBOT_{key}": value for key, value in environ.items()})
    return replace(
        settings, preset=name, **{option: getattr(chosen, option) for option in files.read_presets()[name]}
    )


@pytest.fixture
def preset():
    """The name of the preset; a test that runs without it asks for None."""
    return "crcr"


@pytest.fixture
def settings(settings, preset):
    return under_preset(settings, preset) if preset else settings
