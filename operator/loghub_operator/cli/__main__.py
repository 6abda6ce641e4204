"""``python -m loghub_operator.cli``: the same as ``loghub``."""

import sys

from loghub_operator.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
