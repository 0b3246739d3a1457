"""docs/install-try.md, word for word: only the ports are others, since these may be taken here."""

import asyncio
import contextlib
import os
import re
import shlex
import socket
import sys
from pathlib import Path

import pytest

from tests import secret_markers
from tests.browser_of_pages import Visitor

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "install-try.md").read_text()
COMMANDS = re.findall(r"^\$ (ootbot .*)$", PAGE, re.MULTILINE)
PATIENCE = 60


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return str(listening.getsockname()[1])


class Terminal:
    """Runs the commands of the page in one folder."""

    def __init__(self, folder):
        self._folder = folder
        self._ports = {"8900": free_port(), "8080": free_port()}
        self._running = []

    def here(self, text):
        for written, port in self._ports.items():
            text = text.replace(written, port)
        return text

    async def start(self, command):
        words = shlex.split(self.here(command))
        environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bot.cli", *words[1:], cwd=self._folder, env=environ | {"PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        self._running.append(process)
        return process

    async def end(self):
        for process in reversed(self._running):
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.communicate()


async def says(process, pattern):
    """Read what it prints until the pattern comes."""
    said = ""
    while not (found := re.search(pattern, said)):
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        assert line, said
        said += line.decode()
    assert secret_markers.leaks(said) == []
    return found


@pytest.fixture
async def terminal(tmp_path):
    made = Terminal(tmp_path)
    yield made
    await made.end()


@pytest.mark.nightly
async def test_the_page_leads_from_nothing_to_a_green_gate(terminal, tmp_path):
    assert [command.split()[1] for command in COMMANDS] == ["demo", "init", "serve", "doctor"]
    github, init, serve, doctor = COMMANDS
    await says(await terminal.start(github), "a GitHub at")
    async with Visitor() as visitor:
        registering = await terminal.start(init)
        address = (await says(registering, r"http://\S+/setup/\S+"))[0]
        done = await visitor.press(await visitor.press(await visitor.open(address)))
        install = next(link for link in done.links if link.endswith("/installations/new"))
        assert await registering.wait() == 0
        chosen = await visitor.open(install)
        assert len(chosen.forms[0]["fields"]) == 4
        await visitor.press(chosen)
        (allowlist,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
        (tmp_path / "allowlist.yml").write_text(allowlist)
        await says(await terminal.start(serve), r"ootbot \S+ at http")
        await all_is_well(terminal, doctor)
        base = terminal.here("http://127.0.0.1:8900")
        home = await visitor.open(base)
        (form,) = [
            at for at, form in enumerate(home.forms) if form["action"].endswith("/example-org/project/pulls")
        ]
        pull = await visitor.press(home, form)
        async with asyncio.timeout(PATIENCE):
            while "oot / gate" not in pull.text or "All checks have passed" not in pull.text:
                await asyncio.sleep(0.3)
                pull = await visitor.open(pull.url)
    await all_is_well(terminal, doctor)


async def all_is_well(terminal, doctor):
    examined = await terminal.start(doctor)
    said = (await examined.communicate())[0].decode()
    assert examined.returncode == 0, said
    assert "0 errors" in said
