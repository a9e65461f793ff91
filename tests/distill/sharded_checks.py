"""What watches a run, on parameters that are shards: run by torchrun on two processes, for a test."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

from modeling.checkpoints import check_finite
from modeling.loading import load_model
from modeling.sharding import describe_sharding
from modeling.trainable import describe_trainable

dist.init_process_group("gloo")
model = load_model(sys.argv[1], "float32")
parts = describe_trainable(model)
for layer in model.model.layers:
    fully_shard(layer)
fully_shard(model)
experts = model.model.layers[1].mlp.experts.down_proj
assert experts.placements == (Shard(0),) and experts.shape[0] == 2 * experts.to_local().shape[0]
assert describe_trainable(model) == parts, "counts are of whole tensors"
assert "25 of 25 tensors sharded over 2 processes" in describe_sharding(model)
check_finite(model)
with torch.no_grad():
    if dist.get_rank() == 1:
        experts.to_local()[-1, 0, 0] = float("nan")
try:
    check_finite(model)
except ValueError as error:
    assert "down_proj" in str(error)
else:
    raise AssertionError(f"process {dist.get_rank()} would save what is no number in process 1")
dist.destroy_process_group()
