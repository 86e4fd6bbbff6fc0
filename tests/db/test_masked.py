"""Secrets of old bundles and old databases: no query returns them, and `db check` says where they are."""

import json

import pytest
from sqlalchemy import select, text

from db.ingest import ingest_bundle
from db.maintenance.consistency import check_bundles, check_store
from db.nights import list_runs
from db.queries.details import environment
from db.schema import Base, Environment, measurements
from tests.factories import cell, failing, header, write_bundle

ADDRESS = "https://user:SECRET@host/simple"
VARIABLES = {
    **{"env.PYTORCH_GITHUB_TOKEN": "SECRET", "env.TORCH_HUB_PASSWORD": "SECRET", "env.TRITON_REGISTRY_KEY": "SECRET"},
    **{"env.TORCH_INDEX_URL": ADDRESS, "env.TORCHINDUCTOR_MAX_AUTOTUNE": "1", "torch": "2.13.0"},
}
HIDDEN = "PYTORCH_GITHUB_TOKEN, TORCH_HUB_PASSWORD, TORCH_INDEX_URL, TRITON_REGISTRY_KEY"


@pytest.fixture
def old_bundle(tmp_path):
    """A bundle as older versions wrote it, with secrets in its label, environment, message and log."""
    item = failing(cell(), environment_id="0123456789ab", log_tail="cloning LOG")
    item.failure.message = "cannot reach MESSAGE"
    head = header("r1", label="LABEL", ci_url="URL")
    path = write_bundle(tmp_path, head, [item], environment=VARIABLES, closed=False)
    lines = path.read_text()
    assert "SECRET" not in lines  # what is written today
    for word in ("LABEL", "URL", "cannot reach MESSAGE", "cloning LOG"):
        lines = lines.replace(f'"{word}"', json.dumps(f"{word} {ADDRESS}"))
    records = [json.loads(line) for line in lines.splitlines()]
    for record in records:
        if record["record"] == "environment":
            record["data"] = VARIABLES
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert path.read_text().count("SECRET") == 8
    return path


def all_of(engine):
    with engine.connect() as conn:
        return repr([conn.execute(select(table)).all() for table in Base.metadata.sorted_tables])


def test_no_secret_of_an_old_bundle_is_stored(store, old_bundle):
    report = ingest_bundle(store, old_bundle)
    assert report.secrets[1] == f"line 3 has the variables {HIDDEN}"
    assert "SECRET" not in all_of(store)
    assert check_store(store) == []
    found = {(item.kind, item.text) for item in check_bundles(store, [old_bundle]).findings}
    assert found == {("secret", f"{old_bundle}: {line}") for line in report.secrets}


def test_old_rows_are_masked_on_reading_and_found_by_the_check(store, old_bundle):
    ingest_bundle(store, old_bundle)
    with store.begin() as conn:
        conn.execute(text("UPDATE environments SET data = :data"), {"data": json.dumps(VARIABLES)})
        conn.execute(text("UPDATE runs SET label = :text, ci_url = :text"), {"text": f"a {ADDRESS}"})
        conn.execute(text("UPDATE measurements SET message = :text"), {"text": f"a {ADDRESS}"})
        conn.execute(text("UPDATE commits SET title = :text"), {"text": f"a {ADDRESS}"})
    assert "SECRET" not in all_of(store)
    assert environment(store, "0123456789ab") == {"env.TORCHINDUCTOR_MAX_AUTOTUNE": "1", "torch": "2.13.0"}
    (run,) = list_runs(store)
    assert (run.label, run.commit_title) == ("a https://host/simple", "a https://host/simple")
    with store.connect() as conn:
        torch = Environment.data["torch"].as_string()
        joined = select(torch).join(measurements, measurements.c.environment == Environment.id)
        assert conn.execute(joined.where(torch == "2.13.0")).scalars().all() == ["2.13.0"]
    found = [item.text for item in check_store(store)]
    assert {line.partition(":")[0].split()[0] for line in found} == {"environments", "runs", "measurements", "commits"}
    assert f"environments 0123456789ab: data has the variables {HIDDEN}" in found
    assert "runs r1: label has a password or a token" in found
    assert "SECRET" not in repr(found)
