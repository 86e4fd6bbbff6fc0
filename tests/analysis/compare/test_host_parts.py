"""Which part of the host's work took longer, from hand-made details."""

from analysis.compare.host_parts import host_parts, host_words

BASE = {"host_parts_us": {"guards": 20.0, "launches": 60.0, "python": 40.0}}


def test_the_part_that_took_longer_is_named():
    parts = host_parts(BASE, {"host_parts_us": {"guards": 65.0, "launches": 58.0, "python": 40.0, "operators": 7.0}})
    assert [(part.name, part.change_us) for part in parts][:2] == [("guards", 45.0), ("operators", 7.0)]
    assert host_words(parts) == "host time 120 -> 170 us, most of it in guards (+45 us)"
    assert host_words(host_parts(BASE, BASE)) == ""
    assert host_parts({}, BASE) == []
