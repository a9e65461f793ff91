"""An export is the trained model, stands alone, and is refused when it is not."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from distill import export, sft
from distill.proof import fixed_logprobs, fixed_pairs
from modeling.generation import generate
from modeling.loading import load_model, load_model_and_tokenizer, load_tokenizer
from tests.distill.tiny_runs import refusal

Words = Callable[..., list[str]]


@pytest.fixture(scope="module")
def lora_run(
    sft_words: Words,
    lora_on_experts: list[str],
    tiny_qwen3_moe: Path,
    pairs_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Two steps of LoRA on attention and experts of a tiny mixture."""
    folder = tmp_path_factory.mktemp("lora") / "run"
    words = sft_words("qwen3_30b_a3b.yaml", tiny_qwen3_moe, pairs_file, folder, *lora_on_experts)
    assert sft.main(words) == 0
    return folder


def test_merged_export_equals_the_adapter_and_stands_alone(lora_run: Path, tmp_path: Path) -> None:
    """The expert deltas too: all 3 targets of both layers and both projections changed."""
    folder = tmp_path / "export"
    assert export.main(["--checkpoint", str(lora_run), "--output_dir", str(folder)]) == 0
    card = json.loads((folder / "condensery.json").read_text())
    assert (
        card["proof"]["tensors"]["num_changed"] == card["proof"]["tensors"]["num_expected"] == 8
        and card["proof"]["drift"]["max"] < 1e-4
    )
    assert (
        card["prompt_template"]["name"] == "compact_v1" and "{{ history }}" in card["prompt_template"]["text"]
    )
    adapter = load_model(str(lora_run), "float32")
    merged, tokenizer = load_model_and_tokenizer(str(folder))
    pairs = fixed_pairs(tokenizer, "none")
    torch.testing.assert_close(
        fixed_logprobs(adapter, pairs), fixed_logprobs(merged, pairs), atol=1e-5, rtol=0
    )
    [answer] = generate(merged, tokenizer, [[{"role": "user", "content": "hello"}]], max_new_tokens=3)
    assert answer.num_tokens == 3
    assert {file.stat().st_mode for file in folder.iterdir()} == {(folder / "condensery.json").stat().st_mode}


def test_export_that_equals_its_base_is_an_error_and_leaves_nothing(
    lora_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The adapter is emptied behind the run's back, as a key mismatch would do."""
    from safetensors.torch import load_file, save_file

    run = tmp_path / "run"
    run.mkdir()
    for path in lora_run.iterdir():
        if path.is_file():
            (run / path.name).write_bytes(path.read_bytes())
    weights = {name: tensor * 0 for name, tensor in load_file(run / "adapter_model.safetensors").items()}
    save_file(weights, run / "adapter_model.safetensors", metadata={"format": "pt"})
    assert "the export equals its base" in refusal(
        export.main, ["--checkpoint", str(run), "--output_dir", str(tmp_path / "export")], capsys
    )
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_export_refuses_what_is_no_finished_run(
    lora_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, complaint in (
        (["--checkpoint", str(tmp_path), "--output_dir", str(tmp_path / "export")], "has no run.json"),
        (["--checkpoint", str(lora_run), "--output_dir", str(tmp_path)], "exists; choose another"),
    ):
        assert complaint in refusal(export.main, words, capsys)


def run_like(lora_run: Path, folder: Path, **changes: object) -> str:
    """A training run as far as its run.json, which is changed or is no JSON at all."""
    folder.mkdir()
    run = json.loads((lora_run / "run.json").read_text()) | changes
    (folder / "run.json").write_text(json.dumps(run) if changes else "{")
    return str(folder)


def test_export_refuses_a_run_that_does_not_say_what_it_must(
    lora_run: Path, pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = json.loads((lora_run / "run.json").read_text())
    metrics = tmp_path / "report.json"
    metrics.write_text("{")
    for name, changes, more, complaint in (
        ("damaged", {}, [], "run.json is damaged"),
        (
            "foreign",
            {"config": {"questions": "q"}, "command": "condensery record"},
            [],
            "but of condensery record",
        ),
        ("unfinished", {"counts": {}}, [], "is not finished"),
        ("other_data", {"inputs": {str(pairs_file): "0"}}, [], "has changed since the training"),
        ("other_metrics", {"seed": 0}, ["--metrics", str(metrics)], f"{metrics}: not JSON"),
        ("no_budget", {"seed": 0}, ["--max_new_tokens", "0"], "expected at least 1"),
    ):
        words = ["--checkpoint", run_like(lora_run, tmp_path / name, **changes), *more]
        assert complaint in refusal(
            export.main, [*words, "--output_dir", str(tmp_path / "export")], capsys
        ), name
    assert run["inputs"] and not (tmp_path / "export").exists()


def test_training_prefix_equals_serving_prompt_after_export(lora_run: Path) -> None:
    from modeling.chat_template import prompt_ids, render_pair
    from modeling.fixed_prompts import fixed_chats

    tokenizer = load_tokenizer(str(lora_run))
    for prompt, completion in fixed_chats():
        pair = render_pair(tokenizer, prompt, completion)
        assert pair.input_ids[: pair.num_prompt_tokens] == prompt_ids(tokenizer, prompt)


def test_adapter_that_is_kept_is_proven_from_its_folder(lora_run: Path, tmp_path: Path) -> None:
    """Its weights are copied to the bit; the folder names the base, and is loaded on it."""
    folder = tmp_path / "export"
    words = ["--checkpoint", str(lora_run), "--output_dir", str(folder), "--keep_adapter"]
    assert export.main(words) == 0
    name = "adapter_model.safetensors"
    assert (folder / name).read_bytes() == (lora_run / name).read_bytes()
    assert not list(folder.glob("model*.safetensors")) and (folder / "chat_template.jinja").is_file()
    proof = json.loads((folder / "condensery.json").read_text())["proof"]
    assert proof["tensors"]["num_changed"] == proof["tensors"]["num_expected"] == 8
    assert proof["drift"]["max"] == 0
    pairs = fixed_pairs(load_tokenizer(str(folder)), "none")
    trained, kept = (fixed_logprobs(load_model(str(path), "float32"), pairs) for path in (lora_run, folder))
    assert torch.equal(trained, kept)


def test_sharded_export_loads_again_and_misses_no_file(lora_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    words = ["--checkpoint", str(lora_run), "--output_dir", str(folder), "--max_shard_size", "3MB"]
    assert export.main(words) == 0
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1 and (folder / "model.safetensors.index.json").is_file()
    shards[0].unlink()
    with pytest.raises(ValueError, match=f"1 of its weight files are missing, such as {shards[0].name}"):
        load_model(str(folder))


def test_full_training_of_tied_embeddings_writes_them_once(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path
) -> None:
    from safetensors import safe_open

    run, folder = tmp_path / "run", tmp_path / "export"
    assert sft.main(sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, run)) == 0
    assert export.main(["--checkpoint", str(run), "--output_dir", str(folder)]) == 0
    with safe_open(folder / "model.safetensors", "pt") as weights:
        names = list(weights.keys())
    tensors = json.loads((folder / "condensery.json").read_text())["proof"]["tensors"]
    assert "lm_head.weight" not in names
    assert tensors["num_tensors"] == tensors["num_expected"] == tensors["num_changed"] == len(names)


def test_embeddings_trained_beside_an_adapter_are_untied_in_the_export(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path
) -> None:
    """The head keeps the base's, as it did in training."""
    run, folder = tmp_path / "run", tmp_path / "export"
    more = ["--use_peft", "--lora_target_modules", "q_proj", "v_proj", "--lora_dropout", "0"]
    more += ["--lora_modules_to_save", "embed_tokens"]
    assert sft.main(sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, run, *more)) == 0
    assert export.main(["--checkpoint", str(run), "--output_dir", str(folder)]) == 0
    model = load_model(str(folder))
    assert not torch.equal(model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    tensors = json.loads((folder / "condensery.json").read_text())["proof"]["tensors"]
    assert tensors["num_changed"] == tensors["num_expected"] == 5


def test_a_lower_precision_is_written_and_proven_by_its_rounding(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path
) -> None:
    run, folder = tmp_path / "run", tmp_path / "export"
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, run, "--max_steps", "6")
    assert sft.main(words) == 0
    words = ["--checkpoint", str(run), "--output_dir", str(folder), "--dtype", "bfloat16"]
    assert export.main(words) == 0
    assert load_model(str(folder)).dtype == torch.bfloat16
    proof = json.loads((folder / "condensery.json").read_text())["proof"]
    assert proof["rounded"] and 0 < proof["drift"]["mean"] < 0.1 * proof["change"]["mean"]
    assert proof["tensors"]["num_changed"] == proof["tensors"]["num_expected"] > 0


def test_weights_that_are_cut_off_are_named(
    lora_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(lora_run, tmp_path / "run")
    weights = run / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    words = ["--checkpoint", str(run), "--output_dir", str(tmp_path / "export")]
    message = refusal(export.main, words, capsys)
    assert "adapter_model.safetensors is damaged" in message and message.count("\n") == 1
    assert not (tmp_path / "export").exists()


def test_a_mixture_trained_whole_generates_from_its_export(
    sft_words: Words, tiny_qwen3_moe: Path, pairs_file: Path, tmp_path: Path
) -> None:
    """By transformers alone, with padding: training leaves a setting in the config that fails on it."""
    from transformers import AutoModelForCausalLM

    run, folder = tmp_path / "run", tmp_path / "export"
    assert sft.main(sft_words("qwen3_30b_a3b.yaml", tiny_qwen3_moe, pairs_file, run)) == 0
    assert json.loads((run / "config.json").read_text())["output_router_logits"]
    assert export.main(["--checkpoint", str(run), "--output_dir", str(folder)]) == 0
    model = AutoModelForCausalLM.from_pretrained(folder)
    prompt, mask = torch.ones(2, 4, dtype=torch.long), torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])
    written = model.generate(prompt, attention_mask=mask, max_new_tokens=3, min_new_tokens=3)
    assert written.shape == (2, 7)


def test_export_refuses_what_it_cannot_write_or_match(
    lora_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file in the way, a parent that takes no folder, another base, half a request: one line each."""
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("")
    link.symlink_to("nowhere")
    for output_dir, more, complaint in (
        (file, [], f"{file} exists; choose another"),
        (link, [], f"{link} exists; choose another"),
        (file / "export", [], f"cannot write under {file}"),
        (Path("/proc/export"), [], "cannot write under /proc"),
        (tmp_path / "export", ["--base", "org/other"], "not on org/other; name its own base"),
        (tmp_path / "export", ["--max_shard_size", "big"], "max_shard_size is big; write it like 5GB"),
        (tmp_path / "export", ["--max_shard_size", "1GiB"], "max_shard_size is 1GiB; write it"),
        (tmp_path / "export", ["--keep_adapter", "--dtype", "bfloat16"], "leave out one"),
    ):
        assert complaint in refusal(
            export.main, ["--checkpoint", str(lora_run), "--output_dir", str(output_dir), *more], capsys
        )
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}


def test_full_disk_is_one_line_and_leaves_nothing(lora_run: Path, tmp_path: Path) -> None:
    """No file may grow past 1 MB, in a process of its own: the weights are larger."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20)); "
        "from distill import export; sys.exit(export.main(sys.argv[1:]))"
    )
    words = ["--checkpoint", str(lora_run), "--output_dir", str(tmp_path / "export")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "cannot write the export under" in done.stderr, done.stderr[-2000:]
    assert "Traceback" not in done.stderr and not list(tmp_path.iterdir())


def test_an_export_takes_the_revision_of_the_base_that_was_trained_on(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path
) -> None:
    """A hub's cache with two revisions, in a process that knows no other; `main` is not the trained one."""
    from safetensors.torch import load_file, save_file

    model = tmp_path / "hub/models--org--tiny"
    (model / "refs").mkdir(parents=True)
    for name, factor in (("old", 1), ("main", 2)):
        folder = shutil.copytree(tiny_llama, model / "snapshots" / name)
        weights = {name: tensor * factor for name, tensor in load_file(folder / "model.safetensors").items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        (model / "refs" / name).write_text(name)
    run, folder = tmp_path / "run", tmp_path / "export"
    words = sft_words("smollm2_cpu.yaml", Path("org/tiny"), pairs_file, run, "--model_revision", "old")
    lora = ["--use_peft", "--lora_target_modules", "q_proj", "v_proj", "--lora_dropout", "0"]
    code = (
        "import json, sys; from distill import export, sft; words = json.loads(sys.argv[1]); "
        "sft.main(words[0]); export.main(words[1])"
    )
    exported = ["--checkpoint", str(run), "--output_dir", str(folder)]
    environment = os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    subprocess.run(
        [sys.executable, "-c", code, json.dumps([[*words, *lora], exported])], env=environment, check=True
    )
    name = "model.embed_tokens.weight"
    written, base = (load_file(path / "model.safetensors")[name] for path in (folder, tiny_llama))
    assert torch.equal(written, base)
    assert json.loads((run / "adapter_config.json").read_text())["revision"] == "old"


def test_an_adapter_is_bound_to_the_weights_that_it_was_trained_on(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The base is trained again in place: neither is the run resumed on it, nor exported with it."""
    from safetensors.torch import load_file, save_file

    base, run = shutil.copytree(tiny_llama, tmp_path / "base"), tmp_path / "run"
    words = sft_words("smollm2_cpu.yaml", base, pairs_file, run, "--use_peft", "--lora_dropout", "0")
    assert sft.main(words) == 0
    copy = shutil.copytree(base, tmp_path / "copy/base")
    weights = load_file(base / "model.safetensors")
    weights["model.layers.0.self_attn.q_proj.weight"] *= 1.1
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    assert "base_weights: " in refusal(sft.main, [*words, "--resume"], capsys)
    words = ["--checkpoint", str(run), "--output_dir", str(tmp_path / "export")]
    assert f"the weights of {base} are not those that {run}" in refusal(export.main, words, capsys)
    assert export.main([*words, "--base", str(copy)]) == 0


def test_a_killed_export_is_cleared_away_by_the_next(lora_run: Path, tmp_path: Path) -> None:
    from condensery.files.run_directory import only_writer

    left, folder = tmp_path / ".export.part", tmp_path / "export"
    (left / "model").mkdir(parents=True)
    (left / "model/model.safetensors").write_text("half of it")
    words = ["--checkpoint", str(lora_run), "--output_dir", str(folder)]
    with only_writer(left), pytest.raises(SystemExit):  # another export is at it
        export.main(words)
    assert (left / "model/model.safetensors").is_file()
    assert export.main(words) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"export"}


def test_an_export_that_is_ended_leaves_no_server_and_no_folder(lora_run: Path, tmp_path: Path) -> None:
    """SIGTERM, as of a job's time limit, while the server starts."""
    python = tmp_path / "python"
    body = "import os, sys, time\nif sys.argv[1] == '-c': sys.exit(0)\n"
    body += f"open({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getpid()}}\\n')\ntime.sleep(300)\n"
    python.write_text(f"#!{sys.executable}\n{body}")
    python.chmod(0o755)
    words = ["--checkpoint", str(lora_run), "--output_dir", str(tmp_path / "out/export")]
    command = [sys.executable, "-m", "distill.export", *words, "--vllm_python", str(python)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not (tmp_path / "pid").is_file() or not (tmp_path / "pid").read_text().endswith("\n"):
        assert process.poll() is None
        time.sleep(0.05)
    process.terminate()
    assert process.wait(60) == 1
    assert not list((tmp_path / "out").iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_what_is_wrong_with_the_server_is_said_before_any_weights_are_read(
    lora_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distill.export_weights.write_and_prove", None)
    words = ["--checkpoint", str(lora_run), "--output_dir", str(tmp_path / "export")]
    message = refusal(export.main, [*words, "--vllm_python", "/no/python"], capsys)
    assert "--vllm_python /no/python: No such file" in message


@pytest.mark.parametrize("kind", ["NONSENSE", None])
def test_an_adapter_of_no_known_kind_is_one_line(
    kind: str | None, lora_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(lora_run, tmp_path / "run")
    config = json.loads((run / "adapter_config.json").read_text())
    (run / "adapter_config.json").write_text(json.dumps(config | {"peft_type": kind}))
    words = ["--checkpoint", str(run), "--output_dir", str(tmp_path / "export")]
    assert f"cannot load the adapter {run}" in refusal(export.main, words, capsys)
