"""Speed of classifying job logs: our engine, the same rules one by one with RE2, and with Python's re.

    python3 dev.py bench logs [--rounds 5] [--megabytes 16] [--large 100] [--compared 1]
                                 [--searched 60] [--json]

Logs are made up: progress of builds and tests with timestamps, in which only the last rule matches, which is the worst
case; the coloured one has escape sequences on most lines, the real-shaped one what runners and tools add: groups with
echoed scripts, no-break spaces and middle dots, prefixes of workers, long lines, and steps that fail. Peers clean
lines as we do, then try each rule on each line, from the end. Figures are of processor time, on one core.
"""  # fmt: skip

from __future__ import annotations

import argparse
import random
import re
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import msgspec
import re2

from benchmarks.support.load import pin
from benchmarks.support.machine import describe, show
from bot.evidence.collect.parse.contract import ParserInput
from bot.evidence.logs.parse import parse_log, rulesets
from bot.evidence.logs.parse.classify import classify
from bot.evidence.logs.parse.contract import SearchOptions
from bot.evidence.logs.parse.lines import Masking, clean_block
from bot.evidence.logs.parse.rulesets import compile_rules
from bot.evidence.logs.parse.stored_log import LogWriter, PlainLog, StoredLog

WORDS = (
    "kernel",
    "operator",
    "tensor",
    "shape",
    "device",
    "stream",
    "batch",
    "forward",
    "backward",
    "wheel",
    "copy",
)
HOSTILE = {
    "20_kb_of_FAIL": b"FAIL: test (" * 1700,
    "1_mb_of_digits": b"1" * 1_000_000,
    "one_line_of_10_mb": b"x" * 10_000_000,
}
END = b"2026-11-22T10:59:59.0000000Z ##[error]The check found 3 problems\n"


def made_up(size: int, *, coloured: bool = False) -> bytes:
    chance, lines, length, number = random.Random(1), [], 0, 0
    while length < size:
        kind = chance.random()
        if kind < 0.4:
            text = f"[{number % 3000}/3000] Building CXX object {chance.choice(WORDS)}/{chance.choice(WORDS)}.cpp.o"
        elif kind < 0.7:
            text = f"test_{chance.choice(WORDS)}.py::test_{chance.choice(WORDS)}_{number} PASSED [{number % 100}%]"
        else:
            text = " ".join(chance.choices(WORDS, k=chance.randint(3, 18)))
        if coloured and kind > 0.3:
            text = f"\x1b[32m{text[:10]}\x1b[0m{text[10:]}"
        stamp = (
            f"2026-11-22T10:{number // 60_000 % 60:02}:{number // 1000 % 60:02}.{number % 10_000_000:07}Z "
        )
        lines.append(stamp + text)
        length += len(lines[-1]) + 1
        number += 1
    return ("\n".join(lines) + "\n").encode() + END


def real_shaped(size: int) -> bytes:
    """A log with what real ones have: only the last rule matches it, too."""
    chance, lines, length, number = random.Random(2), [], 0, 0
    while length < size:
        number += 1
        if number % 4_000 == 0:
            texts = ["##[group]Run make test", "\x1b[36;1mmake test\x1b[0m", "shell: /usr/bin/bash -e {0}"]
            texts += [
                "##[endgroup]",
                *["##[error]Process completed with exit code 1."] * (number % 40_000 == 0),
            ]
        else:
            text = " ".join(chance.choices(WORDS, k=chance.randint(3, 18)))
            kind = chance.random()
            if kind < 0.3:
                text = f"\x1b[2m{text[:8]}\x1b[22m \u00b7 \x1b[32m{text[8:]}\x1b[39m"
            elif kind < 0.5:
                text = f"{text}\u00a0{number}\u00a0ms"
            elif kind < 0.55:
                text = f"(Worker_TP{number % 8} pid={400 + number % 8}) {text}"
            elif kind < 0.56:
                text = f"{text} " * 40
            texts = [text]
        stamp = (
            f"2026-11-22T10:{number // 60_000 % 60:02}:{number // 1000 % 60:02}.{number % 10_000_000:07}Z "
        )
        lines += [stamp + text for text in texts]
        length += sum(len(text) + 30 for text in texts)
    return ("\n".join(lines) + "\n").encode() + END


def seconds(work) -> float:
    """Processor time: nothing here waits, and on a machine shared with other work it says more than the clock."""
    began = time.process_time()
    work()
    return time.process_time() - began


def median(work, rounds: int) -> float:
    return statistics.median(seconds(work) for _ in range(rounds))


def store(log: bytes, file) -> None:
    writer, masking = LogWriter(file), Masking()
    for block in PlainLog.of(log):
        writer.add(masking.block(block))
    writer.finish()
    file.flush()


def open_stored(file) -> StoredLog:
    def read(start: int, length: int) -> bytes:
        file.seek(start)
        return file.read(length)

    return StoredLog(read, file.seek(0, 2))


def rule_by_rule(log: bytes, patterns) -> int | None:
    """What a straightforward program does."""
    lines = clean_block(log, first=True).decode().split("\n")
    for number, pattern in enumerate(patterns):
        search = pattern.search
        for line in reversed(lines):
            if search(line):
                return number
    return None


def of_page(log: StoredLog, file, rounds: int) -> dict:
    """Milliseconds until the lines around one are there, index included."""
    entries, took = log.index.entries, []
    for number in range(max(rounds * 20, 20)):
        line = entries[number * 7919 % len(entries)].first_line + 50

        def work(line=line):
            opened = open_stored(file)
            blocks = opened.index.around(line - 10, line + 10)
            for block in blocks:
                opened.block(block)

        took.append(seconds(work) * 1000)
    took.sort()
    return {
        "page_p50_ms": round(took[len(took) // 2], 2),
        "page_p95_ms": round(took[int(len(took) * 0.95)], 2),
    }


def measure(options, ruleset) -> tuple[dict, dict]:
    ours: dict = {"rules": len(ruleset.rules)}
    size = options.megabytes * 1_000_000
    logs = {
        "plain": made_up(size),
        "coloured": made_up(size, coloured=True),
        "real_shaped": real_shaped(size),
    }
    for name, log in logs.items():
        blocks = list(PlainLog.of(log))
        took = median(lambda blocks=blocks: [clean_block(block) for block in blocks], options.rounds)
        ours[f"{name}_cleaning_mb_per_second"] = round(len(log) / took / 1e6)
        took = median(lambda log=log: classify(PlainLog.of(log), ruleset), options.rounds)
        ours[f"{name}_mb_per_second"] = round(len(log) / took / 1e6)
        with tempfile.TemporaryFile() as file:
            store(log, file)
            took = median(lambda file=file: classify(open_stored(file), ruleset), options.rounds)
            ours[f"{name}_stored_mb_per_second"] = round(len(log) / took / 1e6)
    one = made_up(1_000_000)
    ours["1_mb_ms"] = round(median(lambda: classify(PlainLog.of(one), ruleset), options.rounds * 4) * 1000, 1)
    for name, line in HOSTILE.items():
        took = median(lambda line=line: classify(PlainLog.of(line), ruleset), options.rounds)
        ours[f"{name}_ms"] = round(took * 1000, 1)
    ours |= searched(options)
    ours |= large(options, ruleset)
    return ours, compared(options, ruleset)


def large(options, ruleset) -> dict:
    with tempfile.TemporaryFile() as plain, tempfile.TemporaryFile() as file:
        log = made_up(10_000_000)
        for _ in range(max(options.large // 10, 1)):
            plain.write(log)
        size = plain.tell()
        stored = seconds(lambda: _store_file(plain, file))
        found = {
            "large_mb": round(size / 1e6),
            "large_plain_s": round(median(lambda: classify(PlainLog(plain), ruleset), options.rounds), 2),
            "large_stored_s": round(median(lambda: classify(open_stored(file), ruleset), options.rounds), 2),
            "large_mask_and_store_s": round(stored, 2),
            "large_ratio": round(size / file.seek(0, 2), 1),
            "resident_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }
        return found | of_page(open_stored(file), file, options.rounds)


def searched(options) -> dict:
    """Seconds that a search of many logs takes in its child: a pattern that matches nowhere, and one on many lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        with path.open("w+b") as file:
            store(made_up(2_000_000), file)
        found = {}
        for name, pattern in (
            ("nothing", r"segmentation fault \(core \w+\)"),
            ("many_lines", r"test_\w+ PASSED"),
        ):
            wanted = msgspec.to_builtins(SearchOptions(pattern=pattern, most=20))
            given = ParserInput(path=path, blob=path, members=(), options=wanted)

            def work(given=given):
                for _ in range(options.searched):
                    parse_log.search_stored(given)

            found[f"search_{options.searched}_logs_{name}_s"] = round(median(work, options.rounds), 2)
    return found


def _store_file(plain, file) -> None:
    writer, masking = LogWriter(file), Masking()
    for block in PlainLog(plain):
        writer.add(masking.block(block))
    writer.finish()
    file.flush()


def compared(options, ruleset) -> dict:
    log = real_shaped(round(options.compared * 1_000_000))
    with_re2 = [re2.compile(rule.pattern) for rule in ruleset.rules]
    with_re = [re.compile(rule.pattern) for rule in ruleset.rules]
    ways = {
        "ours": lambda: classify(PlainLog.of(log), ruleset),
        "re2_rule_by_rule": lambda: rule_by_rule(log, with_re2),
        "re_rule_by_rule": lambda: rule_by_rule(log, with_re),
    }
    took: dict = {name: [] for name in ways}
    for _ in range(min(options.rounds, 3)):
        for name, work in ways.items():
            took[name].append(seconds(work))
    return {name: round(len(log) / statistics.median(times) / 1e6, 2) for name, times in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=16)
    parser.add_argument("--large", type=int, default=100, help="megabytes of the large log")
    parser.add_argument("--compared", type=float, default=1, help="megabytes of the log that peers classify")
    parser.add_argument("--searched", type=int, default=60, help="logs of 2 MB that are searched")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    pin(1)
    ruleset = rulesets.shipped_rules()
    compile_rules(ruleset)
    ours, speeds = measure(options, ruleset)
    result = {
        "name": "logs",
        "machine": describe(),
        "rounds": options.rounds,
        "ours": ours | {"compared_mb_per_second": speeds["ours"]},
        "peers": {f"{name}_mb_per_second": speed for name, speed in speeds.items() if name != "ours"},
        "ratios": {
            name: round(speeds["ours"] / speed, 1) for name, speed in speeds.items() if name != "ours"
        },
    }
    show(result, as_json=options.json)


if __name__ == "__main__":
    main()
