"""Columns from the driver's own rows, and what becomes of its errors."""

import numpy as np
import pytest
from sqlalchemy import text

from db.connecting import connected
from db.errors import StoreError
from db.queries.columns import coded, fetched, floats, turned, whole


def test_an_error_while_rows_are_read_is_one_line(file_store):
    # The first row comes, the second cannot: as where a page in the middle of a table is damaged.
    query = text("SELECT json(value) FROM (SELECT '1' AS value UNION ALL SELECT '{')")
    with pytest.raises(StoreError) as caught, connected(file_store) as conn:
        fetched(conn, query)
    assert "\n" not in str(caught.value)


def test_absent_values_are_nan_and_never_zero():
    numbers, names = turned([(1.5, "a"), (None, None), (0.0, "a")], 2)
    assert np.array_equal(floats(numbers), [1.5, np.nan, 0.0], equal_nan=True)
    assert coded(names).isna().tolist() == [False, True, False]
    assert coded(names)[0] == coded(names)[2] == "a"


def test_no_rows_have_their_columns_all_the_same():
    first, second = turned([], 2)
    assert (len(whole(first)), len(floats(second)), len(coded(second))) == (0, 0, 0)
