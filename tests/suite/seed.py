"""The seed of a run, from which long tests take cases that nobody tried before.

`make test` and a plain run of pytest have the seed 0, so that they try the same cases every time.
``make check-deep MINUTES=30`` takes a new one and prints it; ``SEED=n`` repeats it.
"""

import os

ENV_SEED = "LOGHUB_TEST_SEED"


def of_run() -> int:
    """The number in ``LOGHUB_TEST_SEED``, 0 without."""
    return int(os.environ.get(ENV_SEED) or 0)
