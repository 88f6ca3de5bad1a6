#!/bin/sh
# tests/sandbox drives Debian's own OCI runtimes: the container backend takes what is on PATH.

command -v runc >/dev/null && command -v runsc >/dev/null && exit 0
skip() {
    printf '\n*** TESTS OF THE CONTAINER BACKEND WILL BE SKIPPED: %s ***\n\n' "$1" >&2
    exit 0
}
[ "$(id -u)" = 0 ] || skip "runc or runsc is missing, and only root can install it"
command -v apt-get >/dev/null || skip "runc or runsc is missing, and there is no apt-get"
echo "Installing runc and runsc ..."
apt-get update -qq && apt-get install -y -qq --no-install-recommends runc runsc >/dev/null ||
    skip "apt-get could not install runc and runsc"
