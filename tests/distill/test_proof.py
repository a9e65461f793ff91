"""The proof names what is wrong with a merge: the broken folders are really built, saved and loaded again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from distill import sft
from distill.export_weights import Export, plan_export, prove
from distill.fingerprints import TrainedTensors, trained_tensors
from distill.proof import Gap, Proof, TensorProof, fixed_logprobs, fixed_pairs
from modeling.loading import load_model, load_tokenizer

Words = Callable[..., list[str]]
Break = Callable[[Any, Any], None]  # (merged model, base model): changes the former
LAYER = "model.layers.1.mlp.experts."


@pytest.fixture(scope="module")
def plan(
    sft_words: Words,
    lora_on_experts: list[str],
    tiny_qwen3_moe: Path,
    pairs_file: Path,
    tmp_path_factory: Any,
) -> Export:
    """Two steps of LoRA on attention and experts of a tiny mixture."""
    folder = tmp_path_factory.mktemp("proof") / "run"
    words = sft_words("qwen3_30b_a3b.yaml", tiny_qwen3_moe, pairs_file, folder, *lora_on_experts)
    assert sft.main(words) == 0
    settings = {"thinking": "none"}
    return plan_export(folder, str(tiny_qwen3_moe), "auto", False, "50GB", settings)


@pytest.fixture(scope="module")
def trained(plan: Export) -> tuple[torch.Tensor, TrainedTensors]:
    model = plan.load_trained()
    pairs = fixed_pairs(load_tokenizer(str(plan.checkpoint)), "none")
    return fixed_logprobs(model, pairs), trained_tensors(model, torch.float32)


def proof_of(
    plan: Export, trained: tuple[torch.Tensor, TrainedTensors], folder: Path, broken: Break
) -> Proof:
    """Of a folder whose merged weights were `broken` before they were saved."""
    model: Any = plan.load_trained()
    model = model.merge_and_unload(safe_merge=True)
    broken(model, load_model(plan.base, "float32"))
    model.save_pretrained(folder)
    load_tokenizer(str(plan.checkpoint)).save_pretrained(folder)
    return prove(plan, folder, *trained)[0]


def skip_experts(merged: Any, base: Any) -> None:
    merged.model.layers[1].mlp.experts.load_state_dict(base.model.layers[1].mlp.experts.state_dict())


def exchange_gate_and_up(merged: Any, base: Any) -> None:
    weight = merged.model.layers[1].mlp.experts.gate_up_proj  # (experts, gate and up, D)
    weight.data = torch.cat(weight.data.chunk(2, dim=1)[::-1], dim=1)


def do_not_apply(merged: Any, base: Any) -> None:
    merged.load_state_dict(base.state_dict())


def scale_twice(merged: Any, base: Any) -> None:
    before = dict(base.named_parameters())
    for name, weight in merged.named_parameters():
        weight.data += weight.data - before[name].data


def touch_the_norm(merged: Any, base: Any) -> None:
    merged.model.norm.weight.data += 0.1


def test_a_whole_merge_is_proven(
    plan: Export, trained: tuple[torch.Tensor, TrainedTensors], tmp_path: Path
) -> None:
    """2 layers x (q_proj, v_proj, gate_up_proj, down_proj), counted exactly."""
    proof = proof_of(plan, trained, tmp_path, lambda merged, base: None)
    proof.check()
    assert proof.tensors.num_changed == proof.tensors.num_expected == 8 and not proof.tensors.problems()
    assert proof.drift.max <= 1e-4


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (skip_experts, f"but the base's in the export: {LAYER}down_proj, {LAYER}gate_up_proj"),
        (exchange_gate_and_up, f"to other values than the trained: {LAYER}gate_up_proj"),
        (do_not_apply, "the export equals its base"),
        (scale_twice, f"to other values than the trained: .*{LAYER}down_proj"),
        (touch_the_norm, "changed, though nothing trained them: model.norm.weight"),
    ],
)
def test_a_broken_merge_is_refused_by_name(
    plan: Export,
    trained: tuple[torch.Tensor, TrainedTensors],
    tmp_path: Path,
    broken: Break,
    complaint: str,
) -> None:
    proof = proof_of(plan, trained, tmp_path, broken)
    with pytest.raises(ValueError, match=complaint):
        proof.check()
    # Without the names of tensors the log-probabilities refuse each of them as well.
    with pytest.raises(ValueError, match=r"equals its base|not the trained model: drift"):
        replace(proof, tensors=replace(proof.tensors, still_base=[], untrained=[], different=[])).check()


def test_an_adapter_that_changes_nothing_somewhere_is_told_with_its_reason(plan: Export) -> None:
    """Exact counts hold all the same: nothing is expected of such a tensor."""
    model: Any = plan.load_trained()
    queries = [model.get_base_model().model.layers[index].self_attn.q_proj for index in (0, 1)]
    torch.nn.init.zeros_(queries[0].lora_B["default"].weight)
    queries[1].lora_B["default"].weight.data *= 1e-12
    unchanged = trained_tensors(model, torch.bfloat16).unchanged
    name = "model.layers.{}.self_attn.q_proj.weight"
    assert unchanged[name.format(0)] == "its adapter is zero"
    assert unchanged[name.format(1)] in {"its adapter is zero", "its change rounds away in bfloat16"}


@pytest.mark.parametrize(
    ("drift", "rounded", "passes"),
    [(1e-6, False, True), (1e-3, False, False), (1e-2, True, True), (0.5, True, False)],
)
def test_drift_is_held_against_the_change_only_where_the_export_rounds(
    drift: float, rounded: bool, passes: bool
) -> None:
    tensors = TensorProof(4, 3, 3, {}, [], [], [])
    proof = Proof(Gap(drift, drift), Gap(1.0, 1.0), 4, tensors, rounded)
    if passes:
        proof.check()
    else:
        with pytest.raises(ValueError, match="not the trained model"):
            proof.check()


@pytest.mark.parametrize("rounded", [True, False])
def test_nan_is_no_agreement(rounded: bool) -> None:
    tensors = TensorProof(4, 3, 3, {}, [], [], [])
    with pytest.raises(ValueError, match="not the trained model"):
        Proof(Gap(float("nan"), float("nan")), Gap(1.0, 1.0), 4, tensors, rounded).check()
