"""Does a claim take what is due, whatever else waits?"""

import sqlalchemy as sa

from bot.queue import tasks
from bot.queue.tasks import task

NOW = 1_000_000
KINDS = [f"kind {number}" for number in range(60)]


def test_tasks_for_later_do_not_make_a_claim_slower():
    assert [steps(later=3_000, background=one) for one in (False, True)] == [
        steps(later=30, background=one) for one in (False, True)
    ]


def steps(*, later: int, background: bool) -> int:
    """Return how many instructions of SQLite's machine the second claim took, in tens."""
    engine = sa.create_engine("sqlite://")
    with engine.connect() as conn:
        task.metadata.create_all(conn, tables=[task])
        conn.execute(
            sa.insert(task), [waiting(number, background, due=number >= later) for number in range(later + 5)]
        )
        driver = conn.connection.driver_connection
        given = {"now": NOW, "kinds": KINDS, "paused": [], "most": 4, "by": "me", "until": NOW + 1}
        made = tasks._claiming(sqlite=True, background=background).compiled(given)
        taken, counted = [], 0

        def count():
            nonlocal counted
            counted += 1

        for most in (1, 4):
            counted = 0
            driver.set_progress_handler(count, 10)
            taken += driver.execute(*made.call(given | {"most": most})).fetchall()
        driver.set_progress_handler(None, 10)
    engine.dispose()
    assert len(taken) == 5
    return counted


def waiting(number: int, background: bool, *, due: bool) -> dict:
    return {
        "id": number + 1, "kind": KINDS[number % len(KINDS)], "key": str(number), "state": "waiting",
        "created_at": 0, "due_at": NOW if due else 2 * NOW, "attempts": 0, "background": background,
    }  # fmt: skip
