"""What the commands of the plugin have in common: the options for `kubectl`, and the name of a group."""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from loghub_cli.commands import ConnectionOption
from loghub_cli.plugin.kubectl import GROUPS, Kubectl, KubectlError

F = TypeVar("F", bound=Callable[..., Any])
_OBJECT_NAME = re.compile(r"[a-z]([-a-z0-9.]{0,251}[a-z0-9])?")
# As kubectl spells them; each is passed on.
_PASSED_ON: dict[str, tuple[tuple[str, ...], str]] = {
    "context": (("--context",), "Context of the kubeconfig."),
    "namespace": (("-n", "--namespace"), "Namespace; default: the one of the context."),
    "kubeconfig": (("--kubeconfig",), "The kubeconfig; default: as kubectl finds it."),
    "cluster": (("--cluster",), "Cluster of the kubeconfig."),
    "user": (("--user",), "User of the kubeconfig."),
    "as": (("--as", "as_"), "User to impersonate."),
    "request-timeout": (("--request-timeout",), "How long one request may take, such as 10s."),
}


def in_cluster(function: F) -> F:
    """Adds the options for `kubectl`; the function gets a `Kubectl` as ``kubectl``."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return function(*args, kubectl=_kubectl(kwargs, remove=True), **kwargs)

    decorated: Any = run
    for name, (spellings, text) in reversed(_PASSED_ON.items()):
        metavar = name.rpartition("-")[2].upper()
        decorated = click.option(*spellings, cls=ConnectionOption, metavar=metavar, help=text)(decorated)
    return decorated  # type: ignore[no-any-return]


def _kubectl(values: dict[str, Any], *, remove: bool) -> Kubectl:
    options = []
    for name, (spellings, _) in _PASSED_ON.items():
        parameter = spellings[-1].lstrip("-").replace("-", "_")
        value = values.pop(parameter, None) if remove else values.get(parameter)
        if value is not None:
            options.append(f"--{name}={value}")
    return Kubectl(options)


class GroupName(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """The name of a LogHubConsumerGroup."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if _OBJECT_NAME.fullmatch(str(value)) is None:
            self.fail(f"{value!r} is no name of a LogHubConsumerGroup, such as access-log", param, ctx)
        return str(value)

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        """Nothing if it cannot be had: a Tab must not print."""
        try:
            groups = _kubectl(dict(ctx.params), remove=False).items(GROUPS)
        except KubectlError:
            return []
        names = [str(one["metadata"]["name"]) for one in groups]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


GROUP_NAME = GroupName()
group_argument = click.argument("name", type=GROUP_NAME)
