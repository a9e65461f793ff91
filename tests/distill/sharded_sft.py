"""`distill/sft.py` with accelerate's own FSDP2 on CPUs, for a test; run by `accelerate launch`.

accelerate shards for GPUs only, though torch does so on CPUs too: it is told that these are GPUs.
"""

import sys

from accelerate import PartialState
from accelerate.utils import DistributedType

from distill import sft

PartialState(cpu=True).distributed_type = DistributedType.MULTI_GPU
sys.exit(sft.main([*sys.argv[1:], "--accelerator_config", '{"use_configured_state": true}']))
