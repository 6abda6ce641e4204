"""CPU seconds of a process and of all that it started, by kind: Spark's JVM, and Python.

Seconds of CPU are meaningful on a busy machine too, and seconds on the clock are not."""

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """CPU seconds."""

    jvm_s: float
    python_s: float

    @property
    def total_s(self) -> float:
        return self.jvm_s + self.python_s

    def __sub__(self, before: "CpuTime") -> "CpuTime":
        return CpuTime(jvm_s=self.jvm_s - before.jvm_s, python_s=self.python_s - before.python_s)

    def per_million(self, count: int) -> "CpuTime":
        """The seconds for a million, if these are for `count`."""
        return CpuTime(jvm_s=self.jvm_s * 1e6 / count, python_s=self.python_s * 1e6 / count)


def cpu_time(root: int) -> CpuTime:
    """The CPU seconds so far of a process, its living descendants, and those they waited for."""
    ticks, parents, java = {}, {}, set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue  # the process has ended
        fields = rest.split()
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        # The JVM's children are Python: what it waited for is not its own.
        is_java = head.partition("(")[2] == "java"
        ticks[pid] = (sum(map(int, fields[11:13])), sum(map(int, fields[13:15])))
        if is_java:
            java.add(pid)

    def belongs(pid: int) -> bool:
        while pid not in (0, root):
            pid = parents.get(pid, 0)
        return pid == root

    own = {pid: times for pid, times in ticks.items() if belongs(pid)}
    jvm = sum(times[0] for pid, times in own.items() if pid in java)
    return CpuTime(jvm_s=jvm / TICKS_PER_S, python_s=(sum(map(sum, own.values())) - jvm) / TICKS_PER_S)
