from sqlalchemy import select

from db.ingest import ingest_bundle
from db.queries.details import throttled_by
from db.queries.series import repeats
from db.queries.sides import resolve_side
from db.schema import results
from tests.factories import cell, header, passing, write_bundle


def after(held_by):
    return {"surroundings": {"before": {"clocks_held_by": ["power_cap"]}, "after": {"clocks_held_by": held_by}}}


def test_the_reasons_are_those_right_after_the_rounds():
    assert throttled_by(after([])) == ()  # held back by what ran before it, and not any more
    assert throttled_by(after(["power_cap", "hardware_thermal"])) == ("hardware_thermal", "power_cap")
    for details in ({}, {"surroundings": {"after": {"load1": 1.0}}}, after("x")):
        assert throttled_by(details) is None


def test_the_reasons_are_a_plain_column_and_can_be_asked_for_like_a_metric(store, tmp_path):
    details = {"a": after(["power_cap", "software_thermal"]), "b": after(["idle"]), "c": {}}
    lines = [passing(cell(model), details=found) for model, found in details.items()]
    ingest_bundle(store, write_bundle(tmp_path, header("r1"), lines))
    with store.connect() as conn:
        query = select(results.c.model, results.c.throttled).order_by(results.c.model)
        assert conn.execute(query).all() == [("a", "power_cap,software_thermal"), ("b", ""), ("c", None)]
    rows = repeats(store, [resolve_side(store, "r1")], ["throttled"]).rows
    assert rows["throttled"].fillna(-1).sort_values().tolist() == [-1, 0, 1]
