"""Hostile archives and XML files by the thousand, generated from parts of real ones."""

from __future__ import annotations

import io
import random
import struct
import zipfile

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

NUMBERS = [0, 1, 2, 45, 0xFFFE, 0xFFFF, 0x10000, 2**31, 2**32 - 2, 2**32 - 1]
LARGE_NUMBERS = [*NUMBERS, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
NOISE = random.Random(3).randbytes(20_000)  # so that the size of rows is small against that of files
NAMES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    st.sampled_from(
        ["a.xml", "b/c.xml", "../../e.xml", "/f.xml", "g.xml\0h", "i" * 300 + ".xml", "report.jsonl"]
    ),
)
WORDS = st.sampled_from(
    ["a", "test_x", "é", "]]>", "&amp;", "&#0;", "&x;", "<![CDATA[", "\ufffe", "1" * 400, "-1", "nan"]
)
HEADS = st.sampled_from(
    [
        "",
        '<?xml version="1.0" encoding="utf-16"?>',
        '<?xml version="1.0" encoding="ebcdic-cp-us"?>',
        '<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx">]>',
        "\ufeff",
    ]
)


@st.composite
def xml_files(draw):
    """Return a file that begins like a report, and may be none."""
    depth = draw(st.sampled_from([1, 1, 1, 70, 3000]))
    case = f'<testcase name="{draw(WORDS)}" classname="{draw(WORDS)}" time="{draw(WORDS)}">'
    inside = draw(
        st.sampled_from(
            ["", "<failure>", "<failure message='m'>x</failure>", "<skipped/>", "<error/></error>"]
        )
    )
    body = case + inside + draw(st.sampled_from(["</testcase>", "", "</testsuite>"]))
    suites = "<testsuite>" * depth + body * draw(st.sampled_from([1, 3, 50])) + "</testsuite>" * depth
    encoding = draw(st.sampled_from(["utf-8", "utf-16", "latin-1"]))
    content = (draw(HEADS) + suites).encode(encoding, "replace")
    return content[: draw(st.sampled_from([len(content), len(content), len(content) // 2, 0]))]


@st.composite
def archives(draw):
    """Return an archive of some files, or what is left of one."""
    made = io.BytesIO()
    method = draw(st.sampled_from([zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED]))
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.comment = draw(st.sampled_from([b"", b"c", b"PK\x05\x06" + bytes(18), b"x" * 65_535]))
        known = set()
        for _ in range(draw(st.integers(0, 4))):
            name = draw(NAMES)
            if name.partition("\0")[0] not in {"", *known}:
                known.add(name.partition("\0")[0])
                content = draw(st.one_of(xml_files(), st.binary(max_size=50)))
                archive.writestr(zipfile.ZipInfo(name), content, method)
        archive.writestr(zipfile.ZipInfo("noise.bin"), NOISE, method)
    return _damage(draw, bytearray(made.getvalue()))


def _damage(draw, content):
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["end", "entry", "local", "zip64", "bytes", "cut", "twice", "more"]))
        at = content.rfind(b"PK\x05\x06")
        if kind == "end" and at >= 0:
            _put(
                content,
                at + draw(st.sampled_from([4, 6, 8, 10, 20])),
                "<H",
                draw(st.sampled_from(NUMBERS)) & 0xFFFF,
            )
            _put(content, at + draw(st.sampled_from([12, 16])), "<I", draw(st.sampled_from(NUMBERS)))
        elif kind == "entry" and (at := content.find(b"PK\x01\x02")) >= 0:
            _put(
                content,
                at + draw(st.sampled_from([8, 10, 28, 30, 32, 34])),
                "<H",
                draw(st.sampled_from(NUMBERS)) & 0xFFFF,
            )
            _put(content, at + draw(st.sampled_from([16, 20, 24, 42])), "<I", draw(st.sampled_from(NUMBERS)))
        elif kind == "local" and (at := content.find(b"PK\x03\x04")) >= 0:
            _put(
                content,
                at + draw(st.sampled_from([6, 8, 26, 28])),
                "<H",
                draw(st.sampled_from(NUMBERS)) & 0xFFFF,
            )
        elif kind == "zip64" and at >= 0:
            numbers = [draw(st.sampled_from(LARGE_NUMBERS)) for _ in range(5)]
            record = struct.pack(
                "<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, numbers[0], numbers[1], numbers[2], numbers[3]
            )
            content[at:at] = record + struct.pack(
                "<4sLQL", b"PK\x06\x07", 0, draw(st.sampled_from([at, numbers[4]])), 1
            )
        elif kind == "bytes" and content:
            begin = draw(st.integers(0, len(content) - 1))
            content[begin : begin + 8] = draw(st.binary(min_size=1, max_size=8))
        elif kind == "cut":
            del content[draw(st.integers(0, len(content))) :]
        elif kind == "twice":
            content += content[-200:]
        elif kind == "more":
            content[:0] = draw(st.binary(max_size=9))
    return bytes(content)


def _put(content, at, form, number):
    if at + struct.calcsize(form) <= len(content):
        struct.pack_into(form, content, at, number)


def hostile_files(count):
    """Return as many different files, the same each time."""
    found = {}

    @settings(
        max_examples=count * 3 // 2,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(archives())
    def add(content):
        found[content] = None

    add()
    return list(found)[:count]
