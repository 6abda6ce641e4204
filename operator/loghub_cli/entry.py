"""What the installed `loghub` calls. Each extra installs it, also those that lack what it imports."""

import sys

from loghub.extras import MissingExtraError


def main() -> int:
    """The exit status."""
    try:
        from loghub_cli.main import main as run
    except MissingExtraError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return run()
