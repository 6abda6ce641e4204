"""``create`` of any noun: a script that runs again may ask for what exists already."""

from collections.abc import Callable

import click

from loghub.wire.errors import Code, LogHubError
from loghub_operator.cli.output import Record

if_not_exists = click.option(
    "--if-not-exists", "keep", is_flag=True, help="Keep what exists already, and show it as it is."
)


def create_or_keep(
    wanted: Record, create: Callable[[], None], existing: Callable[[], Record], *, exists: Code | None
) -> Record:
    """What there is afterwards. ``exists`` is the answer for what is there already; None: that is a failure,
    as any other. Other settings than those wanted are kept, and said."""
    try:
        create()
    except LogHubError as error:
        if error.code != exists:
            raise
    else:
        return wanted
    now = existing()
    found = {key: now[key] for key in wanted}
    if found != wanted:
        click.echo("loghub: it exists already with other settings, which are kept", err=True)
    return found
