"""bf16 on CPUs: twice as fast as float32 where the processor has instructions for it, and where it has none
(AVX2 alone) computed number by number: a training step of SmolLM2 took 150 s in the place of seconds.
"""

from typing import Any

import torch


def cpu_has_bf16() -> bool:
    """Whether oneDNN multiplies bf16 matrices on this processor with instructions of its own."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def computed_dtype(dtype: str) -> str:
    """The precision to hold a model in that is only read: `dtype`, or float32 for those that this machine
    computes far more slowly. Stored bf16 weights are the same numbers in float32."""
    is_slow = not torch.cuda.is_available() and not cpu_has_bf16()
    return "float32" if is_slow and dtype in ("auto", "bfloat16") else dtype


def without_slow_bf16(training: Any) -> list[str]:
    """Turn bf16 autocast off in `training` where a CPU without such instructions would run it; say so."""
    if not (training.use_cpu and training.bf16) or cpu_has_bf16():
        return []
    training.bf16, training.mixed_precision = False, "no"
    return ["--bf16 true: this CPU has no bf16 instructions; it computes in float32, which is far faster"]
