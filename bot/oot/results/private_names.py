"""What is shown of a private backend's jobs: that there are some and how they end, but none of their names.

A backend that reports is part of a public project, its repository may be private: what its jobs, workflows, tests and
artifacts are called is then for the administrator alone. In their place stand names that stay the same and say nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from bot.oot.results import rows
from bot.oot.results.shown import RUN_PAGE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

R = TypeVar("R", bound="Mapping[str, object]")
DIGITS = 3  # bytes of a digest, which tells two jobs apart
NOT_SHOWN = ("failed_tests_json", "artifact_url", "environment", "triage_verdict")  # they can hold any name


@dataclass(frozen=True, kw_only=True)
class PrivateNames:
    """The backends whose names may not be shown, and what is shown instead."""

    backends: frozenset[str] = frozenset()  # case folded
    key: bytes = b""

    def hides(self, backend: str) -> bool:
        """Whether a backend's names may not be shown."""
        return backend.casefold() in self.backends

    def workflow(self, backend: str, name: str) -> str:
        """Return what stands for a workflow."""
        return f"workflow {self._digest(backend, name)}"

    def job(self, backend: str, workflow: str, name: str) -> str:
        """Return what stands for a job."""
        return f"job {self._digest(backend, workflow, name)}"

    def of_row(self, row: R, backend: str) -> R:
        """Return a row on a job as it may be shown, with its counts and times; all of it where nothing is hidden."""
        if not self.hides(backend):
            return row
        workflow, name = str(row["workflow_name"]), str(row["job_name"])
        shown: dict[str, object] = {
            "workflow_name": self.workflow(backend, workflow),
            "job_name": self.job(backend, workflow, name),
        }
        shown |= {column: None for column in NOT_SHOWN if column in row}
        if "workflow_run_url" in row:
            shown["workflow_run_url"] = run_page(cast("str | None", row["workflow_run_url"]))
        return cast("R", {**row, **shown})

    def _digest(self, *parts: str) -> str:
        named = "\0".join([parts[0].casefold(), *parts[1:]])
        return hashlib.blake2s(named.encode(), key=self.key, digest_size=DIGITS).hexdigest()


NOTHING_PRIVATE = PrivateNames()


async def read_private_names(tx: Transaction, settings: Settings, backends: Collection[str]) -> PrivateNames:
    """Return which of these backends' repositories are private, as far as their records say."""
    folded = {one.casefold() for one in backends}
    private = (await rows.private(tx, settings, folded)).names & folded if folded else frozenset()
    # guessing a name is no use without the key, which is no other secret's
    key = hashlib.sha256(b"names of private backends\0" + settings.private_key.encode()).digest()
    return PrivateNames(backends=frozenset(private), key=key)


def run_page(url: str | None) -> str | None:
    """Return the address of a run on GitHub, which names nothing but its id; None for any other."""
    return url if url and RUN_PAGE.fullmatch(url) else None
