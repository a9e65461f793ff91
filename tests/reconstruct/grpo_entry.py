"""`reconstruct/grpo.py` on several processes, with shared prompts and again with plain rows, for a test; run
by `accelerate launch`.

    grpo_entry.py FOLDER WORDS...      # into FOLDER/shared and FOLDER/plain

A random model writes no summary: whatever it writes is taken for one. Sharded, accelerate is told that these
are GPUs, as in `tests/distill/sharded_sft.py`.
"""

import os
import sys

from accelerate import PartialState
from accelerate.utils import DistributedType

from condensery.summary import Summary
from reconstruct import grpo, grpo_trainer, rewards

rewards.parse_summary = lambda text, reason: Summary(text=text.strip() or "nothing")
folder, *words = sys.argv[1:]
if os.environ.get("ACCELERATE_USE_FSDP"):
    PartialState(cpu=True).distributed_type = DistributedType.MULTI_GPU
    words += ["--accelerator_config", '{"use_configured_state": true}']
grpo.main([*words, "--output_dir", f"{folder}/shared"])
grpo_trainer.why_not_shared = lambda model: "a test"
grpo.main([*words, "--output_dir", f"{folder}/plain"])
