"""``python -m loghub_cli`` is the command ``loghub``."""

import sys

from loghub_cli.main import main

if __name__ == "__main__":
    sys.exit(main())
