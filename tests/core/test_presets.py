"""Presets set several options, an own one wins; durations and rates, as options and pages write them."""

import dataclasses
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bot.console.backends import check
from bot.console.setup import settings as printed
from bot.core import files
from bot.core.errors import Misconfigured
from bot.core.setting_types import MAX_DURATION, duration
from bot.core.settings import Settings
from bot.core.settings_loading import load
from bot.core.text import percent

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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("90s", 90), ("30m", 1_800), ("6h", 21_600), ("2d", 172_800), ("3650d", MAX_DURATION)],
)
def test_a_duration_is_a_number_and_a_unit(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "90", "s", "0s", "007s", "-1s", "1.5h", "1 h", " 1h", "1h\n", "1H", "1h30m", "1w", "١h"]
)
def test_anything_else_is_refused_with_examples(text):
    with pytest.raises(ValueError, match=r"is not a duration: .*`90s`, `30m`, `6h` or `2d`"):
        duration(text)


@pytest.mark.parametrize("text", ["3651d", "999999999d"])
def test_more_than_ten_years_are_refused(text):
    with pytest.raises(ValueError, match="longer than `3650d`"):
        duration(text)


@given(st.text() | st.from_regex("[0-9]{1,12}[smhd]"))
def test_a_text_is_a_bounded_number_of_seconds_or_a_value_error(text):
    try:
        seconds = duration(text)
    except ValueError:
        return
    assert 0 < seconds <= MAX_DURATION


RATES = [
    (4 / 6, "66.7 %"), (1 / 3, "33.3 %"), (0.9999, "99.9 %"), (1.0, "100 %"), (0.0001, "0.1 %"), (0.0, "0 %"), (0.95, "95 %"),
    (0.9499, "94.9 %"), (0.7999, "79.9 %"), (None, "no data"),
]  # fmt: skip


@pytest.mark.parametrize(("rate", "shown"), RATES)
def test_rates_are_rounded_but_never_over_a_grades_edge(rate, shown):
    assert percent(rate) == shown
