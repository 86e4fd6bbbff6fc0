"""Configs by the hundred: those that are known and can be read, whatever else was asked for."""

from sqlalchemy import update

from collector.vocabulary import Config
from db.ingest import ingest_bundle
from db.queries.details import configs_of
from db.schema import ConfigRow
from tests.factories import CONFIGS, matrix, night


def test_known_configs_come_back_as_they_were_asked_for(store, tmp_path):
    many = [Config(overrides={"x": number}) for number in range(450)]
    ingest_bundle(store, night(tmp_path, "one", cells=matrix(["bert"], [*CONFIGS, *many])))
    wanted = [config.config_id for config in (*CONFIGS, *many)]
    assert configs_of(store, [*wanted, *wanted, "nothing"]) == {
        config.config_id: config for config in (*CONFIGS, *many)
    }
    assert configs_of(store, []) == {}


def test_a_request_of_another_version_is_left_out(store, tmp_path):
    ingest_bundle(store, night(tmp_path, "one", cells=matrix(["bert"])))
    first, *others = CONFIGS
    with store.begin() as conn:
        conn.execute(update(ConfigRow).where(ConfigRow.config_id == first.config_id).values(request={"novel": 1}))
    assert set(configs_of(store, [config.config_id for config in CONFIGS])) == {config.config_id for config in others}
