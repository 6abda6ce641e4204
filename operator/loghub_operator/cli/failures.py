"""Why a command ends without success; the message is all that the user sees of it."""

import click


class Failed(click.ClickException):
    """Something that the user asked is not done, or not all of it."""

    exit_code = 1


class InvalidInput(click.ClickException):
    """A file that cannot be used: of configuration, of a group, or of logs."""

    exit_code = 2
