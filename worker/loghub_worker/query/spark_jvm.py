"""The options of Spark's JVM in a worker: its heap, its compilers, and the archive of its classes.

A JVM whose Spark computes rows needs both compilers. The second one makes code of what the first one has
counted, and that counting makes the first one's code large and slow: both take a third of the CPU time of a
start. A JVM that only plans, because Arrow computes the rows, is done before any of this pays.
"""

from pathlib import Path

# The second compiler begins four times later than by default: most of the code of a start runs too seldom for
# its work to pay off. A start takes a quarter less CPU time, and the throughput stays the same. Without that
# compiler, a long run in which Spark computes the rows costs half as much again.
SECOND_COMPILER_LATER = (
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=2400",
    "-XX:Tier4CompileThreshold=60000",
    "-XX:Tier4BackEdgeThreshold=160000",
)
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
COMPILERS = "TieredStopAtLevel"
FIRST_COMPILER = (f"-XX:{COMPILERS}=1",)  # and nothing is counted
# A start needs about 60 MiB. The JVM's own choice is a 64th of the memory of the machine or the pod: with
# more, it fills that before it collects anything, and with 32 MiB, in a pod of 2 GiB, it collects all the
# time.
FIRST_HEAP = "160m"
# Of a JVM that lives for a moment, such as the one that only makes the command line of Spark's JVM.
BRIEF = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class JvmMisjudgedError(Exception):
    """Spark computes the rows, in a JVM that was started to plan only and would need half as long again for
    them. The next start of the worker takes another one."""


def archive_options(file: Path | str) -> tuple[str, ...]:
    """The options of a JVM that takes its classes from the archive `file`. It ignores the archive of another
    JVM without a message.

    The archive stays at the place for which it was made. At a place by chance, which is the default, the JVM
    changes all pointers in it, so that each process has 130 MiB of it for itself and starts 0.1 CPU s later.
    """
    in_place = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
    return (f"-XX:SharedArchiveFile={file}", *in_place, "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def java_options(state_dir: Path, class_archive: Path | None, *, only_plans: bool) -> str:
    """For a JVM whose Spark computes rows, or `only_plans`. Each option is in quotes: Spark splits at spaces,
    and a folder's name may contain one."""
    options = [
        "-XX:+UseSerialGC",
        f"-Xms{FIRST_HEAP}",
        *(FIRST_COMPILER if only_plans else SECOND_COMPILER_LATER),
        # The pod's user does not necessarily have a home, but Spark requires one.
        f"-Duser.home={state_dir}",
        # The next start of the worker removes files that a killed JVM leaves there.
        f"-Djava.io.tmpdir={state_dir / 'tmp'}",
    ]
    if class_archive is not None:
        options += archive_options(class_archive)
    return " ".join(f'"{option}"' for option in options)
