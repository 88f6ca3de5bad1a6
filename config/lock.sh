#!/bin/sh
# Pins every dependency with its hashes. Runs on the oldest Python we support, so that what only
# that one needs is in; the hashes are those of all files of a release, so newer ones install too.

set -eu
python=.venv/bin/python
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' ||
    echo "Locking with $("$python" --version); Python 3.12 would be better: see config/lock.sh." >&2

for place in . tests; do
    CUSTOM_COMPILE_COMMAND="make lock" "$python" -m piptools compile --quiet --upgrade \
        --generate-hashes --strip-extras --allow-unsafe \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
        --output-file "$place/requirements.txt" "$place/requirements.in"
done
