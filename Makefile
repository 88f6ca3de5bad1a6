# make run [PORT=8000]   everything in one terminal; Ctrl-C stops it
# make test              what tests need, then all checks and tests
# make lint              the checks alone
# make lock              pins every dependency anew

PORT ?= 8000
PY = .venv/bin/python

.PHONY: run test lint lock

run:
	@sh config/environment.sh requirements.txt
	@exec $(PY) manage.py up --port "$(PORT)"

test: lint
	@sh tests/chromium.sh
	@sh tests/runtimes.sh
	$(PY) -m pytest

lint:
	@sh config/environment.sh requirements.txt tests/requirements.txt
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -c 'from importlinter.cli import lint_imports_command as main; main()'
	$(PY) -m mypy .

lock:
	@sh config/environment.sh requirements.txt tests/requirements.txt
	@sh config/lock.sh
