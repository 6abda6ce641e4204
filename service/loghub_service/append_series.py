"""The log groups of one sender, none of which is stored behind one that was not.

A sender that hears of a full disk sends the log group again, and all that it has sent since. If some of that
had been stored meanwhile, the order would be another one, and a service that keeps only the number of the
last one would take the first for stored, too. The thread that appends is the only one that knows in time.
"""


class AppendSeries:
    """Passed with each append. The thread that appends sets ``refused``, and refuses whatever follows."""

    __slots__ = ("refused",)

    def __init__(self) -> None:
        self.refused: OSError | None = None
