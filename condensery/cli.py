"""`condensery <step> ...`: one command, its subcommands named after the steps of the path.

Each step is imported when it is called, so that `condensery --help` answers at once.
"""

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

STEPS = {
    "web": ("data_synthesis.generate_web", "generate an offline web whose truth is known, with questions"),
    "record": ("data_synthesis.record", "run explorer and teacher; record trajectories and summaries"),
    "judge": ("evaluation.judge", "judge the answers of recorded runs, and compare the runs"),
    "capture": ("data_synthesis.capture", "record an agent as it runs, from in front of its endpoint"),
    "import": ("data_synthesis.import_logs", "read agent logs, cut them into compactions, summarize these"),
    "summarize": ("data_synthesis.summarize_runs", "ask a teacher for more summaries of recorded histories"),
    "pairs": ("data_synthesis.pairs", "build, check and split (conversation, summary) pairs"),
    "instances": ("reconstruct.instances", "build training contexts for the reconstruction reward"),
    "preflight": ("distill.preflight", "check a fine-tuning run, rows and all, before training"),
    "sft": ("distill.sft", "fine-tune a summarizer on pairs"),
    "on-policy": ("distill.on_policy", "let a teacher score every token of the summaries a student writes"),
    "grpo": ("reconstruct.grpo", "train a summarizer without a teacher, by what its summaries restore"),
    "audit-reward": ("reconstruct.audit", "ask rewards whether they prefer honest summaries to damaged ones"),
    "export": ("distill.export", "write a folder that stands alone, and prove it equal to what was trained"),
    "serve": ("distill.serve", "serve an export with vLLM, ready for ReSum agents"),
    "evaluate": ("evaluation.compare", "compare summarizers on held-out compactions"),
}  # fmt: skip

USAGE = """usage: condensery <step> [--config FILE.yaml] [--field value ...]

Train the model that writes an agent's memory. The steps, in the order of the data:

{steps}

`condensery <step> --help` shows the fields of a step with an example; `condensery --version` the version.
"""


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    usage = USAGE.format(steps="\n".join(f"  {name:12} {text}" for name, (_, text) in STEPS.items()))
    if not words or words[0] in ("-h", "--help"):
        print(usage, file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    if words[0] == "--version":
        from condensery import __version__

        print(f"condensery {__version__}")
        return 0
    if words[0] not in STEPS:
        print(f"condensery: error: no step {words[0]!r}; there are {', '.join(STEPS)}", file=sys.stderr)
        return 2
    module = _import_step(words[0])
    return module.main(words[1:]) or 0


def _import_step(step: str) -> ModuleType:
    """The step's module, with its `main(argv)`; a missing package is answered with what to install."""
    try:
        return importlib.import_module(STEPS[step][0])
    except ModuleNotFoundError as error:
        print(
            f"condensery {step}: error: no package {error.name!r}; pip install 'condensery[train]'",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    sys.exit(main())
