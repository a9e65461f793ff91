# `make gpu-check`: training and export on one GPU (benchmarks/gpu_check.py). Included by the Makefile.
#
# With a network and a GPU: make setup TORCH=torch; make gpu-check
# A machine without a network that holds torch and transformers: `make gpu-wheels` where there is one, take the
# repository there with build/gpu-wheels in it, and `make gpu-check`. The wheels are for the Python here; for another:
# make gpu-wheels GPU_PYTHON_VERSION=3.12
GPU_WHEELS := build/gpu-wheels
GPU_VENV ?= .venv-gpu
GPU_PYTHON ?= python3
GPU_PYTHON_VERSION ?= $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# What such machines lack. pyarrow and pandas, which datasets needs, are there as a rule; with them it is 71 MB:
# make gpu-wheels GPU_MORE="pyarrow pandas" GPU_MAX_MB=80
GPU_LACKS ?= trl datasets peft accelerate dill multiprocess xxhash psutil
GPU_MORE ?=
GPU_MAX_MB ?= 60
GPU_DOWNLOAD = $(PYTHON) -m pip download --quiet --disable-pip-version-check --dest $(GPU_WHEELS) \
  --only-binary=:all: --python-version $(GPU_PYTHON_VERSION) --implementation cp \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64

.PHONY: gpu-wheels gpu-check

gpu-wheels:
	rm -rf $(GPU_WHEELS)
	$(GPU_DOWNLOAD) --no-deps $(GPU_LACKS) $(GPU_MORE)
	$(GPU_DOWNLOAD) pydantic
	@size=$$(du --apparent-size -sm $(GPU_WHEELS) | cut -f1); echo "$(GPU_WHEELS): $$size MB"; \
	  test $$size -le $(GPU_MAX_MB) || { echo "more than $(GPU_MAX_MB) MB" >&2; rm -rf $(GPU_WHEELS); exit 1; }

# The Python that holds torch may be a virtual environment itself, which --system-site-packages does not reach:
# its folder is named in a .pth file. It may also lack ensurepip, so that its own pip installs into the new one.
$(GPU_VENV)/ready: $(wildcard $(GPU_WHEELS)/*.whl)
	$(GPU_PYTHON) -m venv --clear --system-site-packages --without-pip $(GPU_VENV)
	$(GPU_PYTHON) -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])' \
	  > $$($(GPU_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside_torch.pth
	$(GPU_PYTHON) -m pip --python $(GPU_VENV)/bin/python install --quiet --disable-pip-version-check --no-index \
	  --find-links $(GPU_WHEELS) $(GPU_LACKS) pydantic
	@touch $@

gpu-check: $(if $(wildcard $(GPU_WHEELS)),$(GPU_VENV),$(VENV))/ready
	PYTHONPATH=. $(dir $<)bin/python benchmarks/gpu_check.py $(GPU_CHECK_ARGS)
