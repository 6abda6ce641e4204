"""Figures of a bench: what an operator's metrics and its process report, and a verdict for each target."""

import os
import re
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

_SERIES = re.compile(r"^loghub_operator_(\w+?)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_CALLS, _REQUESTS, _RECONCILES, _SEEN = (
    "log_service_requests_total",
    "kubernetes_requests_total",
    "reconcile_total",
    "group_observed_timestamp_seconds",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One scrape. ``ages_s``: of every group, the seconds since it was last observed."""

    calls: float  # of log services
    requests: float  # to the Kubernetes API, Kopf's few apart
    reconciles: float
    failures: float  # reconciles that did not end well
    ages_s: tuple[float, ...]
    cpu_s: float


def sample(metrics: str, pid: int) -> Sample:
    """As a Prometheus does; ``metrics`` is ``host:port``."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{metrics}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    now, series = time.time(), _SERIES.findall(text)
    missing = {_CALLS, _RECONCILES, _SEEN} - {name for name, _, _ in series}
    assert not missing, f"the operator has no {', '.join(missing)}"
    reconciles = [(labels, float(value)) for name, labels, value in series if name == _RECONCILES]
    return Sample(
        calls=sum(float(value) for name, _, value in series if name == _CALLS),
        requests=sum(float(value) for name, _, value in series if name == _REQUESTS),
        reconciles=sum(value for _, value in reconciles),
        failures=sum(value for labels, value in reconciles if '"success"' not in labels),
        ages_s=tuple(now - float(value) for name, _, value in series if name == _SEEN),
        cpu_s=cpu_s(pid),
    )


@dataclass(slots=True)
class Load:
    """The requests to the log service between the first and the last sample."""

    samples: list[Sample] = field(default_factory=list)

    def figures(self, *, groups: int, seconds: float, resync_s: float) -> dict[str, float]:
        """By name, so that two runs can be compared."""
        first, last = self.samples[0], self.samples[-1]
        reconciles = max(1.0, last.reconciles - first.reconciles)
        ages = sorted(age for one in self.samples for age in one.ages_s)
        calls, cpu = last.calls - first.calls, last.cpu_s - first.cpu_s
        requests = last.requests - first.requests
        return {
            "calls of a reconcile": calls / reconciles,
            "calls per second needed": calls / reconciles * groups / resync_s,
            "calls per second made": calls / seconds,
            "reconciles per minute": 60 * reconciles / seconds,
            "requests to Kubernetes per minute": 60 * requests / seconds,
            "reconciles that failed": last.failures - first.failures,
            "CPU of a reconcile, ms": 1000 * cpu / reconciles,
            "CPU, % of one core": 100 * cpu / seconds,
            "age of readings, p50, s": part(ages, 0.5),
            "age of readings, p99, s": part(ages, 0.99),
        }


class Figures:
    """What was measured, printed as it comes; ``missed`` once one is beyond its goal."""

    def __init__(self) -> None:
        self.missed = False

    def tell(self, what: str, reported: str, value: float, *, maximum: float) -> None:
        good = value <= maximum
        self.missed = self.missed or not good
        verdict = "as it should be" if good else "MISSED"
        print(f"{what + ':':36} {reported}; goal: at most {maximum:g}, {verdict}", flush=True)

    def latencies(self, what: str, seconds: list[float], *, max_s: float) -> None:
        """The goal is on the 99th of a hundred."""
        ordered = sorted(seconds)
        p50, p99 = part(ordered, 0.5), part(ordered, 0.99)
        self.tell(what, f"p50 {p50:6.2f} s, p99 {p99:6.2f} s, of {len(ordered)}", p99, maximum=max_s)


def compare(runs: dict[str, dict[str, float]]) -> None:
    """One column a run, and the last one's ratio to the first."""
    first, *_, last = list(runs)
    print(f"\n{'':36}" + "".join(f"{name:>12}" for name in runs) + f"{last}/{first}".rjust(12))
    for what in runs[first]:
        values = [run[what] for run in runs.values()]
        ratio = f"{values[-1] / values[0]:12.2f}" if values[0] else f"{'-':>12}"
        print(f"{what + ':':36}" + "".join(f"{value:12.1f}" for value in values) + ratio)


def part(ordered: list[float], share: float) -> float:
    """A quantile."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def peak_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def cpu_s(pid: int) -> float:
    """User and system time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
