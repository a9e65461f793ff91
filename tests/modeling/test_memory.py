"""Memory that is freed goes back to the system, and kernels for rows of other lengths are not kept."""

import subprocess
import sys

import pytest

HELD = """
import sys
import psutil
import torch
from modeling.memory import return_freed_memory

if sys.argv[1] == "returned":
    return_freed_memory()
first = torch.ones(4 * 2**20)  # 16 MiB: from here on glibc keeps what is smaller
del first
blocks = [torch.ones(2**20) for _ in range(100)]  # 4 MiB each
last = blocks[-1]  # what lies behind the others keeps them from going back
before = psutil.Process().memory_info().rss
del blocks
print((before - psutil.Process().memory_info().rss) / 2**20)
"""


KERNELS = """
import sys
import psutil
import torch
from modeling.loading import forget_kernels

if sys.argv[1] == "forgotten":
    forget_kernels()
layer = torch.nn.Linear(64, 64, dtype=torch.bfloat16)

def memory_after(lengths):
    for length in lengths:
        layer(torch.ones(length, 64, dtype=torch.bfloat16)).sum().backward()
    return psutil.Process().memory_info().rss

before = memory_after(range(2, 100))
print((memory_after(range(100, 400)) - before) / 2**20)
"""


def in_a_process(code: str, case: str) -> float:
    return float(subprocess.check_output([sys.executable, "-c", code, case], text=True))


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_blocks_go_back_to_the_system() -> None:
    given_back = {case: in_a_process(HELD, case) for case in ("kept", "returned")}
    assert given_back["kept"] < 200 < 380 < given_back["returned"], given_back


def test_rows_of_new_lengths_take_no_memory() -> None:
    """In MiB; on a processor where oneDNN has no kernels of its own for half precision, neither has any."""
    assert in_a_process(KERNELS, "forgotten") < 30
