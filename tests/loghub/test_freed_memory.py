"""Many threads that allocate and free have one arena of glibc, so they keep no more than they use at once."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

# Prints the number of arenas.
PROGRAM = """
import ctypes, sys, threading
from loghub.freed_memory import limit_freed_memory
limit_freed_memory()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p

def allocate(held, freed):
    buffers = [bytearray(1 << 20) for _ in range(16)]
    held.wait()
    del buffers
    freed.wait()

held, freed = threading.Barrier(9), threading.Barrier(9)
threads = [threading.Thread(target=allocate, args=(held, freed)) for _ in range(8)]
for thread in threads:
    thread.start()
held.wait()
freed.wait()
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
print(open(sys.argv[1]).read().count("<heap nr"))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this is about glibc")
def test_threads_share_one_arena(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "info")]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=180).stdout
    assert int(output) == 1
