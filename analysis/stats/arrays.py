"""Types of numpy arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
#: Numbers of groups, from 0.
Labels = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]
#: Texts, None for none.
Words = NDArray[np.object_]
