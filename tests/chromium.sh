#!/bin/sh
# tests/browser drives Debian's own Chromium, because it needs no download beside the packages.

[ -x /usr/bin/chromium ] && exit 0
skip() {
    printf '\n*** BROWSER TESTS WILL BE SKIPPED: %s ***\n\n' "$1" >&2
    exit 0
}
[ "$(id -u)" = 0 ] || skip "no /usr/bin/chromium, and only root can install it"
command -v apt-get >/dev/null || skip "no /usr/bin/chromium, and no apt-get to install it"
echo "Installing chromium ..."
apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null ||
    skip "apt-get could not install chromium"
