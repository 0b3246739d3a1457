"""Durations, as options and the allowlist write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.core.setting_types import MAX_DURATION, duration


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
