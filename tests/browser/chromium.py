"""A headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import shutil
import tempfile
from pathlib import Path

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-port=0",
)  # fmt: skip
PATIENCE = 60  # seconds for anything


def find() -> str | None:
    """The browser's program, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One tab; `complaints` holds what it had to say of the pages: console errors and violations of the policy."""

    def __init__(self, socket):
        self.socket = socket
        self.ids = itertools.count(1)
        self.waiting = {}
        self.loaded = asyncio.Event()
        self.complaints = []
        self.reading = asyncio.create_task(self._read())

    async def call(self, method, **parameters):
        number = next(self.ids)
        answer = self.waiting[number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(PATIENCE):
            return await answer

    async def _read(self):
        async for message in self.socket:
            said = message.json()
            if "id" in said:
                answer = self.waiting.pop(said["id"])
                if not answer.done():
                    if "error" in said:
                        answer.set_exception(RuntimeError(said["error"]))
                    else:
                        answer.set_result(said["result"])
            else:
                self._heard(said["method"], said["params"])

    def _heard(self, event, told):
        if event == "Page.loadEventFired":
            self.loaded.set()
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(told["exceptionDetails"]["text"])
        elif event == "Runtime.consoleAPICalled" and told["type"] in {"error", "assert"}:
            self.complaints.append(str(told["args"]))
        elif event == "Log.entryAdded" and told["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}".rstrip())

    async def look(self, *, width, dark):
        """Be so wide, and light or dark."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", media="screen", features=[scheme])

    async def open(self, url):
        self.loaded.clear()
        await self.call("Page.navigate", url=url)
        async with asyncio.timeout(PATIENCE):
            await self.loaded.wait()

    async def evaluate(self, script):
        done = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"])
        return done["result"].get("value")

    async def press_tab(self):
        await self.press("Tab", 9)

    async def press(self, key, code):
        """Press a key, given by its name and the number that Windows has for it."""
        for kind in ("rawKeyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    async def picture(self, *, whole=False):
        """A PNG of what is seen, or of the whole page."""
        options = {"captureBeyondViewport": True} if whole else {}
        if whole:
            size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
            options["clip"] = {
                "x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 6_000), "scale": 1,
            }  # fmt: skip
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png", **options))["data"])


@contextlib.asynccontextmanager
async def running():
    """A browser with one tab; it ends with the block, and its profile with it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            find(), *FLAGS, f"--user-data-dir={profile}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with aiohttp.ClientSession() as http:
                port = await _port(Path(profile) / "DevToolsActivePort")
                async with http.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
                    address = (await answer.json())["webSocketDebuggerUrl"]
                async with http.ws_connect(address, max_msg_size=0) as socket:
                    tab = Tab(socket)
                    for domain in ("Page", "Runtime", "Log", "Network"):
                        await tab.call(f"{domain}.enable")
                    yield tab
                    tab.reading.cancel()
        finally:
            process.terminate()
            await process.wait()


async def _port(file):
    async with asyncio.timeout(PATIENCE):
        while not file.exists() or "\n" not in file.read_text():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)
    return file.read_text().split("\n")[0]
