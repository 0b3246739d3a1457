"""How are rates shown? Rounded, but never over the edge of a grade, nor to all or nothing."""

import pytest

from bot.core.text import percent

RATES = [
    (4 / 6, "66.7 %"), (1 / 3, "33.3 %"), (0.9999, "99.9 %"), (1.0, "100 %"), (0.0001, "0.1 %"), (0.0, "0 %"), (0.95, "95 %"),
    (0.9499, "94.9 %"), (0.7999, "79.9 %"), (None, "no data"),
]  # fmt: skip


@pytest.mark.parametrize(("rate", "shown"), RATES)
def test_rates_are_rounded_but_never_over_a_grades_edge(rate, shown):
    assert percent(rate) == shown
