"""Many configs at once, as they were asked for: what a plan or a list of repro commands is made of."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import select

from collector.vocabulary import Config
from db.connecting import Source, connected
from db.schema import ConfigRow

_CHUNK = 400


def configs_of(source: Source, config_ids: Iterable[str]) -> dict[str, Config]:
    """The configs of these `config_id`s that the database knows and this version can read."""
    wanted = sorted(set(config_ids))
    found: dict[str, Config] = {}
    with connected(source) as conn:
        for first in range(0, len(wanted), _CHUNK):
            query = select(ConfigRow.config_id, ConfigRow.request).where(
                ConfigRow.config_id.in_(wanted[first : first + _CHUNK])
            )
            for config_id, request in conn.execute(query):
                try:
                    found[config_id] = Config.from_json(request)
                except (ValueError, TypeError):
                    continue  # another version's request: it cannot be measured here
    return found
