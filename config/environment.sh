#!/bin/sh
# Makes .venv with a Python that is new enough and installs the pinned requirements named as
# arguments. Does nothing, in a few milliseconds, when that has been done already.

set -eu
umask 022 # another user must be able to read the interpreter's packages
venv=.venv
fits='import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 12))'

candidates() {
    for version in 3.13 3.12 3.14 3.15 3; do
        command -v "python$version" || :
    done
    pyenv_root=${PYENV_ROOT:-$(pyenv root 2>/dev/null || echo "${HOME:-}/.pyenv")}
    for version in 3.13 3.12 3.14 3.15; do
        ls -d "$pyenv_root"/versions/"$version".*/bin/python 2>/dev/null || :
    done
}

# The first candidate that runs and fits. A shim of pyenv may be there and not run.
find_python() {
    candidates | while IFS= read -r python; do
        if "$python" -c "$fits" </dev/null >/dev/null 2>&1; then
            printf '%s\n' "$python"
            break
        fi
    done
}

found_instead() {
    candidates | while IFS= read -r python; do
        "$python" -c '
import importlib.util, sys
lacks = "" if importlib.util.find_spec("ensurepip") else " without venv (install python3-venv)"
print(".".join(map(str, sys.version_info[:3])) + lacks + ": " + sys.argv[1])' \
            "$python" </dev/null 2>/dev/null || :
    done | sort -u | paste -s -d , -
}

refuse() {
    printf '%s\n' "$1" >&2
    exit 1
}

make_venv() {
    python=$(find_python)
    if [ -z "$python" ]; then
        found=$(found_instead)
        refuse "Toolcrib needs Python 3.12 or newer with venv; found ${found:-no Python at all}."
    fi
    "$python" -m venv --clear "$venv" || refuse "The virtual environment $venv could not be made."
}

free_kilobytes() {
    df -Pk . | awk 'NR == 2 {print $4}'
}

install() {
    [ "$(free_kilobytes)" -ge 600000 ] ||
        refuse "Only $(($(free_kilobytes) / 1024)) MB are free here and the packages need 600 MB."
    echo "Installing $1 ..."
    "$venv"/bin/python -m pip install --quiet --quiet --disable-pip-version-check \
        --only-binary :all: --require-hashes -r "$1" ||
        refuse "The packages of $1 could not be installed; pip says above why."
}

# A copy of what was installed is the stamp: it needs no clock and no hash program.
stamp() {
    printf '%s/installed-%s' "$venv" "$(printf '%s' "$1" | tr / -)"
}

"$venv"/bin/python -c "$fits" 2>/dev/null || make_venv
for requirements; do
    cmp -s "$requirements" "$(stamp "$requirements")" && continue
    "$venv"/bin/python -m pip --version >/dev/null 2>&1 || make_venv
    install "$requirements"
    cp "$requirements" "$(stamp "$requirements")"
done
