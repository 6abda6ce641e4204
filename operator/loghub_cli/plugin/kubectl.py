"""The user's `kubectl` as a child process: objects as values, a watch as a stream, a terminal handed over.

Its errors become messages of ours with an exit status of their own: scripts tell an object that is not there
from a permission that is missing and from a cluster that does not answer.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import click

from loghub.near_names import did_you_mean
from loghub_cli.group_view import Document
from loghub_cli.output import on_one_line

GROUPS = "loghubconsumergroups.loghub.dev"
NOT_FOUND, FORBIDDEN, UNREACHABLE = 3, 4, 5  # exit statuses; 1 and 2 have the meaning of every command
# `kubectl` itself waits forever for a server that accepts and does not answer.
ANSWER_WITHIN_S = 60.0
_REFUSED = re.compile(r"Error from server \((?P<code>\w+)\)")
# What it says of a server that it cannot reach, or whose certificate or login does not hold.
_NO_ANSWER = re.compile(
    r"unable to connect|connection to the server|was refused|no such host|i/o timeout|x509|TLS handshake"
    r"|must be logged in|Unauthorized|getting credentials|context .* does not exist|no configuration has been"
    r"|stat .*: no such file",
    re.IGNORECASE,
)
_LINES_OF_ERROR = 3  # more is the help of kubectl


class KubectlError(click.ClickException):
    """`kubectl` did not do what it was asked."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(f"kubectl loghub: {message}")
        self.status = status

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # a number of the class in click
        return self.status


def as_error(stderr: str) -> KubectlError:
    """What `kubectl` wrote before it failed, as an error of ours."""
    said = [line for line in stderr.strip().splitlines() if line.strip()]
    text = "; ".join(on_one_line(line.strip()) for line in said[-_LINES_OF_ERROR:]) or "kubectl failed"
    text = text.removeprefix("error: ")
    if "doesn't have a resource type" in text:
        message = (
            "the cluster has no LogHubConsumerGroups: install the operator's chart (docs/install.md), or"
        )
        return KubectlError(f"{message} name another cluster with --context", NOT_FOUND)
    refused = _REFUSED.search(text)
    if refused is not None and refused["code"] == "NotFound":
        return KubectlError(text, NOT_FOUND)
    if refused is not None and refused["code"] == "Forbidden":
        return KubectlError(f"not permitted: {text}", FORBIDDEN)
    if _NO_ANSWER.search(text):
        return KubectlError(f"the cluster does not answer: {text}", UNREACHABLE)
    return KubectlError(text)


class Kubectl:
    """`kubectl` with the options of one command, such as ``("--context", "prod")``."""

    def __init__(self, options: Sequence[str]) -> None:
        self._options = tuple(options)

    def text(self, *arguments: str) -> str:
        """What it prints. Raises `KubectlError`."""
        try:
            done = subprocess.run(
                self._command(arguments),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=ANSWER_WITHIN_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            message = f"the cluster has not answered within {ANSWER_WITHIN_S:.0f} s"
            raise KubectlError(message, UNREACHABLE) from None
        if done.returncode != 0:
            raise as_error(done.stderr)
        return done.stdout

    def object(self, *arguments: str) -> dict[str, Any]:
        """The object, or the List, that `kubectl get` and the like print as JSON. Raises `KubectlError`."""
        answer = self.text(*arguments, "--output=json")
        try:
            found = json.loads(answer)
        except ValueError:
            raise KubectlError(f"kubectl printed no JSON: {on_one_line(answer[:200])}") from None
        assert isinstance(found, dict)
        return found

    def items(self, *arguments: str) -> list[Document]:
        """The objects of a list. Raises `KubectlError`."""
        return list(self.object("get", *arguments).get("items") or ())

    def group(self, name: str) -> Document:
        """One LogHubConsumerGroup. Raises `KubectlError`, with the near name if it does not exist."""
        try:
            return self.object("get", GROUPS, name)
        except KubectlError as error:
            if error.status != NOT_FOUND or name not in error.message:
                raise
            hint = did_you_mean(name, self._names())
            raise KubectlError(f"there is no LogHubConsumerGroup {name}{hint}", NOT_FOUND) from None

    def _names(self) -> Iterable[str]:
        try:
            return [one["metadata"]["name"] for one in self.items(GROUPS)]
        except KubectlError:
            return ()

    def watch(self, *arguments: str) -> Generator[tuple[str, Document]]:
        """The type of each event and its object, as they come: first what is there, then the changes. The
        server ends a watch after a while, which is then begun again. Raises `KubectlError`."""
        while True:
            came = False
            options = ("get", *arguments, "--watch", "--output-watch-events", "--output=json")
            with self._lines(*options) as lines:
                for event in documents(lines):
                    came = True
                    yield event["type"], event["object"]
            if not came:
                raise KubectlError("the watch ended without an event")

    def stream(self, *arguments: str) -> Generator[str]:
        """Its lines, as they come. Raises `KubectlError`."""
        with self._lines(*arguments) as lines:
            yield from lines

    def hand_over(self, *arguments: str) -> int:
        """Runs it with the terminal of this process; returns its exit status."""
        return subprocess.run(self._command(arguments), check=False).returncode

    @contextmanager
    def _lines(self, *arguments: str) -> Iterator[IO[str]]:
        with subprocess.Popen(
            self._command(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            try:
                yield child.stdout
                # It writes little there, and at its end.
                said = child.stderr.read()
                if child.wait() != 0:
                    raise as_error(said)
            finally:
                child.kill()

    def _command(self, arguments: Sequence[str]) -> list[str]:
        program = shutil.which("kubectl")
        if program is None:
            message = "there is no kubectl on PATH, which does all requests (https://kubernetes.io/docs/tasks/tools)"
            raise KubectlError(message, UNREACHABLE)
        verb, *rest = arguments
        return [program, verb, *self._options, *rest]


def documents(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The objects of a stream of JSON, as `kubectl` prints them: events of a watch on a line each, and all
    else indented, up to a brace at the begin of a line."""
    text: list[str] = []
    for line in lines:
        text.append(line)
        whole = line.startswith("{") and len(text) == 1 and line.rstrip().endswith("}")
        if whole or line.rstrip("\n") == "}":
            yield json.loads("".join(text))
            text.clear()
