"""What reads the output of `ootbot export` may stop before its end, as `head` does."""

from __future__ import annotations

import os

from bot.console.export import _until_nobody_reads as until_nobody_reads


def test_what_reads_the_output_may_stop():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as file, until_nobody_reads(file):
        file.write("a line\n" * 100_000)
