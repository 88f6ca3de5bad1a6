# make run [PORT=8000]   everything in one terminal; Ctrl-C stops it
# make test [TESTERS=2] [ORDER=seed]   lint, types and the tests that a change can break, in so
#                        many processes
# make test-all [PART=faults]   that, and what is slow by nature; or one part (tests/parts.py)
# make lint              lint and types alone
# make soak [KILLS=1000] [CALLS=20000] [SECONDS=0] [SEED=…]   until there were so many, or so long
# make bench [ROUNDS=5] [BENCH_SECONDS=4]   what a call costs, beside the least that it could
# make pictures          those of README and docs, anew
# make lock              pins every dependency anew

PORT ?= 8000
PY = .venv/bin/python
KILLS ?= 1000
CALLS ?= 20000
SECONDS ?= 0
ROUNDS ?= 5
BENCH_SECONDS ?= 4
TESTERS ?= 2
# `random` is another order of the tests in every run, which prints its seed.
ORDER ?= random

.PHONY: run test test-all environment lint soak bench pictures lock
# Compiled modules are kept: a run starts dozens of processes that import the same ones.
unexport PYTHONDONTWRITEBYTECODE

run:
	@sh config/environment.sh requirements.txt
	@exec $(PY) manage.py up --port "$(PORT)"

test: environment
	@$(PY) -m tests.suite --processes $(TESTERS) --order $(ORDER)

test-all: environment
	@$(PY) -m tests.suite --processes $(TESTERS) --order $(ORDER) $(if $(PART),--part $(PART),--all)

environment:
	@began=$$(date +%s); \
	sh config/environment.sh requirements.txt tests/requirements.txt && \
	sh tests/chromium.sh && sh tests/faults/clock.sh && $(PY) -m tests.stores template && \
	echo "Set-up: $$(($$(date +%s) - began)) s"

lint:
	@sh config/environment.sh requirements.txt tests/requirements.txt
	@$(PY) -m tests.suite --lint

soak:
	@sh config/environment.sh requirements.txt tests/requirements.txt
	@sh tests/faults/clock.sh
	$(PY) -m tests.faults.soak --kills "$(KILLS)" --calls "$(CALLS)" --seconds "$(SECONDS)" \
		--disk-mib 3072 $(if $(SEED),--seed "$(SEED)")
	$(PY) -m tests.faults.soak --faults 50 --least 50 --pause 4 --kinds "kill worker" --targets
	$(PY) -m tests.faults.soak --faults 50 --least 50 --pause 4 --kinds "kill web" --targets
	$(PY) -m tests.faults.soak --faults 50 --least 50 --pause 4 \
		--kinds "redis wiped" "redis flushed" --targets
	$(PY) -m tests.faults.soak --faults 50 --least 50 --pause 10 --kinds "postgres killed" --targets
	SELFATTACK=200000 $(PY) -m pytest -q -s --timeout 0 tests/audit/verification/test_selfattack.py

bench:
	@sh config/environment.sh requirements.txt tests/requirements.txt
	@$(PY) -m tests.benchmarks.pipeline --rounds "$(ROUNDS)" --seconds "$(BENCH_SECONDS)"

pictures:
	@sh config/environment.sh requirements.txt tests/requirements.txt
	@sh tests/chromium.sh
	$(PY) -m pytest -q -o python_files=pictures.py tests/browser/pictures.py

lock:
	@sh config/environment.sh requirements.txt tests/requirements.txt
	@sh config/lock.sh
