"""Memory that is freed goes back to the system."""

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


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_blocks_go_back_to_the_system() -> None:
    given_back = {
        case: float(subprocess.check_output([sys.executable, "-c", HELD, case], text=True))
        for case in ("kept", "returned")
    }
    assert given_back["kept"] < 200 < 380 < given_back["returned"], given_back
