"""``loghub completion``: the scripts by which a shell completes commands, options and names."""

import click
from click.shell_completion import get_completion_class

from loghub_cli.commands import Command


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and the names of projects, logstores and groups.

    \b
    bash:  loghub completion bash > ~/.local/share/bash-completion/completions/loghub
    zsh:   loghub completion zsh > DIR/_loghub, where DIR is in $fpath
    fish:  loghub completion fish > ~/.config/fish/completions/loghub.fish
    """
    root = ctx.find_root()
    complete = get_completion_class(shell)
    assert complete is not None, "click knows the shells of the choice"
    # click's source() also runs the user's bash to ask its version, which the script does not need.
    script = complete(root.command, {}, "loghub", "_LOGHUB_COMPLETE")
    click.echo(script.source_template % script.source_vars())
