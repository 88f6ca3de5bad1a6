# make run [PORT=8000]   everything in one terminal; Ctrl-C stops it
# make test [TESTERS=2]  what tests need, then all checks and tests, in so many processes (0: in one)
# make lint              the checks alone
# make soak [KILLS=1000] [CALLS=20000] [SECONDS=0] [SEED=…]   until there were so many, or so long
# make pictures          those of README and docs, anew
# make lock              pins every dependency anew

PORT ?= 8000
PY = .venv/bin/python
KILLS ?= 1000
CALLS ?= 20000
SECONDS ?= 0
TESTERS ?= 2

.PHONY: run test lint soak pictures lock

run:
	@sh config/environment.sh requirements.txt
	@exec $(PY) manage.py up --port "$(PORT)"

test: lint
	@sh tests/chromium.sh
	@sh tests/runtimes.sh
	@sh tests/upstreams.sh
	@sh tests/frameworks.sh
	@sh tests/faults/clock.sh
	$(PY) -m pytest -n $(TESTERS) --dist loadfile

lint:
	@sh config/environment.sh requirements.txt tests/requirements.txt
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -c 'from importlinter.cli import lint_imports_command as main; main()'
	$(PY) -m mypy .

soak:
	@sh config/environment.sh requirements.txt tests/requirements.txt
	@sh tests/faults/clock.sh
	$(PY) -m tests.faults.soak --kills "$(KILLS)" --calls "$(CALLS)" --seconds "$(SECONDS)" \
		--disk-mib 3072 $(if $(SEED),--seed "$(SEED)")
	$(PY) -m tests.faults.soak --faults 50 --least 50 --pause 4 --kinds "kill worker" --targets
	$(PY) -m tests.faults.soak --faults 50 --least 50 --pause 4 \
		--kinds "redis wiped" "redis flushed" --targets
	$(PY) -m tests.faults.soak --faults 50 --least 50 --pause 10 --kinds "postgres killed" --targets
	SELFATTACK=200000 $(PY) -m pytest -q -s --timeout 0 tests/audit/test_selfattack.py

pictures:
	@sh config/environment.sh requirements.txt tests/requirements.txt
	@sh tests/chromium.sh
	$(PY) -m pytest -q -o python_files=pictures.py tests/browser/pictures.py

lock:
	@sh config/environment.sh requirements.txt tests/requirements.txt
	@sh config/lock.sh
