"""The directory of a training run: what starts it, what may resume it, what stands in it when it is done.

run.json          command, versions, commit, seed, data fingerprints, counts (`finished` once all is saved)
config.yaml       repeats the run: `condensery sft|on-policy --config config.yaml --output_dir elsewhere`
log_history.json  losses and rates by step, for plots
checkpoint-N/     for `--resume`
model.safetensors (or the adapter), tokenizer, chat template: the trained student, for `condensery export`
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from condensery.files.config import fail, resolved_config
from condensery.files.run_directory import (
    describe_run,
    fingerprint,
    only_writer,
    open_run_directory,
    read_run,
    write_json,
)
from condensery.prompt import template_files
from modeling.checkpoints import (
    LESS_STEEP,
    check_finite,
    damaged,
    disk_errors,
    newest_complete_checkpoint,
    remove_torn_checkpoints,
)
from modeling.loading import check_weights, weights_print
from modeling.memory import peak_memory, return_freed_memory
from modeling.memory_plan import GIB
from modeling.preparation import Findings, Prepared
from modeling.progress import quiet_unless_terminal, say

# What may differ between a run and its continuation without changing a single loss.
MAY_DIFFER = {
    *("resume", "output_dir", "logging_steps", "save_steps", "save_total_limit", "disable_tqdm", "report_to"),
    *("dataloader_pin_memory", "dry_run"),
    *(
        "per_device_eval_batch_size",
        "eval_steps",
        "eval_strategy",
        "eval_generate",
        "do_eval",
        "save_strategy",
    ),
}
# What follows from the batch that was asked for and the number of processes, or from the model's folder.
DERIVED = {"gradient_accumulation_steps", "steps_per_generation", "generation_batch_size", "base_weights"}


def run_stage(
    prog: str,
    settings: tuple[Any, Any, Any],
    prepare: Callable[..., tuple[Prepared, Findings]],
    build: Callable[..., Any],
) -> int:
    """Check, plan, train, save. `prepare` checks the settings, `build` makes a trainer of them and what was
    prepared. What is wrong ends the command, before a model is loaded."""
    try:
        quiet_unless_terminal()
        prepared, findings = prepare(*settings)
        findings.stop_if_any()
        say("\n".join(prepared.notes))
        if not settings[0].dry_run:
            train_and_save(partial(build, *settings, prepared), prepared.datasets, *settings)
    except (OSError, ValueError, ImportError) as error:  # ImportError: an optimizer's or kernel's package
        fail(prog, error)
    return 0


def train_and_save(build: Callable[[], Any], datasets: dict[str, Any], *configs: Any) -> None:
    """Train what `build` makes, a trainer, from its newest checkpoint on; look at the held-out rows; save.

    `configs`: our arguments, the training arguments, the model's. Raises ValueError where the directory holds
    another run, and for what goes wrong on the way; the last complete checkpoint stays whole. Raises
    BlockingIOError while another run writes into the directory.
    """
    arguments, training, _ = configs
    output_dir = open_run_directory(training.output_dir, resume=arguments.resume)
    is_first = training.distributed_state.is_main_process
    with only_writer(output_dir) if is_first else nullcontext():
        _train_and_save(output_dir, build, datasets, *configs)


def _train_and_save(
    output_dir: Path, build: Callable[[], Any], datasets: dict[str, Any], *configs: Any
) -> None:
    training = configs[1]
    check_resume(output_dir, *configs)
    if _read_run(output_dir).get("counts", {}).get("finished"):
        say(f"{output_dir} is finished; nothing to resume")
        return
    if training.use_cpu and training.gradient_checkpointing:  # memory counts for more than time
        return_freed_memory()
    try:
        trainer = build()
        checkpoint = start_run(output_dir, *configs)
        with disk_errors(output_dir):
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except Exception as error:
        forget_run(output_dir)
        if "probability tensor contains" in str(error):  # torch, sampling from weights that are none
            raise ValueError(f"the weights are not finite any more; {LESS_STEEP}") from error
        raise
    save_student(trainer, output_dir)
    if "eval" in datasets and training.eval_strategy == "no":  # a file that is given is looked at
        trainer.evaluate()
    finish_run(trainer, output_dir, datasets)
    say(f"memory at its peak: {peak_memory() / GIB:.2f} GiB")


def check_resume(output_dir: Path, *configs: Any) -> None:
    """Raises ValueError if `output_dir` holds a run with other settings or other data."""
    earlier = _read_run(output_dir)
    if not earlier:
        return
    config, inputs = _described(*configs)
    before = earlier["config"]
    before.setdefault("base_weights", config.get("base_weights"))  # runs of earlier versions
    if "train_file" not in before:
        raise ValueError(f"{output_dir} holds a run of {earlier.get('command')}; choose another --output_dir")
    changed = [
        f"{key}: {before.get(key)} -> {config.get(key)}"
        for key in sorted((before.keys() | config.keys()) - MAY_DIFFER)
        if before.get(key) != config.get(key)
    ]
    if earlier["inputs"] != {str(path): fingerprint(path) for path in inputs}:
        changed.append("the data")
    if changed:
        raise ValueError(
            f"{output_dir} cannot be resumed with other settings ({'; '.join(changed)}); take those of "
            "its config.yaml, or another --output_dir"
        )


def start_run(output_dir: Path, *configs: Any) -> Path | None:
    """Describe the run, by its first process; every process gets the checkpoint to go on from."""
    processes = configs[1].distributed_state
    processes.wait_for_everyone()  # all of them have looked for an earlier run
    if processes.is_main_process:
        _describe_start(output_dir, *configs)
    processes.wait_for_everyone()
    return newest_complete_checkpoint(output_dir)


def _describe_start(output_dir: Path, *configs: Any) -> None:
    config, inputs = _described(*configs)
    is_resumed = bool(_read_run(output_dir))
    describe_run(output_dir, config, inputs)
    given = {name: value for name, value in config.items() if name not in DERIVED}
    (output_dir / "config.yaml").write_text(yaml.safe_dump(given, sort_keys=False, allow_unicode=True))
    removed = remove_torn_checkpoints(output_dir)
    checkpoint = newest_complete_checkpoint(output_dir)
    if is_resumed:
        where = f"from {checkpoint}" if checkpoint else "from the start: no complete checkpoint"
        gone = f"; {len(removed)} half-written checkpoint(s) removed" if removed else ""
        say(f"resuming {where}{gone}")


def _described(*configs: Any) -> tuple[dict[str, Any], list[str]]:
    """(all settings in one, data files) as they stand in run.json."""
    config = resolved_config(*configs)
    config.setdefault("seed", configs[1].seed)
    if "max_length" not in config:  # TRL's default; on-policy distillation has a field of ours
        config["max_length"] = configs[1].max_length
    if configs[2].use_peft:  # an adapter is worth nothing on other weights, whatever their folder's name
        config["base_weights"] = weights_print(configs[2].model_name_or_path)
    files = [path for path in (config["train_file"], config["eval_file"]) if path]
    if "prompt_template" in config:  # elsewhere the rows hold their prompts
        files += map(str, template_files(config["prompt_template"]))
    return config, files


def student_weights(training: Any, model_config: Any) -> tuple[str, str | None]:
    """(folder or name, revision) to load the student from: the newest checkpoint's own weights, where it has
    them all.

    The Trainer would load them into the base, and where they are not named as in the model (a mixture's
    experts are saved one by one) leave those of the base in place, with no more than a warning.
    """
    checkpoint = newest_complete_checkpoint(Path(training.output_dir))
    if checkpoint and (checkpoint / "config.json").is_file():
        try:
            check_weights(str(checkpoint))
        except ValueError as error:
            raise ValueError(damaged(checkpoint, error)) from error
        return str(checkpoint), None
    return model_config.model_name_or_path, model_config.model_revision


def save_student(trainer: Any, output_dir: Path) -> None:
    """Check the weights and save them. Every process takes part."""
    check_finite(trainer.model)
    with disk_errors(output_dir):
        trainer.save_model(str(output_dir))


def finish_run(trainer: Any, output_dir: Path, datasets: dict[str, Any]) -> None:
    """Mark the run finished, by its first process."""
    if not trainer.is_world_process_zero():
        return
    history = trainer.state.log_history
    write_json(output_dir / "log_history.json", history)
    run = _read_run(output_dir)
    run["counts"] = {
        **{f"num_{split}_pairs": len(dataset) for split, dataset in datasets.items()},
        "num_steps": trainer.state.global_step,
        "num_tokens": int(trainer.state.num_input_tokens_seen or _last(history, "num_tokens") or 0),
        "train_seconds": _last(history, "train_runtime"),
        "last_loss": _last(history, "loss"),
        "last_eval_loss": _last(history, "eval_loss"),
        "finished": True,
    }
    write_json(output_dir / "run.json", run)
    say(f"saved {output_dir}; next: condensery export --checkpoint {output_dir} --output_dir ...")


def _last(history: list[dict], key: str) -> Any:
    return next((entry[key] for entry in reversed(history) if key in entry), None)


def forget_run(output_dir: Path) -> None:
    """After a failed start without a checkpoint nothing can be resumed, and other settings may be tried."""
    if newest_complete_checkpoint(output_dir) is None:
        for name in ("run.json", "config.yaml"):
            (output_dir / name).unlink(missing_ok=True)
        if output_dir.is_dir() and not any(output_dir.iterdir()):
            output_dir.rmdir()


def _read_run(output_dir: Path) -> dict:
    path = output_dir / "run.json"
    return read_run(path) if path.is_file() else {}
