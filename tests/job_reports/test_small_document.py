"""The small document that CONTRIBUTING shows: its files, as they stand there, run in a bot."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from bot.core.feature import import_tables, load
from bot.db.rows import metadata
from bot.features import FEATURES
from bot.jobs.settings import DEFAULT_KINDS, CollectSettings
from tests import harness
from tests.harness import UPSTREAM, replace
from tests.job_reports.conftest import Jobs, lines
from tests.serving import SQLITE

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
PLACES = {  # where the files of the bot stand in the package
    "bot/job_reports/parse/file_sizes.py": "parser.py",
    "bot/job_reports/file_sizes.py": "file_sizes.py",
    "bot/pages/job_reports/file_sizes.py": "page.py",
    "bot/pages/job_reports/templates/file_sizes.html": "templates/file_sizes.html",
    "bot/job_reports/sizes_feature.py": "feature.py",
}
STRUCT = "bot/job_reports/parse/values.py"
SHORT = 110  # lines of code, as CONTRIBUTING promises: without imports, docstrings and blank lines


def documented():
    """The files, by name, as a package `sizes` outside `bot`."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    section = text.partition("### Add a small document of a job\n")[2].partition("\n## ")[0]
    shown = dict(
        re.findall(r"(?m)^`(bot/\S+?)`[^`]*(?:`[^`\n]+`[^`]*)*?```\w+\n(.*?)```", section, re.DOTALL)
    )
    struct = shown.pop(STRUCT)
    files = {PLACES[name]: _moved(code) for name, code in shown.items()}
    return files | {"parsed.py": f"import msgspec\n\n\n{struct}", "__init__.py": ""}


def _moved(code):
    code = code.replace("bot.job_reports.parse.values import FileSize\n", "sizes.parsed import FileSize\n")
    both = "from bot.job_reports.parse.values import FileSize, Parsed\n"
    code = code.replace(
        both, "from bot.job_reports.parse.values import Parsed\nfrom sizes.parsed import FileSize\n"
    )
    for path, place in PLACES.items():
        module = path.removesuffix(".py").replace("/", ".")
        code = code.replace(f"{module}:", f"sizes.{place.removesuffix('.py')}:")
        code = code.replace(f"{module} import", f"sizes.{place.removesuffix('.py')} import")
    return code.replace('tables="bot.job_reports.file_sizes"', 'tables="sizes.file_sizes"')


@pytest.fixture
def feature(tmp_path, monkeypatch):
    folder = tmp_path / "packages" / "sizes"
    for file, code in documented().items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(code)
    monkeypatch.syspath_prepend(folder.parent)
    yield importlib.import_module("sizes.feature").FEATURE
    metadata.remove(metadata.tables["ci_file_size"])
    for module in [module for module in sys.modules if module.partition(".")[0] == "sizes"]:
        del sys.modules[module]


@pytest.fixture
async def bot(feature, settings, github, issuer, clock):
    import_tables((feature,))
    engine = sa.create_engine(f"sqlite:///{settings.data_dir / 'ootbot.db'}")
    metadata.tables["ci_file_size"].create(engine)
    engine.dispose()
    kinds = CollectSettings(ci_artifacts=(*DEFAULT_KINDS, ("sizes", ("file-sizes*",))))
    chosen = replace(settings, of_features={CollectSettings: kinds})
    features = (*FEATURES, feature)
    async with harness.running(
        chosen, github=github, issuer=issuer, app=github.app, clock=clock, features=features
    ) as made:
        yield made


@SQLITE
@pytest.mark.nightly
async def test_the_small_document_of_contributing_is_read_shown_copied_and_pruned(bot, github, feature):
    jobs = Jobs(bot, github)
    for size in (100, 101, 100, 99, 150):
        job = await jobs.leaves(
            "file-sizes", {"s.jsonl": lines({"file": "torch.whl", "bytes": size}, {"file": "torch.whl"})}
        )
        await jobs.next_day()
    rows = await bot.rows("ci_file_size")
    assert [row["bytes"] for row in sorted(rows, key=lambda one: one["at"])] == [100, 101, 100, 99, 150]
    _, answer = await bot.get(f"/api/ci/sizes/{UPSTREAM}")
    assert answer["files"] == [{"file": "torch.whl", "bytes": 150, "change": 0.5}]
    _, page = await bot.get(f"/{UPSTREAM}/sizes")
    assert '<th scope="row">torch.whl<td class="n">150<td class="n">+50.0%' in page
    assert "Bytes" in page
    _, page = await bot.get(f"/{UPSTREAM}/run/{job.run.id}")
    assert "bytes is no number" in page
    (export,) = load(feature.exports)
    async with bot.store.read() as tx:
        found = await load(export.shapes["upstream"].read)(tx, export, [export.key_of(row) for row in rows])
    assert len(found) == 5
    bot.clock.advance(86_400 * 400)
    await load(feature.prune)(bot.context)
    assert await bot.rows("ci_file_size") == []


def test_the_small_document_of_contributing_is_short():
    python = [code for name, code in documented().items() if name.endswith(".py")]
    written = re.sub(r'"""[^"]*"""', "", "\n".join(python))
    written = re.sub(r"(?m)^(from|import|if TYPE_CHECKING|    from) .*\n", "", written)
    assert sum(bool(line.strip()) for line in written.splitlines()) < SHORT
