"""Groups of commands, and commands with help: whole sentences, what a command is about first, an example.

Every command at a log service has the same options for the connection. They come after its own.
"""

import click

from loghub.near_names import did_you_mean
from loghub_operator.cli.examples import EXAMPLES


class ConnectionOption(click.Option):
    """Where requests go, and with which key."""


class Command(click.Command):
    """A command whose help has its own options, those of the connection, and examples."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        own = [one for one in options if not isinstance(one, ConnectionOption)]
        connection = [one for one in options if isinstance(one, ConnectionOption)]
        for title, some in (("Options", own), ("Connection", connection)):
            records = [record for one in some if (record := one.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        examples = EXAMPLES.get(ctx.command_path.partition(" ")[2], ())
        if examples:
            with formatter.section("Examples" if len(examples) > 1 else "Example"):
                for example in examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")


class CommandGroup(click.Group):
    """Commands, each with a sentence, and a hint at what a misspelt one may mean."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"there is no command {name!r}{did_you_mean(name, known)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.sentence(ctx, name)) for name in self.list_commands(ctx)])

    def sentence(self, ctx: click.Context, name: str) -> str:
        """What a command does; click's own form of it ends in an ellipsis."""
        command = self.get_command(ctx, name)
        assert command is not None
        first, stop, _ = " ".join((command.help or "").split()).partition(". ")
        return first + stop.strip()
