"""The table of what the administrator's sessions are checked against."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, metadata, must

admin_sign_out = sa.Table(
    "admin_sign_out",
    metadata,
    must("token_id", sa.Text),  # of an ADMIN_TOKEN: an HMAC made with it
    must("not_before", Big),  # sessions begun earlier have ended
    sa.PrimaryKeyConstraint("token_id", name="pk_admin_sign_out"),
)
