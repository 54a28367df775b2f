# make demo   install, build a failing model, reduce it, show the repro failing
# make test   install, lint, type-check, test; three models of transformers; two real
#             AOTInductor reductions, four of CUDA programs without a GPU, a sweep over
#             sizes, the tutorial, and more
# make test-all   the same with every case of repros/ and of tests/planted/, 500 random
#                 programs (an hour and a half), and every model of tests/models/
# make reference  write the tables of options in docs/reference.md anew
# make test-torch211  the tests of CUDA without a GPU, with torch 2.11 and triton 3.6

PYTHON ?= python3
BIN := .venv/bin
CASE ?= assert_roll_bound

.PHONY: demo test test-all test-torch211 lint reference clean

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt --editable '.[dev]'
	touch $@

# 30 MB to download, 200 MB on disk; nothing of it is needed to run shrinkfx.
.venv/models: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt --editable '.[dev,models]'
	touch $@

demo: .venv/installed
	rm -rf demo
	@echo "the bug of this demo is planted: repros/$(CASE)/planted.py; some minutes"
	$(BIN)/python -W ignore repros/export.py $(CASE) demo/model.pt2
	$(BIN)/shrinkfx demo/model.pt2 --preload repros/$(CASE)/planted.py --out demo/out
	@echo; echo "--- demo/out/repro.py"; cat demo/out/repro.py
	@echo; echo "--- python repro.py, in an empty folder:"
	@mkdir demo/empty && cp demo/out/repro.py demo/empty
	@cd demo/empty && if ../../$(BIN)/python repro.py 2>output.txt; \
		then echo "it passes: something is wrong"; exit 1; fi
	@grep -v '^ ' demo/empty/output.txt | grep -v '^frame' | cut -c1-160 | tail -n 4
	@echo "it fails, as it should"

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy shrinkfx tests

test: .venv/models lint
	$(BIN)/python -m pytest -n 2 --durations 10
	$(BIN)/python -m pytest -n 2 --dist worksteal -m aoti --durations 0 \
		-k "test_run or test_tutorial or test_preloads or peer_refuses or peer_reduces or \
		equal_in_both_builds or by_a_sweep and zero_or_one or \
		of_two_failures or script_of_a_bare_python or \
		weights_beside or minimum and ( \
		assert_roll_bound or compile_lowering_raises or \
		cuda_ima_unmasked_kernel or cuda_ima_lying_operator or \
		cuda_ima_benchmark_only or cuda_assert_bad_index)"

test-all: .venv/models lint
	$(BIN)/python -m pytest -m "not cuda"

# An environment of its own, with gigabytes of CUDA; no GPU is needed.
test-torch211:
	$(PYTHON) -m venv .venv211
	.venv211/bin/python -m pip install --quiet --disable-pip-version-check \
		torch==2.11.0 triton==3.6.0 --editable '.[dev]'
	.venv211/bin/python -m pytest tests/worker/test_interpreter.py \
		tests/worker/test_healthy_models.py tests/worker/test_cuda_repro.py \
		tests/worker/test_devices.py tests/check/test_probing.py

reference: .venv/installed
	$(BIN)/python -m shrinkfx.cli.reference docs/reference.md

clean:
	rm -rf .venv .venv211 demo build *.egg-info .mypy_cache .ruff_cache .pytest_cache
