# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A tour along the path of the data
# From one question to a fine-tuned summarizer, on a sample small enough for a laptop's CPU. Open it with
# `jupytext --to ipynb notebooks/tour.py`. The same steps at full size: `make demo`.

# %% tags=["parameters"]
import os
import tempfile
from pathlib import Path

SMOKE = os.environ.get("SMOKE") == "1"  # the tests set it: two optimizer steps instead of twenty
MODEL = os.environ.get("TOUR_MODEL", "smollm2-135m-instruct")
NUM_QUESTIONS, MAX_STEPS, MAX_NEW_TOKENS = (8, 2, 24) if SMOKE else (60, 20, 96)
folder = Path(tempfile.mkdtemp(prefix="condensery-tour-"))

# %% [markdown]
# ## 1. A small web whose truth is known
# Pages state facts, and some mislead: outdated figures, near-equal numbers, contradictions, negations.

# %%
from data_synthesis.generate_web import WebConfig, generate_web
from data_synthesis.web import Web

pages, questions = generate_web(WebConfig(Path("-"), num_questions=NUM_QUESTIONS, num_entities=120, seed=7))
web = Web(pages, "en")
print(questions[0].question, questions[0].constraints, "->", questions[0].answer)

# %% [markdown]
# ## 2. An agent researches it
# When its window fills, a teacher writes a summary, and the agent goes on from (question, summary), as in
# ReSum.

# %%
from data_synthesis.agent import Agent, Limits
from data_synthesis.rollout import rollout
from data_synthesis.scripted import OracleTeacher, scripted_explorer
from data_synthesis.web_tools import WebTools

agent = Agent(
    scripted_explorer, WebTools(web), OracleTeacher(questions), author="oracle", prompt_template="compact_v1",
    limits=Limits(window_tokens=800, reserve_tokens=0), facts_of=web.facts_of,
)  # fmt: skip
trajectories = [(await rollout(agent, q, trajectory_id=q.id)).trajectory for q in questions]
print([(run.termination, len(run.messages), len(run.cuts)) for run in trajectories[:5]])

# %% [markdown]
# ## 3. A compaction is a request
# Everything that trains, rewards or measures a summarizer starts from these.

# %%
from condensery.compaction import compactions_of
from condensery.prompt import render_prompt

run = next(run for run in trajectories if run.cuts)
compaction = compactions_of(run)[0]
print(render_prompt(compaction, "compact_v1")[0]["content"])

# %% [markdown]
# ## 4. A summary is accepted, or it is a typed failure
# Never both, and a failure never becomes text.

# %%
from condensery.summary import parse_summary

print(parse_summary(run.cuts[0].raw))
print(parse_summary("<think>Let me see"), parse_summary("I found nothing."))

# %% [markdown]
# ## 5. What a summary kept, and what it made up
# A fact is kept when its value stands with its subject.

# %%
from condensery.facts import recall, unsupported
from condensery.prompt import history_text

text = run.cuts[0].summary
print("kept:", recall(text, compaction.facts))
subjects = [fact.subject for fact in compaction.facts]
invented = text + "\n- Harrow Bridge: length 7,777 m"
print("unsupported:", unsupported(invented, history_text(compaction), subjects))

# %% [markdown]
# ## 6. Pairs
# One row per accepted summary, in TRL's conversational shape; whatever makes no row has a typed reason.

# %%
from condensery.files.jsonl import write_jsonl
from data_synthesis.pair import Pair, build_pair

moments = [(c, cut) for r in trajectories for c, cut in zip(compactions_of(r), r.cuts)]
built = [build_pair(c, cut, "compact_v1", None) for c, cut in moments]
pairs = [row for row in built if isinstance(row, Pair)]
write_jsonl(folder / "train.jsonl", (pair.model_dump() for pair in pairs))
print(len(pairs), "pairs;", len(built) - len(pairs), "dropped")

# %% [markdown]
# ## 7. What is supervised
# Exactly the completion and its stop token, checked for every row with the student's own chat template.

# %%
from modeling.chat_template import render_pair, supervised_text
from modeling.loading import load_tokenizer
from modeling.row_checks import check_rows

tokenizer = load_tokenizer(MODEL)
checked = check_rows([(pair.id, pair.model_dump()) for pair in pairs], tokenizer, max_length=1536)
print(*checked.complaints(), checked.summary(), sep="\n")
row = pairs[0].model_dump()
print(supervised_text(tokenizer, render_pair(tokenizer, row["prompt"], row["completion"])))

# %% [markdown]
# ## 8. Fine-tuning
# The same command as for Qwen3-30B-A3B, with another config file.

# %%
from distill.sft import main as sft

config = Path("configs/sft/smollm2_cpu.yaml")
config = config if config.exists() else Path("..") / config
sft(["--config", str(config), "--train_file", f"{folder}/train.jsonl", "--output_dir", f"{folder}/sft",
     "--max_steps", str(MAX_STEPS), "--global_batch_size", "2", "--per_device_train_batch_size", "2",
     "--max_length", "1536"])  # fmt: skip

# %% [markdown]
# ## 9. Before and after
# On a web that shares no entity with the training one.

# %%
from dataclasses import replace

from condensery.summary import Summary
from evaluation.aggregate import aggregate
from evaluation.scoring import score_summary
from modeling.generation import generate
from modeling.loading import load_model

held_pages, held_questions = generate_web(
    WebConfig(Path("-"), num_questions=4, num_entities=120, part="held_out")
)
held_web = Web(held_pages, "en")
held_agent = replace(
    agent, tools=WebTools(held_web), summarizer=OracleTeacher(held_questions), facts_of=held_web.facts_of
)
held_runs = [(await rollout(held_agent, q)).trajectory for q in held_questions]
held_out = [c for r in held_runs for c in compactions_of(r)][: 2 if SMOKE else 8]
figures = {}
for name, place in (("base", MODEL), ("trained", str(folder / "sft"))):
    prompts = [render_prompt(c, "compact_v1") for c in held_out]
    answers = generate(load_model(place, "auto"), tokenizer, prompts, max_new_tokens=MAX_NEW_TOKENS)
    summaries = [Summary(text=answer.text) for answer in answers]  # scored leniently, on the raw text
    figures[name] = aggregate(
        [score_summary(s, c, "en", tokenizer, None) for s, c in zip(summaries, held_out)]
    )  # fmt: skip

# %% [markdown]
# ## 10. The figures
# With so few steps and rows, mostly intervals. `make demo` gives the real ones.

# %%
SHOWN = ("must_keep_recall", "must_keep_recall_ci", "distractor_facts", "tokens")
for name, row in figures.items():
    print(name, {key: row[key] for key in SHOWN})
