# Two commands do all on a new machine with Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# On a machine without a GPU, this release of torch has a CPU build; where a GPU is found, pip chooses.
TORCH ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1 && echo torch || echo torch==2.13.0)

.PHONY: demo demo-train test lint bench clean

demo: $(VENV)/.demo
	$(BIN)/castgym demo

# Minutes on two cores: a teacher's episodes, a tiny model, its fine-tuning in two processes, and its score on held-out cases.
TRAIN := runs/train
demo-train: $(VENV)/.train
	$(BIN)/castgym collect --out $(TRAIN)/teacher --limit 1000
	$(BIN)/castgym select $(TRAIN)/teacher --out $(TRAIN)/selected
	test -d $(TRAIN)/tiny || $(BIN)/castgym tiny-model $(TRAIN)/teacher/episodes.jsonl --out $(TRAIN)/tiny
	test -d $(TRAIN)/sft/model || OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/torchrun --nproc_per_node 2 \
		training/sft.py configs/sft_tiny.yaml
	$(BIN)/castgym evaluate --model $(TRAIN)/sft/model --temperature 0 --max-tokens 160 --prompt-style compact \
		--answer-form plan -p castgym.agents.teachers:DecisionTeacher --out $(TRAIN)/runs
	$(BIN)/castgym evaluate -p hour_of_day_empirical --out $(TRAIN)/runs
	$(BIN)/castgym report $(TRAIN)/runs/* --out $(TRAIN)/report

test: $(VENV)/.dev
	$(BIN)/pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p castgym
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) runs dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), f"castgym needs Python 3.11 or newer, found {sys.version}"'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[forecast]'
	touch $@

$(VENV)/.train: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[forecast,train]'
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[forecast,train,serve,dev]'
	touch $@
