"""A report on one group for those who help: its objects, events and logs and the versions, without secrets.

Whatever cannot be read, for want of a permission or because it is not there, is named in the report and does
not prevent it.
"""

import os
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from loghub import __version__
from loghub_cli.group_view import Document, details, findings
from loghub_cli.output import as_yaml, on_one_line, utc
from loghub_cli.plugin.kubectl import GROUPS, Kubectl, KubectlError
from loghub_cli.plugin.redaction import redacted, redacted_text
from loghub_cli.plugin.worker_pods import is_about

# By the label of the instance: no Secrets, and of ConfigMaps those that the operator makes.
_KINDS = ("statefulsets.apps", "pods", "configmaps", "services", "poddisruptionbudgets.policy")
_LABEL = "app.kubernetes.io/instance"
_OPERATOR = "app.kubernetes.io/name=loghub-operator"
MAX_LOG_LINES = 5000  # of each container; about a megabyte, and more than anybody reads
_FILE_NAME = re.compile(r"[^\w.-]")
_WIDTH = 110  # of the text in it


@dataclass(slots=True)
class ReportFiles:
    """The files, already redacted, and what is missing."""

    files: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def add(self, name: str, content: Callable[[], str]) -> None:
        try:
            text = content()
        except KubectlError as error:
            self.missing.append(f"{name}: {redacted_text(on_one_line(error.message))}")
            return
        if text:
            self.files[name] = text


def collect(kubectl: Kubectl, name: str, *, lines: int, now_unix_s: float) -> ReportFiles:
    """Raises `KubectlError` if there is no such group."""
    group = kubectl.group(name)
    report = ReportFiles()
    report.add("group.yaml", partial(_yaml, [group]))
    report.add("status.txt", partial(_shown, group, now_unix_s=now_unix_s))
    for kind in _KINDS:
        listed = (kind, f"--selector={_LABEL}={name}")
        report.add(f"objects/{kind.partition('.')[0]}.yaml", partial(_objects, kubectl, *listed))
    report.add("events.yaml", partial(_events, kubectl, name))
    report.add("versions.txt", partial(_versions, kubectl))
    report.add("crd.txt", partial(_stored_versions, kubectl))
    operators = ("pods", "--all-namespaces", f"--selector={_OPERATOR}")
    report.add("operator/pods.yaml", partial(_objects, kubectl, *operators))
    for log, arguments in _logs(kubectl, name, report):
        report.add(log, partial(_log, kubectl, *arguments, f"--tail={lines}"))
    return report


def _yaml(objects: Sequence[Document]) -> str:
    clean = [redacted(one) for one in objects]
    return as_yaml([one for one in clean if isinstance(one, dict)]) if clean else ""


def _shown(group: Document, *, now_unix_s: float) -> str:
    text = details(group, (), now_unix_s=now_unix_s, width=_WIDTH)
    meanings = "\n".join(f"{one.condition} {one.reason}: {one.meaning}" for one in findings(group))
    return redacted_text(f"{text}\n\n{meanings}\n")


def _objects(kubectl: Kubectl, *arguments: str) -> str:
    return _yaml(kubectl.items(*arguments))


def _events(kubectl: Kubectl, name: str) -> str:
    return _yaml([one for one in kubectl.items("events") if is_about(one, name)])


def _log(kubectl: Kubectl, *arguments: str) -> str:
    return redacted_text(kubectl.text("logs", *arguments))


def _versions(kubectl: Kubectl) -> str:
    return f"kubectl loghub {__version__}\n{kubectl.text('version')}"


def _stored_versions(kubectl: Kubectl) -> str:
    crd = kubectl.object("get", "customresourcedefinitions.apiextensions.k8s.io", GROUPS)
    labels = crd["metadata"].get("labels") or {}
    versions = [one["name"] for one in crd["spec"]["versions"]]
    return f"versions: {versions}\nstored: {crd.get('status', {}).get('storedVersions')}\nlabels: {labels}\n"


def _logs(kubectl: Kubectl, name: str, report: ReportFiles) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The file of each log and the arguments of `kubectl logs`: of each container, and of its last life."""
    for folder, arguments in (
        ("workers", (f"--selector={_LABEL}={name}",)),
        ("operator", ("--all-namespaces", f"--selector={_OPERATOR}")),
    ):
        try:
            pods = kubectl.items("pods", *arguments)
        except KubectlError as error:
            report.missing.append(f"{folder}: {redacted_text(on_one_line(error.message))}")
            continue
        for pod in pods:
            metadata, status = pod["metadata"], pod.get("status") or {}
            place = (f"--namespace={metadata['namespace']}", metadata["name"])
            for container in status.get("containerStatuses") or ():
                of = (*place, f"--container={container['name']}")
                file = f"{folder}/{metadata['name']}-{container['name']}"
                yield f"{file}.log", of
                if container.get("restartCount"):
                    yield f"{file}-previous.log", (*of, "--previous")


def write(report: ReportFiles, name: str, path: Path, *, now_unix_s: float) -> None:
    """Writes a zip that only its owner may read. Raises `FileExistsError`: no file is overwritten."""
    head = [
        f"LogHubConsumerGroup {name}, {utc(now_unix_s)}",
        "Values that may be secrets are replaced by the word REDACTED; Secrets are not read.",
        "Read it before you send it: logs may quote your data.",
        *(f"missing: {line}" for line in report.missing),
    ]
    at = datetime.fromtimestamp(now_unix_s, UTC).timetuple()[:6]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, text in {"README.txt": "\n".join(head) + "\n", **report.files}.items():
            clean = "/".join(_FILE_NAME.sub("_", part) for part in entry.split("/"))
            info = zipfile.ZipInfo(clean, date_time=(at[0], at[1], at[2], at[3], at[4], at[5]))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, text)
