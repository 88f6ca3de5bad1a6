#!/bin/sh
# Frameworks of others: tests/examples runs an agent of each whose only toolbox is Toolcrib.

place=.venv/frameworks
skip() {
    printf '\n*** TESTS WITH AGENT FRAMEWORKS WILL BE SKIPPED: %s ***\n\n' "$1" >&2
    rm -f "$place/installed"
    exit 0
}
cmp -s tests/frameworks/requirements.txt "$place/installed" && exit 0
echo "Installing the agent frameworks of others ..."
mkdir -p "$place" && rm -f "$place/installed"
[ -x "$place/bin/python" ] || .venv/bin/python -m venv "$place" ||
    skip "their virtual environment could not be made"
"$place"/bin/python -m pip install --quiet --quiet --disable-pip-version-check \
    --only-binary :all: -r tests/frameworks/requirements.txt || skip "pip could not install them"
cp tests/frameworks/requirements.txt "$place/installed"
