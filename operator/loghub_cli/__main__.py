"""``python -m loghub_cli``: the same as ``loghub``."""

import sys

from loghub_cli.main import main

if __name__ == "__main__":
    sys.exit(main())
