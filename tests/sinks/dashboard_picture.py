"""Draw the dashboard for ClickHouse: `python -m tests.sinks.dashboard_picture FILE` plays the demo and writes a PNG.

Grafana is in no package index that a test could install it from. So the panels' queries are asked as Grafana asks them,
their answers are drawn by the chart code of our own pages, and the picture says so.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from html import escape
from pathlib import Path

from bot.web import charts
from tests.browser import chromium
from tests.sinks.demo_in_clickhouse import panels, playing

ROWS = 8  # of a table
COLOURS = ("#1f77b4", "#d95f02", "#2e8540", "#7b4fa3", "#b8860b", "#c2185b", "#00838f", "#616161")
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ font: 14px system-ui; margin: 16px; color: #222; background: #fff }} h1 {{ font-size: 18px; margin: 0 }}
main {{ display: grid; grid-template-columns: 1fr 1fr; gap: 12px; margin-top: 12px }}
section {{ border: 1px solid #ccc; border-radius: 4px; padding: 8px 12px; min-width: 0 }} h2 {{ font-size: 14px; margin: 0 0 6px }}
table {{ border-collapse: collapse; width: 100%; font-size: 12px; table-layout: fixed }} td, th {{ text-align: left; padding: 2px 6px;
overflow: hidden; text-overflow: ellipsis; white-space: nowrap; border-top: 1px solid #eee }} svg {{ width: 100% }}
text {{ font-size: 10px; fill: #555 }} .key {{ font-size: 12px; margin-right: 10px; white-space: nowrap; display: inline-block }}
</style><h1>Panels of deploy/grafana/clickhouse.json on what the demo stores</h1>
<div>Drawn by the chart code of ootbot's own pages, not by Grafana.</div><main>{panels}</main>"""


async def main(file: Path) -> None:
    drawn = []
    with tempfile.TemporaryDirectory() as folder:
        async with playing(Path(folder)) as demo:
            for panel, sql in panels():
                rows = await demo.rows(sql)
                body = series(rows) if panel["type"] == "timeseries" else table(rows)
                drawn.append(f"<section><h2>{escape(panel['title'])}</h2>{body}</section>")
        page = Path(folder) / "page.html"
        page.write_text(PAGE.format(panels="".join(drawn)))
        async with chromium.running() as tab:
            await tab.look(width=1280, dark=False)
            await tab.open(page.as_uri())
            file.write_bytes(await tab.picture(whole=True))


def table(rows):
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    lines = ["".join(f"<td>{escape(str(value))}</td>" for value in row.values()) for row in rows[:ROWS]]
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def series(rows):
    """A drawing of rows of time, name and value."""
    at, name, value = rows[0]
    times = sorted({row[at] for row in rows})
    names = sorted({str(row[name]) for row in rows})[: len(COLOURS)]
    known = {(row[at], str(row[name])): row[value] for row in rows}
    found = charts.chart(
        "", [f"{one:%d %b %H:%M}" for one in times],
        [(one, [known.get((time, one)) for time in times]) for one in names], show=lambda number: f"{number:g}",
    )  # fmt: skip
    parts = [f'<line x1="0" x2="{charts.WIDTH}" y1="{y}" y2="{y}" stroke="#eee"/><text x="{charts.WIDTH + 4}" y="{y + 3}">{label}</text>'
             for y, label in found.ticks]  # fmt: skip
    for line, colour in zip(found.lines, COLOURS, strict=False):
        parts.append(f'<path d="{line.path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [f'<circle cx="{point.x}" cy="{point.y}" r="2" fill="{colour}"/>' for point in line.points]
    parts += [
        f'<text x="{mark.x}" y="{charts.HEIGHT + 14}" text-anchor="{mark.anchor}">{mark.text}</text>'
        for mark in found.marks
    ]
    keys = "".join(
        f'<span class="key"><span style="color:{colour}">&#9632;</span> {escape(one)}</span>'
        for one, colour in zip(names, COLOURS, strict=False)
    )
    return f'<svg viewBox="-4 -6 {charts.WIDTH + 50} {charts.HEIGHT + 26}">{"".join(parts)}</svg><div>{keys}</div>'


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
