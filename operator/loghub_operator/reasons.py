"""``python -m loghub_operator.reasons``: the page that tells each reason of a status, ``docs/reasons.md``.

What for: people look a word up without reading code; the words are those of the enumerations'
own texts. What it must not know: when a reason is set. Read next: `loghub_operator.conditions`.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from enum import StrEnum

from loghub.worker_contract import WorkerReason
from loghub_operator import conditions
from loghub_operator.api.status import Phase
from loghub_operator.local.telltale import LocalReason
from loghub_operator.model import ServiceTrouble
from loghub_operator.pods import PodReason

HEAD = """# What a status says

Made by `python -m loghub_operator.reasons`; change the texts in the code, not this page.

`kubectl get lhcg NAME -o yaml` shows the conditions; each has a type, a status and a reason, and a message
with the particulars. Here is what each word means, and what to do.
"""
SECTIONS: tuple[tuple[str, tuple[type[StrEnum], ...]], ...] = (
    ("Phase", (Phase,)),
    ("Conditions", (conditions.ConditionType,)),
    ("Ready", (conditions.ReadyReason,)),
    ("GroupSynced", (conditions.GroupReason, ServiceTrouble)),
    ("WorkersAvailable", (conditions.WorkersReason, WorkerReason, PodReason, LocalReason)),
    ("Rebalancing", (conditions.RebalancingReason,)),
    ("LagKnown", (conditions.LagReason,)),
    ("ScalingLimited", (conditions.ScalingReason,)),
    ("ScalingActive", (conditions.ActiveReason,)),
    ("HotShard", (conditions.HotReason,)),
    ("Paused", (conditions.PausedReason,)),
    ("Degraded", (conditions.DegradedReason,)),
    ("Any of them, where its status is Unknown", (conditions.UnseenReason,)),
)
# `NAME: text`, `NAME, NAME: text` or `NAME and NAME: text`
_NAMES = re.compile(r"\b((?:[A-Z][A-Z_]+(?:, | and ))*[A-Z][A-Z_]+): ")


def page() -> str:
    """The whole page, in Markdown."""
    return "\n".join([HEAD, *(line for title, kinds in SECTIONS for line in _section(title, kinds))])


def _section(title: str, kinds: tuple[type[StrEnum], ...]) -> Iterator[str]:
    yield f"## {title}\n"
    for kind in kinds:
        before, rows = told(kind)
        if before:
            yield f"{before}\n"
        yield "| | |\n| --- | --- |"
        for names, text in rows:
            words = ", ".join(f"`{kind[name]}`" for name in names)
            yield f"| {words} | {_cell(text)} |"
        yield ""


def told(kind: type[StrEnum]) -> tuple[str, list[tuple[list[str], str]]]:
    """What an enumeration's text says before all, then of which members it says what."""
    text = " ".join(inspect.cleandoc(kind.__doc__ or "").split())
    before, *parts = _NAMES.split(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return before.strip(), [(re.split(", | and ", names), words.strip()) for names, words in pairs]


def _cell(text: str) -> str:
    """A sentence begins with a capital, a field such as spec.replicas does not."""
    field = re.match(r"\w+\.\w", text) is not None
    return (text if field else text[:1].upper() + text[1:]).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
