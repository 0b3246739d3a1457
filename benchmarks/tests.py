"""Speed of reading JUnit XML: ours, ElementTree, and lxml where it is installed, on the same generated archive.

    python3 dev.py bench tests [--rounds 5] [--cases 300000] [--files 60] [--run-cases 610000] [--json]

Reports are in PyTorch's layout, one case in a thousand fails. Peers only count cases and failures of each file; ours
also merges attempts, names places and keeps messages. Figures are of processor time and of the most memory resident,
each in a process of its own. Then a run of many artifacts goes through parser child and database: processor seconds of
the server and growth of its database and memory, with its tests new, and known; and `ootbot serve` is asked for pages
about these tests. Last, it is asked for the lists that CI fetches, as large as PyTorch's.
"""  # fmt: skip

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support.load import pin
from benchmarks.support.machine import describe, show

REQUESTS = 20  # for each list, times rounds
CASES_OF_A_FILE = 1_000
FAILURE = '<failure message="AssertionError: Tensor-likes are not close!">Traceback: line 3\n</failure>'


def generate(path: Path, cases: int, files: int) -> int:
    """Write an archive of reports; returns their bytes of XML."""
    written = number = 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in range(files):
            lines = ['<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest">']
            for _ in range(cases // files):
                where = f"test.suite_{file}.test_ops.TestOps{number % 20}"
                name = f"test_operator_{number}_cuda_float32"
                child = FAILURE if number % 1000 == 7 else ""
                lines.append(
                    f'<testcase classname="{where}" name="{name}" time="0.{number % 1000:03}">{child}</testcase>'
                )
                number += 1
            text = "\n".join([*lines, "</testsuite></testsuites>"])
            written += len(text)
            archive.writestr(f"test/test-reports/python-pytest/suite_{file}.test_ops/report-{file}.xml", text)
    return written


def with_ours(path: Path) -> dict:
    from bot.evidence.tests.parse import reports  # noqa: PLC0415 - as below

    return reports.read_reports([path]).counts()


def with_element_tree(path: Path) -> dict:
    from xml.etree import ElementTree as ET  # noqa: PLC0415 - each reader in a process of its own

    return _with_tree(path, ET)


def with_lxml(path: Path) -> dict:
    from lxml import etree as tree  # noqa: PLC0415 - as above, and it may be missing

    return _with_tree(path, tree)


def _with_tree(path: Path, tree) -> dict:
    tests = failed = 0
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            root = tree.fromstring(archive.read(name))
            for case in root.iter("testcase"):
                tests += 1
                failed += case.find("failure") is not None
    return {"tests": tests, "failed": failed}


READERS = {"ours": with_ours, "element_tree": with_element_tree, "lxml": with_lxml}


def measured(name: str, path: Path) -> dict:
    """Read the archive in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--reader", name, "--path", path], check=True, capture_output=True
    )
    return json.loads(done.stdout)


def read_once(name: str, path: Path) -> None:
    began = time.process_time()
    counts = READERS[name](path)
    seconds = time.process_time() - began
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {
                "seconds": seconds,
                "resident_mb": resident,
                "tests": counts["tests"],
                "failed": counts["failed"],
            }
        )
    )


def stored_run(cases: int) -> dict:
    """What it takes to store a run, with its tests new, known on a new day, and once more that day."""
    if not cases:
        return {}
    script = Path(__file__).parent / "support" / "stored_tests.py"
    done = subprocess.run(
        [sys.executable, script, "--cases", str(cases)], check=True, capture_output=True, text=True
    )
    return {"run": {"cases": cases} | json.loads(done.stdout.splitlines()[-1])}


def served_lists(files: int, requests: int) -> dict:
    """How long the lists that CI fetches take from `ootbot serve`."""
    script = Path(__file__).parent / "support" / "served_lists.py"
    command = [sys.executable, script, "--files", str(files), "--requests", str(requests)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {"lists": json.loads(done.stdout.splitlines()[-1])}


def figures(runs: list[dict]) -> dict:
    return {
        "seconds": round(statistics.median(run["seconds"] for run in runs), 2),
        "resident_mb": round(statistics.median(run["resident_mb"] for run in runs)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", type=int, default=300_000)
    parser.add_argument("--files", type=int, default=60)
    parser.add_argument("--run-cases", type=int, default=610_000, help="of the stored run; 0: none")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--reader", help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader:
        read_once(options.reader, options.path)
        return
    pin(1)
    names = [name for name in READERS if name != "lxml" or importlib.util.find_spec("lxml")]
    runs: dict[str, list[dict]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reports.zip"
        size = generate(path, options.cases, options.files)
        packed = path.stat().st_size
        for _ in range(options.rounds):
            for name in names:
                runs[name].append(measured(name, path))
    if len({(run["tests"], run["failed"]) for taken in runs.values() for run in taken}) != 1:
        raise SystemExit("the readers disagree on the counts")
    found = {name: figures(taken) for name, taken in runs.items()}
    skipped = {} if "lxml" in names else {"lxml": "skipped: not installed"}
    ours = found.pop("ours")
    result = {
        "name": "tests",
        "machine": describe(),
        "rounds": options.rounds,
        "ours": ours
        | {
            "cases": runs["ours"][0]["tests"],
            "xml_mb": round(size / 1e6, 1),
            "zip_mb": round(packed / 1e6, 1),
        }
        | stored_run(options.run_cases)
        | served_lists(max(options.cases // CASES_OF_A_FILE, 1), options.rounds * REQUESTS),
        "peers": found | skipped,
        "ratios": {
            name: {key: round(values[key] / max(ours[key], 0.01), 1) for key in values}
            for name, values in found.items()
        },
    }
    show(result, as_json=options.json)


if __name__ == "__main__":
    main()
