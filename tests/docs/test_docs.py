"""Is what the documents say there? Links, command lines, names, limits, numbers for operators; lines are short."""

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from bot.cli import main
from bot.core.feature import load_each
from bot.core.settings import Settings, options
from bot.db import store
from bot.db.postgres import PostgresServer
from bot.evidence.logs.parse import rulesets as log_rules
from bot.features import FEATURES
from bot.github import client
from bot.ingest import webhooks
from bot.oot.allowlist.allowlist import parse_allowlist
from bot.oot.allowlist.entry import Entry
from bot.oot.reports import endpoints

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "actions").rglob("*.md")],
    key=lambda path: str(path.relative_to(ROOT)),
)
OTHERS = [path for path in (ROOT / "deploy").rglob("*") if path.is_file()] + [ROOT / "Dockerfile"]
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
ENDS = re.compile(r"\s(?:&&|\|\|?|;|>|#|<)(?:\s|$)")
NOT_SETTINGS = {"OOTBOT_TOKEN", "OOTBOT_EVENT"}  # read by the reporting script, not by the bot
NOT_OURS = {
    "PRIVATE_KEY_PATH",
    "RELAY_PRIVATE_KEY_PATH",
    "UPDATE_SNAPSHOTS",
    "HUD_API_URL",  # of another relay
    "CIRCLECI_SECRET",  # variables that an option names
    "BUILDKITE_TOKEN",
}  # files of keys; of the test suite
PLUGIN_FOR_PYTEST = ROOT / "actions" / "report" / "pytest_reports.py"  # with variables of its own


def name(path):
    return str(path.relative_to(ROOT))


def anchors(path):
    """The anchors GitHub gives a page's headings."""
    text = FENCE.sub("", path.read_text())
    found = set()
    for heading in re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_row_of_a_table_has_the_cells_of_its_head(page):
    for table in re.findall(r"(?:^\|.*\n?)+", FENCE.sub("", page.read_text()), re.MULTILINE):
        rows = [SPAN.sub("", row).replace("\\|", "").count("|") for row in table.splitlines()]
        assert set(rows) == {rows[0]}, table.splitlines()[
            next(at for at, n in enumerate(rows) if n != rows[0])
        ]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file_and_a_heading(page):
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert there.is_relative_to(ROOT), target
        if anchor:
            assert anchor in anchors(there), f"{target}: there are {sorted(anchors(there))}"


def command_lines():
    """Every `ootbot ...` and `python3 dev.py ...` of the documents and the files of deploy/."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for language, block in FENCE.findall(text):
            if language in {"sh", "console", "bash"}:
                lines = re.sub(r"\\\n", " ", block).splitlines()
                found += [(name(page), line.strip().removeprefix("$ ")) for line in lines]
        found += [(name(page), span) for span in SPAN.findall(FENCE.sub("", text))]
    for path in OTHERS:
        text = re.sub(r"\\\n", " ", path.read_text(errors="replace"))
        found += [(name(path), line.strip("# ").strip()) for line in text.splitlines()]
    for command in walk(main):
        found += [("--help", line.strip()) for line in (command.help or "").splitlines()]
    for where, line in found:
        for part in re.split(r" && |; |exec ", line):
            matched = re.match(
                r"(?:ExecStart=)?(?:\S*/)?ootbot ([a-z].*)|python3 dev\.py ([a-z].*)", part.strip()
            )
            if matched:
                kind = "ootbot" if matched[1] else "dev.py"
                yield pytest.param(
                    kind, ENDS.split(matched[1] or matched[2] + " ")[0], id=f"{where}: {part[:50]}"
                )


def walk(command):
    yield command
    for inner in getattr(command, "commands", {}).values():
        yield from walk(inner)


@pytest.mark.parametrize(("kind", "line"), list(command_lines()))
def test_every_command_line_exists_with_its_options(kind, line):
    words = shlex.split(line.replace("'", "").replace('"', ""))
    if kind == "dev.py":
        check_dev(words)
    else:
        check_ootbot(words)


def check_ootbot(words):
    command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"there is no `ootbot {words[0]}`"
        command = command.commands[words.pop(0)]
    if command.name == "report":  # the script's own options: actions/report has its tests
        return
    options = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    options |= {"--help", "-h"}
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in options, f"`ootbot {command.name}` has no {word}"


def check_dev(words):
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    dev = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dev)
    command, *rest = words
    assert command in dev.COMMANDS, f"there is no `dev.py {command}`"
    if command == "bench" and rest and re.fullmatch(r"[a-z]+", rest[0]):
        assert (ROOT / "benchmarks" / f"{rest[0]}.py").exists(), rest[0]
    if command == "setup":
        assert all((ROOT / "requirements" / f"{extra}.txt").exists() for extra in rest)


def test_there_are_command_lines_to_check():
    assert len(list(command_lines())) > 40


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_settings_that_are_named_exist(page):
    known = {name.upper() for name in options(Settings, *load_each(FEATURES, "settings"))} | NOT_OURS
    known |= set(re.findall(r"OOTBOT_([A-Z_]+)", PLUGIN_FOR_PYTEST.read_text()))
    for span in SPAN.findall(FENCE.sub("", page.read_text())):
        for found in re.findall(r"^(?:OOTBOT_)?([A-Z]+(?:_[A-Z]+)+)(?:=.*)?$", span):
            foreign = span in NOT_SETTINGS or found.startswith(("OTEL_", "AWS_", "AZURE_", "GOOGLE_"))
            assert found.removeprefix("OOTBOT_") in known or foreign, span


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_settings_files_that_are_shown_hold_settings(page):
    known = options(Settings, *load_each(FEATURES, "settings")).keys() | {
        "private_key_path",
        "relay_private_key_path",
    }
    for language, block in FENCE.findall(page.read_text()):
        if language == "toml" and "[[rule]]" in block:
            assert log_rules.parse_rules(block.encode(), page.name).rules
        elif language == "toml":
            assert tomllib.loads(block).keys() <= known


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, f"name {page.name} in docs/README.md"


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "decisions").glob("0*.md")), ids=name)
def test_every_decision_has_number_date_and_status_and_is_in_the_index(page):
    number = page.name[:4]
    head = re.match(
        rf"# {number}\. (.+)\n\nDate: (\d{{4}}-\d\d-\d\d)\.\nStatus: (accepted|superseded by).*\n\n",
        page.read_text(),
    )
    assert head
    assert (
        f"| [{number}]({page.name}) | {head[1]} | {head[2]} | {head[3]}"
        in page.with_name("README.md").read_text()
    )


def test_every_setting_of_a_secret_is_hidden():
    for field in options(Settings).values():
        secret = field.name.endswith(("secret", "token", "private_key")) or field.name == "database_url"
        assert field.repr != secret, field.name


def test_the_comment_that_is_shown_is_the_one_that_is_written():
    snapshot = "comment_one_new_failure.md"
    written = (
        (ROOT / "tests" / "oot" / "publish" / "snapshots" / snapshot).read_text().partition("-->")[2].strip()
    )
    page = (ROOT / "docs" / "pull-request.md").read_text()
    shown = page.partition(f"{snapshot} -->")[2].partition("<!-- end of the comment -->")[0].strip()
    assert shown == written, f"copy what follows the marker in {snapshot} into docs/pull-request.md"


MOST = 140


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_line_of_prose_is_long(page):
    """Tables, code and the addresses of links are as long as they are."""
    prose = re.sub(r"\]\([^)\s]*\)", "]", SPAN.sub("", FENCE.sub("", page.read_text())))
    long = [line for line in prose.splitlines() if len(line) > MOST and not line.lstrip().startswith("|")]
    assert long == [], "begin a line with each sentence, and break long sentences where a part of them ends"


OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


def numbers(row: str) -> list[int]:
    """What the page says of `web`, `worker` and `all`."""
    (cells,) = re.findall(rf"^\| {row}[^|]*((?:\| \d+ ){{3}})", OPERATIONS, re.MULTILINE)
    return [int(number) for number in re.findall(r"\d+", cells)]


def test_calls_under_way_are_counted_as_they_are():
    assert numbers("calls to GitHub") == [0, client.MAX_CONCURRENT, client.MAX_CONCURRENT]
    assert 5 * client.MAX_CONCURRENT <= 100
    assert 2 * 2 * client.MAX_CONCURRENT <= 100  # two Apps


async def test_connections_are_as_many_as_the_pools_hold():
    text = "postgresql://somewhere/ootbot"
    url = store.parse_url(text)
    options = store.EngineOptions(busy_timeout=5, lost_after=30, server=PostgresServer(text, url))
    own, pages = store.make_engine(url, options), store.make_engine_for_other_loop(url, options)
    most = [engine.pool.size() + engine.pool._max_overflow for engine in (own, pages)]
    assert numbers("connections to PostgreSQL") == [sum(most), most[0], sum(most)]
    assert 40 + 2 * 20 + 10 <= 100


SECURITY = (ROOT / "docs" / "security.md").read_text()
ATTACKS = re.findall(r"^\| [^|]+ \| [^|]+ \| `(test_\w+)` \|$", SECURITY, re.MULTILINE)
WEAKER = re.findall(r"^\| `(\w+): (\w+)` \|", SECURITY, re.MULTILINE)


@pytest.mark.parametrize(("key", "value"), WEAKER)
def test_a_key_that_weakens_the_model_is_none_of_the_defaults(key, value):
    entry = "repo: org/gpu, paths: [src/**]" if key == "paths_pass" else "repo: org/gpu"
    plain, weak = (
        parse_allowlist(f"L4: [{{{entry}{more}}}]").entries[0] for more in ("", f", {key}: {value}")
    )
    assert getattr(weak, key) != getattr(plain, key) == getattr(Entry(repo="org/gpu", level=4, line=1), key)
    assert f"[`{key}: {value}`](#keys-that-weaken-this)" in SECURITY  # said where it is an exception


def test_the_keys_that_weaken_the_model_are_listed():
    assert {key for key, _ in WEAKER} == {"static_key", "confirm", "callback_token", "paths_pass"}


def test_every_attack_names_a_test_that_there_is():
    table = SECURITY.partition("## Attacks, and what happens")[2]
    rows = [row for row in table.splitlines() if row.startswith("| ")][1:]
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert rows
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        for name in named:
            assert f"def {name}(" in tests, name


def test_the_sizes_are_those_of_the_doors():
    said = re.search(r"(\d+) MiB for\s+webhooks, (\d+) MiB for a report, (\d+) MiB for a batch", SECURITY)
    sizes = [webhooks.BODY_LIMIT, endpoints.REPORT_LIMIT, endpoints.BATCH_LIMIT]
    assert [int(size) * 1024 * 1024 for size in said.groups()] == sizes


def test_every_attack_is_played_by_the_test_it_names():
    table = SECURITY.partition("## Attacks")[2].partition("|---|---|---|\n")[2].partition("\n\n")[0]
    assert len(ATTACKS) == len(table.splitlines())
    written = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in ATTACKS if f"def {name}(" not in written] == []
