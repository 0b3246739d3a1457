"""Blobs on the disk and in a bucket: whole or not at all, for their owner only, under keys that are never paths."""

from __future__ import annotations

import os
import secrets
import stat
import time

import pytest

from bot.evidence.collect.blobs import TEMPORARY, LocalBlobs
from bot.evidence.collect.remote_blobs import BlobExists, BlobMissing, RemoteBlobs
from tests.evidence.collect import bucket


@pytest.fixture
def blobs(tmp_path):
    return LocalBlobs(tmp_path / "blobs")


@pytest.fixture(params=["folder", "bucket"])
def either(request, tmp_path, monkeypatch):
    if request.param == "folder":
        return LocalBlobs(tmp_path / "blobs")
    for name, value in request.getfixturevalue("server").items():
        monkeypatch.setenv(name, value)
    return RemoteBlobs(f"s3://{bucket.NAME}/{secrets.token_hex(4)}")


async def test_a_blob_is_stored_read_in_parts_replaced_and_deleted(either, tmp_path):
    (tmp_path / "source").write_bytes(b"0123456789")
    await either.put("log/1/2", tmp_path / "source")
    assert await either.get("log/1/2") == b"0123456789"
    assert await either.get("log/1/2", 3, 4) == b"3456"
    assert await either.get("log/1/2", 8, 100) == b"89"
    assert await either.size("log/1/2") == 10
    await either.put("log/1/2", b"new")
    assert await either.get("log/1/2") == b"new"
    with pytest.raises(BlobExists):
        await either.create("log/1/2", b"other")
    assert await either.get("log/1/2") == b"new"
    await either.delete("log/1/2")
    await either.delete("log/1/2")
    with pytest.raises(BlobMissing):
        await either.get("log/1/2")
    with pytest.raises(BlobMissing):
        await either.size("log/1/2")


async def test_blobs_are_listed_by_prefix(either):
    for key in ("log/1/2", "log/10/2", "results/1/2/3/4"):
        await either.create(key, key.encode())
    assert {(one.key, one.size) async for one in either.list("log/")} == {("log/1/2", 7), ("log/10/2", 8)}
    assert {one.key async for one in either.list()} == {"log/1/2", "log/10/2", "results/1/2/3/4"}


async def test_files_are_their_owners_and_nothing_half_written_stays(blobs):
    await blobs.put("log/1/2", b"x")
    with pytest.raises(BlobExists):
        await blobs.create("log/1/2", b"y")
    (file,) = [path for path in blobs.folder.rglob("*") if path.is_file()]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("key", ["../../etc/passwd", "/etc/passwd", "a/../../b", "log/1/\x00", "é" * 20])
async def test_a_key_never_leads_out_of_the_folder(blobs, key):
    try:
        await blobs.put(key, b"x")
    except ValueError:
        return
    assert await blobs.get(key) == b"x"
    for path in blobs.folder.parent.rglob("*"):
        assert blobs.folder in {path, *path.parents}


@pytest.mark.parametrize("key", ["../x", "a/../../b", "/x", "", "a//b"])
@pytest.mark.parametrize("either", ["bucket"], indirect=True)
async def test_nor_out_of_a_buckets_prefix(either, key):
    with pytest.raises(ValueError, match="no key"):
        await either.put(key, b"x")


async def test_what_a_crash_left_half_written_goes_after_an_hour(blobs):
    await blobs.put("log/1/2", b"whole")
    (whole,) = [path for path in blobs.folder.rglob("*") if path.is_file()]
    young, old = (whole.with_name(f"{TEMPORARY}{name}") for name in ("young", "old"))
    for path in (young, old):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 4000,) * 2)
    assert [one.key async for one in blobs.list()] == ["log/1/2"]
    assert (young.exists(), old.exists()) == (True, False)
