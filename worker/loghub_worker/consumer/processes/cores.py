"""How many cores this process may use."""

import math
import os
from pathlib import Path

CPU_MAX = Path("/sys/fs/cgroup/cpu.max")  # of a container with a limit: quota and period


def available_cores(cpu_max: Path = CPU_MAX) -> int:
    """The cores of the machine that are allowed, or those that a container's limit amounts to, rounded up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = cpu_max.read_text().split()
        return max(1, min(allowed, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or no limit: max
        return allowed
