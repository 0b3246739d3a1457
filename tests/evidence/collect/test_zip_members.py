"""Hostile archives: each limit at the limit and one over; each ends in a state with a reason."""

from __future__ import annotations

import io
import random
import resource
import struct
import zipfile

import pytest
from aiohttp import web

from bot.evidence.collect.fetch_file import RangedDownload
from bot.evidence.collect.parse import archives
from bot.evidence.collect.parse.contract import Broken, Refused
from bot.evidence.collect.parser_pool import ParserPool
from bot.github.client import Location
from bot.github.download import Downloads
from tests.evidence.collect import hostile_zip
from tests.evidence.collect.test_collecting import fetches
from tests.harness import UPSTREAM
from tests.serving import SQLITE

MIB = 1024 * 1024
REPORT = "a_usage_log.txt"
CONTRADICTS = "the ZIP archive contradicts itself"
OFFSET = 2**63 + 5
HOSTILE = {
    "one entry by the end record, millions by ZIP64": (
        hostile_zip.many_behind_one,
        f"{CONTRADICTS}: its two end records differ",
    ),
    "two end records": (hostile_zip.two_ends, f"{CONTRADICTS}: it has several end records"),
    "an offset beyond 2^63": (
        lambda made: hostile_zip.with_zip64(made, start=OFFSET),
        f"{CONTRADICTS}: its two end records differ",
    ),
    "a ZIP64 record somewhere else": (
        lambda made: hostile_zip.with_zip64(made, at=OFFSET),
        f"{CONTRADICTS}: its ZIP64 record is not where it should be",
    ),
    "fewer entries counted than there are": (
        hostile_zip.one_entry_less,
        f"{CONTRADICTS}: its directory has not the",
    ),
    "two entries of one member": (hostile_zip.overlapping, f"{CONTRADICTS}: its members overlap"),
    "another name in the directory": (
        lambda made: hostile_zip.renamed(made, b"a_usage", b"b_usage", directory_only=True),
        f"{CONTRADICTS}: two headers of",
    ),
    "a directory that begins before the file": (
        lambda made: hostile_zip.ended(*hostile_zip.split(made), start=2**32 - 2),
        f"{CONTRADICTS}: its directory does not end where its end record begins",
    ),
}  # fmt: skip


def archive(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as made:
        for name, content in members:
            made.writestr(name, content)
    return path


def names(path, **options):
    return [member.name for member in archives.read_members(path, **options)]


def contents(path):
    return {member.name: member.content() for member in archives.read_members(path)}


def test_members_are_read_and_folders_are_none(tmp_path):
    path = archive(tmp_path / "a.zip", [("a.xml", b"<a/>"), ("folder/", b""), ("folder/b.xml", b"<b/>")])
    assert contents(path) == {"a.xml": b"<a/>", "folder/b.xml": b"<b/>"}
    assert names(path, wanted=("*b.xml",)) == ["folder/b.xml"]


def test_names_are_data(tmp_path):
    hostile = ["../../etc/passwd", "/abs", "C:\\x", "a\u202eb", "\x1b[2J", "x" * 300]
    path = archive(tmp_path / "a.zip", [(name, b"x") for name in hostile])
    assert len(contents(path)) == len(hostile)
    assert {one.name for one in tmp_path.rglob("*")} == {"a.zip"}


def test_ten_thousand_members_and_one_more(tmp_path):
    few = archive(tmp_path / "few.zip", [(str(number), b"") for number in range(10_000)])
    assert len(names(few)) == 10_000
    many = archive(tmp_path / "many.zip", [(str(number), b"") for number in range(10_001)])
    with pytest.raises(Refused, match="10,001 members, limit 10,000"):
        names(many)


@pytest.mark.nightly
def test_seventy_thousand_members_need_the_large_end_record(tmp_path):
    many = archive(tmp_path / "many.zip", [(str(number), b"") for number in range(70_000)])
    with pytest.raises(Refused, match="70,000 members, limit 10,000"):
        names(many)


def test_a_directory_that_lies_about_its_members_is_refused(tmp_path):
    path = archive(tmp_path / "a.zip", [(str(number), b"") for number in range(10_001)])
    raw = bytearray(path.read_bytes())
    end = raw.rfind(b"PK\x05\x06")
    raw[end + 8 : end + 12] = struct.pack("<2H", 3, 3)
    path.write_bytes(raw)
    with pytest.raises((Refused, Broken)):
        names(path)


def test_the_ratio_counts_from_ten_mebibytes(tmp_path):
    small = archive(tmp_path / "small.zip", [("zeros", bytes(10 * MIB))])
    assert len(contents(small)["zeros"]) == 10 * MIB
    bomb = archive(tmp_path / "bomb.zip", [("zeros", bytes(10 * MIB + 1))])
    with pytest.raises(Refused, match=r"zip ratio 1,0..:1, limit 200:1"):
        names(bomb)


def test_sizes_claimed_too_small_are_found_out(tmp_path):
    """zipfile itself stops at the claimed size, and finds the checksum wrong."""
    path = archive(tmp_path / "a.zip", [("zeros", bytes(12 * MIB))])
    raw = bytearray(path.read_bytes())
    entry = raw.rfind(b"PK\x01\x02")
    raw[entry + 24 : entry + 28] = struct.pack("<I", 100)
    path.write_bytes(raw)
    with pytest.raises((Broken, Refused)):
        contents(path)


@pytest.mark.parametrize(("size", "refused"), [(256 * MIB, False), (256 * MIB + 1, True)])
def test_one_member_of_256_mebibytes_and_one_byte_more(size, refused):
    def check():
        archives.check_sizes("big", size, size, size)

    if refused:
        with pytest.raises(Refused, match="over 256 MiB"):
            check()
    else:
        check()


@pytest.mark.parametrize(("size", "refused"), [(2048 * MIB, False), (2048 * MIB + 1, True)])
def test_two_gibibytes_in_all_and_one_byte_more(size, refused):
    def check():
        archives.check_sizes("last", 1000, 1000, size)

    if refused:
        with pytest.raises(Refused, match=r"over 2,048 MiB in all"):
            check()
    else:
        check()


def test_encrypted_members_unknown_methods_and_repeated_names_are_left_out(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = archive(
            tmp_path / "a.zip",
            [("twice", b"1"), ("twice", b"2"), ("secret", b"3"), ("odd", b"4"), ("good", b"5")],
        )
    raw = bytearray(path.read_bytes())
    for name, at, value in ((b"secret", 8, 1), (b"odd", 10, 99)):
        entry = raw.rfind(name) - 46
        assert raw[entry : entry + 4] == b"PK\x01\x02"
        raw[entry + at] = value
    path.write_bytes(raw)
    assert contents(path) == {"good": b"5"}


@pytest.mark.parametrize("kept", [0, 3, 21, 0.1, 0.5, 0.9, 0.99])
def test_a_truncated_archive_is_broken(tmp_path, kept):
    path = archive(tmp_path / "a.zip", [("a", random.Random(1).randbytes(50_000))])
    raw = path.read_bytes()
    path.write_bytes(raw[: kept if isinstance(kept, int) else int(len(raw) * kept)])
    with pytest.raises(Broken):
        contents(path)


def test_a_damaged_member_says_where_it_ended(tmp_path):
    path = archive(tmp_path / "a.zip", [("a.xml", random.Random(1).randbytes(50_000))])
    raw = bytearray(path.read_bytes())
    raw[1000:1100] = bytes(100)
    path.write_bytes(raw)
    with pytest.raises(Broken, match=r"member a\.xml ended at byte"):
        contents(path)


def test_a_bomb_of_overlapping_members_ends_at_the_limit(tmp_path):
    """Every entry of the directory leads to the same member: small in the file, large in all."""
    path = archive(tmp_path / "a.zip", [("a" * 10, random.Random(1).randbytes(2 * MIB))], zipfile.ZIP_STORED)
    raw = path.read_bytes()
    end = raw.rfind(b"PK\x05\x06")
    start = struct.unpack_from("<I", raw, end + 16)[0]
    entry = raw[start:end]
    entries = b"".join(entry[:46] + f"{number:010d}".encode() for number in range(2000))
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 2000, 2000, len(entries), start, 0)
    path.write_bytes(raw[:start] + entries + tail)
    with pytest.raises((Refused, Broken)):
        contents(path)


@pytest.fixture
async def stored_zip(aiohttp_server):
    """A store with ranges; yields what it holds and what was asked for."""
    held, asked = {}, []

    async def answer(request):
        asked.append(request.headers.get("Range"))
        body = held["body"]
        if "ranges" not in held:
            return web.Response(body=body)
        first, _, last = request.headers["Range"].removeprefix("bytes=").partition("-")
        start = int(first) if first else max(len(body) - int(last), 0)
        end = int(last) if first else len(body) - 1
        headers = {"Content-Range": f"bytes {start}-{end}/{len(body)}"}
        return web.Response(status=206, body=body[start : end + 1], headers=headers)

    app = web.Application()
    app.router.add_get("/a", answer)
    server = await aiohttp_server(app)
    downloads = Downloads(api_url="http://127.0.0.1:1", own_port=1, proxy=None)
    yield held, asked, downloads, Location(url=f"http://127.0.0.1:{server.port}/a")
    await downloads.close()


async def fetch(stored_zip, folder, *members, most=512 * MIB):
    """Download some members of what the store holds."""
    _, _, downloads, where = stored_zip
    parsers = ParserPool(1)
    try:
        return await RangedDownload(
            downloads=downloads,
            parsers=parsers,
            owner="",
            location=where,
            into=folder / "a.zip",
            members=members,
            most=most,
        ).fetch()
    finally:
        await parsers.close()


def big_archive(extra=0):
    made = io.BytesIO()
    noise = random.Random(2)
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as one:
        one.writestr("noise.bin", noise.randbytes(9 * MIB))
        one.writestr("deep/usage_log.txt", b"line\n" * 1000)
        for number in range(extra):
            one.writestr(f"{'x' * 60}{number}", b"")
        one.writestr("more.bin", noise.randbytes(MIB))
    return made.getvalue()


@pytest.mark.parametrize("extra", [0, 2000])
async def test_only_the_wanted_members_are_fetched(stored_zip, tmp_path, extra):
    held, *_ = stored_zip
    held |= {"body": big_archive(extra), "ranges": True}
    came = await fetch(stored_zip, tmp_path, "*usage_log.txt")
    assert came < 600_000 < len(held["body"])
    read = archives.read_members(tmp_path / "a.zip", wanted=("*usage_log.txt",))
    assert [member.content() for member in read] == [b"line\n" * 1000]
    assert (tmp_path / "a.zip").stat().st_blocks * 512 < 2 * MIB


async def test_a_store_without_ranges_is_left_to_the_normal_download(stored_zip, tmp_path):
    held, *_ = stored_zip
    held["body"] = big_archive()
    assert await fetch(stored_zip, tmp_path, "*") is None


async def test_wanted_members_over_the_limit_are_refused(stored_zip, tmp_path):
    held, *_ = stored_zip
    held |= {"body": big_archive(), "ranges": True}
    with pytest.raises(Refused):
        await fetch(stored_zip, tmp_path, "*.bin", most=MIB)


@SQLITE
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("how", HOSTILE)
async def test_an_archive_that_means_two_things_is_refused(bot, github, received, how, large):
    make, reason = HOSTILE[how]
    run = await github.start_run(UPSTREAM, event="pull_request")
    content = make(hostile_zip.zipped({"first.txt": b"1", REPORT: b"line\n" * 100}, large=large))
    made = github.add_artifact(run, "usage-log-a", content)
    await github.finish_run(run, "failure")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await bot.settle(horizon=15)
    state, why = (await fetches(bot))["artifact", made.id]
    assert (state, received) == ("refused", [])
    assert why.startswith(reason)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # KiB


@SQLITE
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
async def test_a_name_that_is_no_text_is_shown_with_replacements(bot, github, received, large):
    run = await github.start_run(UPSTREAM, event="pull_request")
    archive = hostile_zip.zipped(
        {"\N{LATIN SMALL LETTER E WITH ACUTE}_usage_log.txt": b"line\n"}, large=large
    )
    content = hostile_zip.renamed(archive, b"\xc3\xa9_usage", b"\xff\xfe_usage")
    made = github.add_artifact(run, "usage-log-a", content)
    await github.finish_run(run, "failure")
    await bot.settle(horizon=15)
    assert (await fetches(bot))["artifact", made.id] == ("parsed", None)
    ((_, answer, _),) = received
    assert answer == {"\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}_usage_log.txt": 5}
