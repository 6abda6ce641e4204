"""Groups of commands, and commands with help: whole sentences, what a command is about first, an example.

Every command at a log service has the same options for the connection; the help lists them after its own
options. docs/command-line.md has more examples than the help, with what they print.
"""

from collections.abc import Sequence

import click

from loghub.near_names import did_you_mean

EXAMPLES = {
    "up": (
        "loghub up -f deploy/examples/access-log.yaml --create-logstore",
        "loghub up -f group.yaml --wait-for ready --timeout 5m",
    ),
    "down": ("loghub down -f group.yaml", "loghub down --name access-log"),
    "status": ("loghub status", "loghub status access-log"),
    "check": ("loghub check -f group.yaml",),
    "try": (
        "loghub try -f group.yaml --last 1000",
        "loghub try -f group.yaml --from 10m -o json",
        "loghub try -f group.yaml --file sample.jsonl",
    ),
    "serve": (
        "loghub serve --listen 127.0.0.1:8080",
        "loghub serve --kafka --pulsar -- --max-shards 100",
    ),
    "project create": ('loghub project create demo --description "an example" --if-not-exists',),
    "project list": ("loghub project list -o json",),
    "project show": ("loghub project show demo",),
    "project delete": ("loghub project delete demo",),
    "logstore create": ("loghub logstore create access --shards 4 --ttl-days 30 --if-not-exists",),
    "logstore list": ("loghub logstore list --project demo",),
    "logstore show": ("loghub logstore show access",),
    "logstore delete": ("loghub logstore delete access",),
    "shard list": ("loghub shard list access",),
    "shard show": ("loghub shard show access 0",),
    "shard split": (
        "loghub shard split access 0 --into 4",
        "loghub shard split access 1 --at c0000000000000000000000000000000",
    ),
    "shard merge": ("loghub shard merge access 2",),
    "shard delete": ("loghub shard delete access 0",),
    "group create": ("loghub group create access readers --timeout 60 --if-not-exists",),
    "group list": ("loghub group list access",),
    "group show": ("loghub group show access readers",),
    "group update": ("loghub group update access readers --timeout 120",),
    "group delete": ("loghub group delete access readers",),
    "group checkpoints": ("loghub group checkpoints access readers",),
    "group set-checkpoint": (
        "loghub group set-checkpoint access readers 0 MTc5NTQyNTU3MzUwODIwOTAwMA== --force",
    ),
    "group reset": (
        "loghub group reset access readers --to 1h --dry-run",
        "loghub group reset access readers --to begin --shard 0 --shard 1",
        "loghub group reset access readers --from-subscription workers",
    ),
    "subscription create": (
        "loghub subscription create access workers --type Shared",
        "loghub subscription create access by-user --type KeyShared --key user",
        "loghub subscription create access workers --from-group readers",
    ),
    "subscription list": ("loghub subscription list access",),
    "subscription show": ("loghub subscription show access workers",),
    "subscription update": ("loghub subscription update access workers --type Failover",),
    "subscription delete": ("loghub subscription delete access workers",),
    "subscription seek": (
        "loghub subscription seek access workers --to 1h --dry-run",
        "loghub subscription seek access workers --to begin --shard 0",
    ),
    "subscription skip": ("loghub subscription skip access workers 0 --logs 1",),
    "put": (
        "loghub put access app.log",
        "loghub put access events.json --lines json --topic events --tag host=web-1",
        "loghub put access app.log --follow --from-end",
    ),
    "pull": (
        "loghub pull access 0 --from 10m -n 5",
        "loghub pull access 0 --from 2026-01-31T08:00:00Z --to 1h -o json",
    ),
    "query": (
        "loghub query access \"SELECT contents['user'], count(*) FROM logs GROUP BY 1\" --from 1h",
        'loghub query access "SELECT * FROM logs" -n 1000 -o csv',
        "loghub query access -i",
    ),
    "schema": ("loghub schema access --from 1h",),
    "tail": ("loghub tail access", "loghub tail access --from 10m --field line"),
    "lag": ("loghub lag access", "loghub lag access readers --watch"),
    # Of `kubectl loghub`.
    "loghub status": (
        "kubectl loghub status",
        "kubectl loghub status access-log -n shop --watch",
        "kubectl loghub status access-log --verbose --context prod",
    ),
    "loghub why": ("kubectl loghub why access-log",),
    "loghub lag": ("kubectl loghub lag access-log --watch",),
    "loghub shards": ("kubectl loghub shards access-log --tree",),
    "loghub plan": ("kubectl loghub plan access-log --replicas 6",),
    "loghub pause": ("kubectl loghub pause access-log",),
    "loghub resume": ("kubectl loghub resume access-log",),
    "loghub restart": ("kubectl loghub restart access-log",),
    "loghub reset": (
        "kubectl loghub reset access-log --to 1h --dry-run",
        "kubectl loghub reset access-log --to 2026-01-31T08:00:00Z --shard 3",
        "kubectl loghub reset access-log --undo",
    ),
    "loghub logs": (
        "kubectl loghub logs access-log --pretty --since 10m",
        "kubectl loghub logs access-log --worker 2 --follow",
    ),
    "loghub shell": ("kubectl loghub shell access-log --worker 1",),
    "loghub report": ("kubectl loghub report access-log",),
}


class ConnectionOption(click.Option):
    """Where requests go, and with which key."""


class Command(click.Command):
    """A command whose help has its own options, the options of the connection, and examples."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        own = [option for option in options if not isinstance(option, ConnectionOption)]
        connection = [option for option in options if isinstance(option, ConnectionOption)]
        for title, part in (("Options", own), ("Connection", connection)):
            records = [record for option in part if (record := option.get_help_record(ctx)) is not None]
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
        name, commands = args[0], self.list_commands(ctx)
        if name not in commands and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"there is no command {name!r}{did_you_mean(name, commands)}", ctx)
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


def exit_status(command: click.Command, arguments: Sequence[str] | None, program: str) -> int:
    """Runs a command that returns its exit status; None: with the arguments of this process. An invalid
    command line is reported on standard error, and its status is 2.
    """
    given = None if arguments is None else list(arguments)
    try:
        status = command.main(args=given, prog_name=program, standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return error.exit_code
    return status if isinstance(status, int) else 0
