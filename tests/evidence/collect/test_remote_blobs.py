"""Blobs in a bucket: what is collected lies there, and the operator learns what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bot.evidence.collect import blobs, remote_blobs
from bot.evidence.collect.remote_blobs import BlobsUnavailable
from bot.jobs.settings import CollectSettings
from tests.command import ootbot
from tests.evidence.collect import bucket
from tests.evidence.collect.test_collecting import ended_job
from tests.serving import SQLITE

ROOT = Path(__file__).parents[3]
URL = f"s3://{bucket.NAME}/of/the-bot"


@pytest.fixture
def collecting(server, monkeypatch):
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return CollectSettings(blobs=URL)


@SQLITE
async def test_what_is_collected_lies_in_the_bucket(bot, github, received):
    await ended_job(github)
    await bot.settle(horizon=10)
    (fetch,) = await bot.rows("ci_fetch")
    assert fetch["state"] == "stored"
    store = blobs.open_blobs(bot.context.settings)
    assert fetch["blob"] in {one.key async for one in store.list()}
    assert (await store.get(fetch["blob"])).startswith(b"kept ")
    assert not (bot.context.settings.data_dir / "blobs").exists()


async def test_a_large_file_goes_there_in_parts(collecting, tmp_path):
    content = os.urandom(1024 * 1024) * 12
    (tmp_path / "large").write_bytes(content)
    store = remote_blobs.RemoteBlobs(URL)
    await store.put("log/9/9", tmp_path / "large")
    assert await store.size("log/9/9") == len(content)
    assert await store.get("log/9/9", len(content) - 10) == content[-10:]
    assert await store.get("log/9/9", len(content) + 10) == b""
    assert await store.get("log/9/9", len(content) + 10, 5) == b""
    await store.delete("log/9/9")


@SQLITE
async def test_doctor_tries_the_bucket(bot, collecting):
    folder = bot.context.settings.data_dir
    (folder / "ootbot.toml").write_text(f'blobs = "{URL}"\n')
    _, out, _ = await ootbot(bot, "doctor")
    (line,) = [line for line in out.splitlines() if " blobs" in line]
    assert line.split()[0] == "ok", line
    (folder / "ootbot.toml").write_text('blobs = "s3://no-such-bucket/x"\n')
    code, out, _ = await ootbot(bot, "doctor")
    assert code == 1
    assert "s3://no-such-bucket/x cannot be used" in out
    assert "credentials" in out
    left = remote_blobs.RemoteBlobs(URL)
    assert [one async for one in left.list("doctor/")] == []


async def test_a_bucket_that_is_gone_is_no_missing_blob(collecting):
    store = remote_blobs.RemoteBlobs("s3://no-such-bucket/x")
    with pytest.raises(BlobsUnavailable, match="no-such-bucket"):
        await store.put("log/1/2", b"x")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("s3://bucket/x", "pip install 'ootbot[s3]'"),
        ("ftp://bucket/x", "neither a folder nor s3://"),
        ("s3://", "neither a folder nor s3://"),
    ],
)
def test_a_place_that_cannot_be_is_refused_at_the_start(tmp_path, where, words):
    code = "import sys; sys.modules['obstore'] = None; from bot.cli import main; main(['serve'])"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
    environ |= {"OOTBOT_BLOBS": where, "OOTBOT_DATA_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert words in done.stderr
