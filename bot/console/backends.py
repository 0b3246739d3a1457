"""ootbot allowlist, keys, upstream and bisect: who takes part, and the commit that broke a backend."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import click

from bot.console.common import change_database, config_option, load_settings, read_database, run_work
from bot.core import files
from bot.oot.allowlist import allowlist as allowlist_file
from bot.oot.allowlist.yaml_document import AllowlistError

if TYPE_CHECKING:
    from pathlib import Path

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.allowlist.entry import Entry
    from bot.oot.allowlist.versions import VersionRow
    from bot.oot.culprits.tables import BisectRow
    from bot.pages.pulls.dispatch_explanation import Explanation

MOST_DIGITS = 18  # of a number that every database takes
MOST_SEARCHES = 50


@click.group()
def allowlist() -> None:
    """Look at allowlist files, and at the one in force."""


@allowlist.command()
@click.argument("file", type=click.File("rb"))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option(
    "--preset",
    type=click.Choice(sorted(files.read_presets())),
    help="Read it as under this preset's DEFAULT_EVENTS.",
)
def check(file: IO[bytes], *, as_json: bool, preset: str | None) -> None:
    """Say what is wrong with an allowlist FILE (- reads standard input), all of it at once; exit 1 if anything is.

    \b
      ootbot allowlist check config/allowlist.example.yml
    """  # noqa: D301 - click's mark for lines to be kept as they are
    events = files.read_presets()[preset].get("default_events", "") if preset else ""
    try:
        parsed = allowlist_file.parse_allowlist(
            file.read(), *([frozenset(events.split(","))] if events else [])
        )
    except AllowlistError as error:
        if as_json:
            problems = [{"line": problem.line, "message": problem.message} for problem in error.problems]
            click.echo(json.dumps({"ok": False, "problems": problems}))
        else:
            click.echo(allowlist_file.render_errors(error), err=True)
        sys.exit(1)
    if as_json:
        levels = {f"L{level}": [entry.repo for entry in parsed.at(level)] for level in range(1, 5)}
        click.echo(json.dumps({"ok": True, "backends": len(parsed.entries), "levels": levels}))
    else:
        click.echo(f"ok: {_counted(parsed)}")


@allowlist.command()
@config_option
def show(config: Path | None) -> None:
    """Print the version in force, since when, and what is wrong with the newest; exit 1 if none is in force."""
    from bot.oot.allowlist import versions  # noqa: PLC0415 - check starts without SQLAlchemy

    async def work(tx: Transaction) -> tuple[VersionRow | None, VersionRow | None]:
        return await versions.read_last_good(tx), await versions.read_newest(tx)

    settings = load_settings(config)
    version, newest = read_database(settings, work)
    if newest and not newest["valid"]:
        click.echo(f"the newest, read {_time_in_words(newest['loaded_at'])}, is not in force:", err=True)
        click.echo(newest["error"], err=True)
    if version is None:
        click.echo(f"no valid version of {settings.allowlist} has been read yet", err=True)
        sys.exit(1)
    click.echo(f"# {version['source']}, in force since {_time_in_words(version['loaded_at'])}")
    click.echo(f"# {_counted(versions.parse_version(version))}")
    click.echo(version["content"].rstrip("\n"))


@allowlist.command()
@click.argument("pull", metavar="OWNER/REPO#NUMBER")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@config_option
def explain(pull: str, config: Path | None, *, as_json: bool) -> None:
    """Say of each backend whether it was sent a pull request's newest head, and the rule that decided.

    \b
      ootbot allowlist explain example-org/upstream#123
      ootbot allowlist explain example-org/upstream#123 --json | jq '.asked[] | select(.outcome == "skipped")'
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.oot.allowlist import versions  # noqa: PLC0415 - check starts without SQLAlchemy
    from bot.pages.pulls.dispatch_explanation import explain_pull  # noqa: PLC0415

    repo, _, number = pull.rpartition("#")
    if repo.count("/") != 1 or not (number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS):
        raise click.UsageError(f"{pull!r} names no pull request: write it as in owner/repo#123")
    settings = load_settings(config)

    async def work(tx: Transaction) -> tuple[Explanation | None, bool]:
        listed = await versions.read_in_force(tx) is not None
        return await explain_pull(tx, settings, repo, int(number)), listed

    explained, listed = read_database(settings, work)
    if not listed:
        raise click.ClickException(
            f"no valid version of {settings.allowlist} has been read yet: `ootbot allowlist show` says more"
        )
    if explained is None:
        raise click.ClickException(
            f"nothing is known of {pull}: is it a pull request of a watched repository, and has the bot run here?"
        )
    if as_json:
        click.echo(json.dumps(asdict(explained)))
        return
    click.echo(f"{explained.repo}#{explained.number} at {explained.head_sha[:7]}")
    width = max((len(backend.label) for backend in explained.asked), default=0)
    for backend in explained.asked:
        click.echo(
            f"  {backend.label:{width}}  L{backend.level}  {backend.outcome:7}  {backend.rule}: {backend.why}"
        )


@click.group()
def keys() -> None:
    """Make, list and revoke static keys.

    A key speaks for one backend, at L2 unless its entry says more: nothing ties it to a run. Keys take effect, and
    end, at once.
    """


@keys.command()
@click.argument("repo")
@click.option("--note", default="", help="What it is for, such as the CI that uses it.")
@config_option
def add(repo: str, note: str, config: Path | None) -> None:
    """Make a key for the backend REPO (owner/name) and print it: it cannot be read again.

    \b
      ootbot keys add example-org/riscv --note jenkins
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.core import setting_types  # noqa: PLC0415 - only this command reads a repository's name
    from bot.oot.allowlist import versions  # noqa: PLC0415 - the other commands start without SQLAlchemy
    from bot.oot.reports import rows  # noqa: PLC0415 - see above

    try:
        (name,) = setting_types.repositories(repo)
    except ValueError as error:
        raise click.BadParameter(str(error) or f"{repo!r} is not one repository") from None

    async def work(tx: Transaction) -> tuple[str, Entry | None]:
        allowlist = await versions.read_in_force(tx)
        return await rows.add_key(tx, name, note=note), allowlist.find(name) if allowlist else None

    made, entry = change_database(load_settings(config), work)
    click.echo(made)
    if entry is None or entry.level < 2 or entry.static_key != "allowed":
        where = "not in the allowlist" if entry is None else f"at L{entry.level}"
        click.echo(
            f"ootbot: {name} is {where}; keys are accepted at L2, above it only with static_key: allowed",
            err=True,
        )


@keys.command("list")
@config_option
def list_keys(config: Path | None) -> None:
    """Print every key: id, backend, when it was made, last used and revoked, note. The keys themselves are not kept."""
    from bot.core.json_fields import iso_time  # noqa: PLC0415 - the other commands start without it
    from bot.oot.reports import rows  # noqa: PLC0415 - the other commands start without SQLAlchemy

    for row in read_database(load_settings(config), rows.list_keys):
        times = {"made": row["created_at"], "used": row["used_at"], "revoked": row["revoked_at"]}
        words = [f"{what} {iso_time(at // 1000 * 1000) if at else 'never'}" for what, at in times.items()]
        click.echo("  ".join([row["id"], row["repo"], *words, row["note"]]).rstrip())


@keys.command()
@click.argument("identifier", metavar="ID")
@config_option
def revoke(identifier: str, config: Path | None) -> None:
    """Make the key with this ID useless, from now on."""
    from bot.oot.reports import rows  # noqa: PLC0415 - the other commands start without SQLAlchemy

    async def work(tx: Transaction) -> bool:
        return await rows.revoke_key(tx, identifier)

    if not change_database(load_settings(config), work):
        click.echo(f"ootbot: there is no key {identifier} in use: `ootbot keys list` shows all", err=True)
        sys.exit(1)
    click.echo(f"revoked {identifier}")


@click.group()
def upstream() -> None:
    """Say that another repository is upstream now.

    A name can change hands. The bot remembers the id of the repository that had the name first, and does nothing for
    another one: its deliveries are parked.
    """


@upstream.command()
@click.argument("repo")
@config_option
def accept(repo: str, config: Path | None) -> None:
    """Accept the repository that has the name REPO (owner/name) at GitHub now, and handle its parked deliveries.

    REPO is upstream, or the repository that the allowlist is read from.

    \b
      ootbot upstream accept example-org/project
    """  # noqa: D301 - click's mark for lines to be kept as they are
    settings = load_settings(config)
    from bot.oot.allowlist.allowlist import parse_github_source  # noqa: PLC0415 - the other commands start without PyYAML

    source = parse_github_source(settings.allowlist)
    named = {name.casefold(): name for name in (*settings.upstream_repo, *([source.repo] if source else []))}
    if repo.casefold() not in named:
        raise click.BadParameter(f"{repo} is none of {', '.join(named.values())}: see UPSTREAM_REPO")
    run_work(_accept(settings, named[repo.casefold()]))


@click.group()
def bisect() -> None:
    """Find the upstream commit that broke a backend, by running the backend on commits of the branch."""


@bisect.command()
@click.argument("backend")
@click.argument("what", required=False, default="")
@click.option("--repo", default="", help="Upstream repository; default: the first of UPSTREAM_REPO.")
@click.option("--branch", default="", help="Branch of it; default: its default branch.")
@click.option("--good", default="", help="A commit on which it passed; default: the last one known.")
@click.option("--bad", default="", help="A later commit on which it failed; default: the first one known.")
@click.option("--signature", default="", help="Only failures of this signature count.")
@click.option("--reason", default="", help="A sentence for those who read the page.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@config_option
def start(
    backend: str, what: str, config: Path | None, *, repo: str, branch: str, good: str, bad: str, signature: str,
    reason: str, as_json: bool,
) -> None:  # fmt: skip
    """Begin a search for the commit that broke BACKEND: its device, owner/repo, or `upstream` for its own CI.

    WHAT is a job or a test of it; without it the one job that fails. The running bot sends the runs.

    \b
      ootbot bisect start npu
      ootbot bisect start npu TestMatmul.test_bf16
      ootbot bisect start example-org/npu "CI / build" --good a1b2c3d --bad d4e5f6a
    """  # noqa: D301 - click's mark for lines to be kept as they are
    settings = load_settings(config)
    from bot.oot.culprits.start import WantedSearch  # noqa: PLC0415 - other commands start without SQLAlchemy

    wanted = WantedSearch(
        repo=repo or settings.upstream_repo[0],
        backend=backend,
        what=what,
        signature=signature,
        branch=branch,
        good=good,
        bad=bad,
        by="the operator",
        reason=reason,
    )
    row, is_new = run_work(_start_search(settings, wanted))
    if as_json:
        click.echo(json.dumps({"new": is_new, **_search_as_json(row, settings)}))
        return
    began = "began" if is_new else "is under way already:"
    click.echo(f"search {row['id']} {began} between {row['good_sha'][:7]} and {row['bad_sha'][:7]}")
    click.echo(f"  {_search_page(row, settings)}")


@bisect.command(name="list")
@click.option("--repo", default="", help="Upstream repository; default: the first of UPSTREAM_REPO.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@config_option
def list_searches(config: Path | None, *, repo: str, as_json: bool) -> None:
    """List searches, the newest first.

    \b
      ootbot bisect list
      ootbot bisect list --json | jq -r 'select(.state == "found") | .culprit_sha'
    """  # noqa: D301 - click's mark for lines to be kept as they are
    settings = load_settings(config)
    searches = run_work(_list_searches(settings, repo or settings.upstream_repo[0]))
    if not searches and not as_json:
        click.echo("no search yet: `ootbot bisect start BACKEND` begins one")
    for row in searches:
        if as_json:
            click.echo(json.dumps(_search_as_json(row, settings)))
        else:
            name = row["test"] or row["job"]
            click.echo(f"{row['id']}  {row['state']:<9}  {row['backend'] or 'upstream'}  {name}")
            click.echo(f"            {row['why'] or 'begins in a moment'}")


@bisect.command()
@click.argument("search")
@config_option
def cancel(search: str, config: Path | None) -> None:
    """Cancel SEARCH, by its id: nothing more is sent, what runs is left to end.

    \b
      ootbot bisect cancel 4f1d9c2ab0
    """  # noqa: D301 - click's mark for lines to be kept as they are
    settings = load_settings(config)
    run_work(_cancel_search(settings, search))
    click.echo(f"search {search} is cancelled")


def _counted(parsed: Allowlist) -> str:
    levels = ", ".join(f"{len(parsed.at(level))} at L{level}" for level in range(1, 5))
    return f"{len(parsed.entries)} backends, {levels}"


def _time_in_words(at: int) -> str:
    """Return epoch milliseconds as people read them."""
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


async def _accept(settings: Settings, repo: str) -> None:
    from bot.app import make_context  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy
    from bot.ingest import repositories  # noqa: PLC0415 - the same

    async with make_context(settings) as context:
        now = await repositories.fetch_id(context.app_for(repo), repo)
        async with context.store.transaction() as tx:
            before = (await repositories.read_repository_ids(tx)).get(repo.casefold())
            if before == now:
                click.echo(f"{repo} is already repository {now}")
                return
            handled = await repositories.accept_id(tx, repo, now)
    was = "" if before is None else f", it was {before}"
    deliveries = "1 delivery is" if handled == 1 else f"{handled} deliveries are"
    click.echo(f"{repo} is repository {now} from now on{was}; {deliveries} handled next")


async def _start_search(settings: Settings, wanted: Any) -> tuple[BisectRow, bool]:
    from bot.app import make_context  # noqa: PLC0415 - see `start`
    from bot.oot.culprits import command  # noqa: PLC0415 - the same
    from bot.oot.culprits.start import Refused  # noqa: PLC0415 - the same

    async with make_context(settings) as context:
        try:
            started = await command.begin(context, wanted)
        except Refused as reason:
            raise click.ClickException(str(reason)) from reason
    return started.row, started.is_new


async def _list_searches(settings: Settings, repo: str) -> list[BisectRow]:
    from bot.app import make_context  # noqa: PLC0415 - see `start`
    from bot.jobs import branch_history  # noqa: PLC0415 - the same
    from bot.oot.culprits import rows  # noqa: PLC0415 - the same

    async with make_context(settings) as context, context.store.read() as tx:
        branch = await branch_history.find_branch_of(tx, repo, "")
        if branch is None:
            raise click.ClickException(
                f"nothing is known of {repo} yet: name one of UPSTREAM_REPO with --repo"
            )
        return await rows.read_searches_of(tx, branch.repository["repository_id"], limit=MOST_SEARCHES)


async def _cancel_search(settings: Settings, search: str) -> None:
    from bot.app import make_context  # noqa: PLC0415 - see `start`
    from bot.oot.culprits.start import (  # noqa: PLC0415
        Refused,
        cancel_search,
    )

    async with make_context(settings) as context, context.store.transaction() as tx:
        try:
            await cancel_search(tx, search, by="the operator")
        except Refused as reason:
            raise click.ClickException(f"{reason}: `ootbot bisect list` has them") from reason


def _search_as_json(row: BisectRow, settings: Settings) -> dict[str, Any]:
    return {**row, "page_url": _search_page(row, settings)}


def _search_page(row: BisectRow, settings: Settings) -> str:
    return f"{settings.url}/{row['upstream_repo']}/bisects/{row['id']}"
