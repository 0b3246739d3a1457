"""A database that was in use before there was collecting."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from bot.ci.collect.tables import ci_default
from bot.db import migrate


@pytest.mark.parametrize(("deliveries", "found"), [(0, []), (1, [("ci", "off")])])
def test_the_migration_switches_collecting_off_where_deliveries_are_held(tmp_path, deliveries, found):
    """The migration looks whether the database has been in use."""
    from alembic import command
    from alembic.config import Config

    engine = sa.create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    config = Config()
    config.set_main_option("script_location", str(migrate.FOLDER))
    config.set_main_option("path_separator", "os")
    with engine.connect() as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, "0003")
        if deliveries:
            conn.execute(
                sa.text(
                    "INSERT INTO delivery (guid, event, source, received_at, state, attempts, due_at, body) "
                    "VALUES ('a', 'ping', 'webhook', 1, 'handled', 0, 1, x'7b7d')"
                )
            )
        command.upgrade(config, "head")
        assert [tuple(row) for row in conn.execute(sa.select(ci_default))] == found
    engine.dispose()
