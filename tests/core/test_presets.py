"""Presets: one name sets several options, an own one wins, and all of it can be printed and is documented."""

import dataclasses
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from bot.console.backends import check
from bot.console.setup import settings as printed
from bot.core import files
from bot.core.errors import Misconfigured
from bot.core.settings import Settings
from bot.core.settings_loading import load

REQUIRED = {
    "OOTBOT_APP_ID": "1",
    "OOTBOT_WEBHOOK_SECRET": "a webhook secret",
    "OOTBOT_PRIVATE_KEY": "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----",
    "OOTBOT_UPSTREAM_REPO": "example-org/project",
    "OOTBOT_ALLOWLIST": "allowlist.yml",
}
WANTED = {
    "oidc_audience": ("ootbot", "pytorch-cross-repo-ci-relay"),
    "unlisted": "ignore",
    "check_names": "crcr",
    "reports": "lenient",
    "default_events": ("pull_request", "push"),
    "queue_times": "first",
    "pull_actions": ("opened", "reopened", "synchronize", "closed"),
}


def loaded(config=None, **own):
    environ = REQUIRED | {f"OOTBOT_{name}": value for name, value in own.items()}
    return load(environ, config)[0]


def different(one, other):
    """Return the options in which two settings differ, as the first has them."""
    return {
        field.name: getattr(one, field.name)
        for field in dataclasses.fields(Settings)
        if getattr(one, field.name) != getattr(other, field.name)
    }


def test_a_preset_sets_its_options_and_no_other():
    assert different(loaded(PRESET="crcr"), loaded()) == WANTED | {"preset": "crcr"}


def test_an_own_setting_wins_wherever_it_is_written(tmp_path):
    file = tmp_path / "ootbot.toml"
    file.write_text('preset = "crcr"\nunlisted = "refuse"\n')
    chosen = loaded(file, OIDC_AUDIENCE="mine")
    kept = {name: value for name, value in WANTED.items() if name not in {"unlisted", "oidc_audience"}}
    assert different(chosen, loaded()) == kept | {"preset": "crcr", "oidc_audience": ("mine",)}


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(Misconfigured) as caught:
        loaded(PRESET="crrc", UNLISTED="perhaps")
    assert caught.value.problems[0] == "OOTBOT_PRESET is wrong: there is no preset 'crrc'; known are crcr"
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("option", "text", "word"),
    [
        ("DEFAULT_EVENTS", "push", "pull_request must be one of them"),
        ("DEFAULT_EVENTS", "pull_request,nightly", "'nightly' is not one of pull_request, push"),
        ("PULL_ACTIONS", "opened,labeled", "'labeled' is not one of opened,"),
        ("PULL_ACTIONS", "opened,closed", "reopened must be one of them"),
    ],
)
def test_events_and_actions_are_words_we_know(option, text, word):
    with pytest.raises(Misconfigured, match=word):
        loaded(**{option: text})


@pytest.mark.parametrize("name", files.read_presets())
def test_a_printed_preset_can_be_copied_and_sets_the_same(name, tmp_path):
    file = tmp_path / "ootbot.toml"
    text = CliRunner().invoke(printed, ["--preset", name]).output
    assert tomllib.loads(text) == {"preset": name}
    lines = [
        line.removeprefix("# ") for line in text.splitlines() if " = " in line and "preset = " not in line
    ]
    file.write_text("\n".join(lines))
    assert different(loaded(file), loaded(PRESET=name)) == {"preset": None}


def test_the_settings_page_holds_every_preset():
    page = (Path(__file__).parents[2] / "docs/settings.md").read_text()
    for name in files.read_presets():
        table = CliRunner().invoke(printed, ["--preset", name, "--markdown"]).output
        assert table in page


def test_a_file_is_checked_as_the_preset_would_read_it(tmp_path):
    file = tmp_path / "allowlist.yml"
    file.write_text("L2: [{repo: example-org/cpu, refs: main}]")
    alone = CliRunner().invoke(check, [str(file)])
    assert alone.exit_code == 1
    assert "none are asked for" in alone.output
    assert CliRunner().invoke(check, [str(file), "--preset", "crcr"]).exit_code == 0
