"""Photograph the demo for the documents: `python -m tests.demo.pictures [FOLDER]` writes PNGs, by default in docs/pictures.

Fonts of the machine are used: Debian's fonts-noto-color-emoji has the marks of the comment.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path

from bot.console.demo_past import write_past
from bot.demo import environment
from bot.demo.environment import Wanted
from bot.demo.participants import NPU, UPSTREAM
from bot.demo.scenario import Scenario
from tests.browser import chromium

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
DESK, PHONE = 1_440, 390
GRID, PULL = f"/hud/{UPSTREAM}/main", f"/{UPSTREAM}/pull/2"
PICTURES = {  # name: path, width, dark, height
    "grid-desk": (GRID, DESK, False, 1_500),
    "grid-desk-dark": (GRID, DESK, True, 1_500),
    "grid-phone": (GRID, PHONE, False, 1_200),
    "home-desk": (f"/{UPSTREAM}", DESK, False, 1_000),
    "red-desk": ("/red", DESK, False, 1_050),
    "red-phone": ("/red", PHONE, False, 1_200),
    "health-desk": ("/oot", DESK, False, 900),
    "levels-desk": ("/oot/levels", DESK, False, 1_000),
    "pull-desk": (PULL, DESK, False, 1_200),
    "pull-phone-dark": (PULL, PHONE, True, 1_200),
    "backend-desk-dark": (f"/oot/{NPU}", DESK, True, 1_200),
    "commit-desk": ("", DESK, False, 1_100),  # of a push
    "culprit-desk": ("", DESK, False, 1_150),  # found in the story
    "utilization": ("", DESK, False, 1_000),  # of the job whose machine was watched
}


async def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    async with (
        environment.running(Wanted(write_past=write_past, start_timeout="20s")) as env,
        chromium.running() as tab,
    ):
        scenario = Scenario(env)
        await scenario.play()
        await asyncio.sleep(100)  # until the silent backend counts as not run, and all sums are made
        commits = scenario.history.commits
        await tab.open(env.bot.url + GRID)
        paths = {
            "culprit-desk": await tab.evaluate("document.querySelector('a[href*=\"/bisects/\"]').pathname"),
            "commit-desk": f"/{UPSTREAM}/commit/{commits[-4]}",
            "utilization": f"/{UPSTREAM}/job/{scenario.own_jobs[1]}/utilization",
        }
        for name, (path, *view) in PICTURES.items():
            await _photograph(tab, folder / f"{name}.png", env.bot.url + paths.get(name, path), *view)
        pull = f"{env.github.url}/{UPSTREAM}/pull/2"
        await _photograph(
            tab, folder / "comment-desk.png", pull, 1_000, dark=False, height=620, part="article:has(.pill)"
        )


async def _photograph(tab, file, url, width, dark, height, part=None):
    """Write the upper part of a page, or a part of it that a selector names."""
    await tab.look(width=width, dark=dark)
    await tab.open(url)
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    if part:
        box = await tab.evaluate(
            f"(b => [b.x, b.y, b.width, b.height])(document.querySelector({part!r}).getBoundingClientRect())"
        )
        clip |= dict(zip(("x", "y", "width", "height"), [*box[:3], min(height, box[3])], strict=True))
    else:
        size = (await tab.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip["height"] = min(height, size["height"])
    made = await tab.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    file.write_bytes(base64.b64decode(made["data"]))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER))
