"""Generated reports, most of them damaged: each is read, or named with a reason."""

from __future__ import annotations

import random

import pytest

from bot.evidence.collect.parse.contract import Broken, Refused
from bot.evidence.tests.parse.junit import NoReport
from bot.evidence.tests.parse.reports import parse_report
from tests.samples import each

PARTS = (
    b"<?xml version='1.0' encoding='gbk'?>", b"<?xml version='1.0' encoding='utf-16'?>", b"<?xml version='1.0'?>",
    b"<testsuites name='pytest tests'>", b"<testsuites>", b"<testsuite name='a' failures='9'>", b"<testsuite>",
    b"<testcase name='t' classname='c' line='3'/>", b"<testcase name='t' classname='c' line='4'>", b"<testcase/>",
    b"<failure message='m'>", b"<error/>", b"<skipped type='todo'/>", b"<flakyFailure/>", b"<system-out>", b"<properties/>",
    b"</system-out>", b"</failure>", b"</testcase>", b"</testsuite>", b"</testsuites>", b"\x1b[31m", b"&#27;", b"&#0;",
    b"\xff\xfe", b"\0", b"\xc2", b"text", b"]]>", b"<![CDATA[", b"<!-- ", b" -->", b"<!DOCTYPE x>", b"<gtester>", b"&amp;",
    b"<xsl:stylesheet>", b"\n", b"name='" + b"n" * 2_000 + b"'", b"<a:testsuite xmlns:a='u'>",
)  # fmt: skip


def pieces(content, seed):
    """A content in pieces of any size, as often as it is asked for."""
    cuts = sorted(random.Random(seed).choices(range(len(content) + 1), k=3))
    return lambda: (content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True))


def generated(seed):
    chance = random.Random(seed)
    parts = list(chance.choices(PARTS, k=chance.randrange(1, 30)))
    if chance.random() < 0.7:  # most of a report that is whole
        parts = [b"<testsuites><testsuite name='s'>", *parts[:6], b"</testsuite></testsuites>", *parts[6:8]]
    return b"".join(parts)


@pytest.mark.parametrize("block", each(10, range(20)))
def test_whatever_a_report_holds_it_is_read_or_named_with_a_reason(block):
    read, reasons = 0, set()
    for seed in range(block * 100, block * 100 + 100):
        try:
            report = parse_report("r.xml", pieces(generated(seed), seed))
        except (Broken, Refused, NoReport) as error:
            reasons.add(str(error))
        else:
            read += 1
            counted = sum(len(group.in_order()) for group in report.cases.groups.values())
            assert counted == len(report.cases)
    assert read < 100
    assert "" not in reasons
