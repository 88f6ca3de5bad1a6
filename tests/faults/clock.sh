#!/bin/sh
# tests/faults turns the clocks of our processes with a small library that it compiles.

command -v cc >/dev/null && exit 0
skip() {
    printf '\n*** NO CLOCK WILL JUMP IN THE FAULT TESTS: %s ***\n\n' "$1" >&2
    exit 0
}
[ "$(id -u)" = 0 ] || skip "there is no C compiler, and only root can install one"
command -v apt-get >/dev/null || skip "there is neither a C compiler nor apt-get"
echo "Installing gcc ..."
apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null ||
    skip "apt-get could not install gcc"
