#!/bin/sh
# Servers of others, and the official conformance suite of MCP: tests drive the real ones.

place=.venv/upstreams
skip() {
    printf '\n*** TESTS WITH REAL MCP SERVERS WILL BE SKIPPED: %s ***\n\n' "$1" >&2
    rm -f "$place/installed"
    exit 0
}
wanted=$(cat tests/upstreams/requirements.txt tests/upstreams/package.json)
[ "$(cat "$place/installed" 2>/dev/null)" = "$wanted" ] && exit 0
command -v npm >/dev/null || skip "there is no npm"
echo "Installing the MCP servers of others ..."
mkdir -p "$place/node" && rm -f "$place/installed"
[ -x "$place/python/bin/python" ] || .venv/bin/python -m venv "$place/python" ||
    skip "their virtual environment could not be made"
"$place"/python/bin/python -m pip install --quiet --quiet --disable-pip-version-check \
    --only-binary :all: -r tests/upstreams/requirements.txt || skip "pip could not install them"
cp tests/upstreams/package.json "$place/node/"
(cd "$place/node" && npm install --silent --no-audit --no-fund --ignore-scripts >/dev/null 2>&1) ||
    skip "npm could not install them"
printf '%s\n' "$wanted" >"$place/installed"
