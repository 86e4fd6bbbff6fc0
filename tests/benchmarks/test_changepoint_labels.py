"""The scores of change points on series with known marks."""

import json

import numpy as np

from benchmarks.changepoint_labels import agreed, main, unmarked


def test_marks_near_each_other_are_one_place_if_enough_people_have_it():
    people = [[100, 300], [102], [98, 300, 500]]
    assert agreed(people, 3) == [100]
    assert agreed(people, 2) == [100, 300]
    assert agreed([[], []], 1) == []


def test_unmarked_is_what_is_beyond_the_margin_of_every_mark():
    assert unmarked([[[10], [20]], [[]]], [[5, 26], []]) == 0.5
    assert unmarked([[[10]]], [[]]) == 0.0


def test_a_step_that_all_people_marked_scores_one(tmp_path, monkeypatch, capsys):
    values = np.repeat([100.0, 110.0], 40) + np.random.default_rng(0).standard_normal(80)
    path = tmp_path / "labelled.json"
    series = {str(at): {"y": values.tolist(), "annotations": {"a": [40], "b": [41]}} for at in range(4)}
    path.write_text(json.dumps(series))
    monkeypatch.setattr("sys.argv", ["changepoint_labels", str(path)])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 series, margin 5"
    assert " ".join(lines[1].split()) == "ours F1 1.000 +- 0.000 cover 0.988 +- 0.000 unmarked 0.000"
    assert "unmarked by 1 of 2 people: 0.000" in lines
