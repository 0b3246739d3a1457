"""Charts: where values lie, what the axes say, and where points lead."""

import re

from bot.core.text import duration, percent
from bot.web import charts, html

DAYS = [f"2026-11-{day:02}" for day in range(1, 31)]


def drawn(chart):
    return str(html.environment().get_template("charts.html").module.draw(chart))


def test_the_axes_have_labels_and_both_ends_among_them():
    chart = charts.chart("Pass rate", DAYS, [("rate", [0.5] * 30)], show=percent, top=1.0)
    assert [label for _, label in chart.ticks] == ["0 %", "50 %", "100 %"]
    assert [mark.text for mark in chart.marks] == [DAYS[0], DAYS[7], DAYS[14], DAYS[22], DAYS[29]]
    assert [mark.anchor for mark in chart.marks] == ["start", "middle", "middle", "middle", "end"]
    assert (chart.marks[0].x, chart.marks[-1].x) == (0, 560)
    assert all(f">{mark.text}</text>" in drawn(chart) for mark in chart.marks)


def test_few_days_are_all_named_and_one_day_once():
    two = charts.chart("Runs", DAYS[:2], [("runs", [1, 2])], show=str)
    assert [mark.text for mark in two.marks] == DAYS[:2]
    assert [mark.text for mark in charts.chart("Runs", DAYS[:1], [("runs", [1])], show=str).marks] == DAYS[:1]
    assert charts.chart("Runs", [], [("runs", [])], show=str).empty


def test_times_have_round_ticks():
    chart = charts.chart("Queue", DAYS[:3], [("median", [10, 400, None])], show=duration, seconds=True)
    assert [label for _, label in chart.ticks] == ["0 s", "2 min", "4 min", "6 min", "8 min"]


def test_a_value_is_told_on_hover_and_in_the_table():
    page = drawn(charts.chart("Runs", DAYS[:3], [("runs", [1, None, 3])], show=lambda value: f"{value:g}"))
    assert re.findall(r"<title>([^<]*)</title>", page) == ["2026-11-01: runs 1", "2026-11-03: runs 3"]
    assert "<tr><th scope=row>2026-11-02</th><td>–" in page
    assert 'role="img" aria-label="Runs; the values are in the table below"' in page
    assert "<a " not in page


def test_a_point_and_its_line_in_the_table_lead_to_the_commits_of_the_day():
    links = charts.commits_of_days("org/repo", DAYS[:2], "release/2.1")
    assert links == [f"/hud/org/repo/release/2.1?on={day}" for day in DAYS[:2]]
    page = drawn(charts.chart("Runs", DAYS[:2], [("runs", [1, 2])], show=str, links=links))
    assert page.count(f'<a href="{links[0]}" tabindex=-1><circle') == 1
    assert f'<th scope=row><a href="{links[0]}">2026-11-01</a>' in page
    assert 'aria-hidden="true"' in page  # what it says, the table says with links to be reached by keyboard
    assert charts.commits_of_days("org/repo", DAYS[:1]) == ["/hud/org/repo?on=2026-11-01"]


def test_names_from_outside_are_text():
    page = drawn(charts.chart("<b>", ["<i>"], [("<u>", [1])], show=str, links=['/x"><script>']))
    assert "<b>" not in page
    assert "<i>" not in page
    assert "<u>" not in page
    assert "<script>" not in page
