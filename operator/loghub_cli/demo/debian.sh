#!/bin/sh
# debian.sh PACKAGE...  installs Debian packages for the demo and the tests. It ends with 1 and one line that
# says why where that is not possible: not root, not Debian, or declined by LOGHUB_INSTALL=no.
# debian.sh --check     only says whether it may install.
set -u

refuse() {
    echo "$1" >&2
    exit 1
}

[ "${LOGHUB_INSTALL:-}" = no ] && refuse "LOGHUB_INSTALL=no declines to install packages"
command -v apt-get >/dev/null 2>&1 || refuse "there is no apt-get to install packages with"
[ "$(id -u)" = 0 ] || refuse "only root can install packages"
[ "$1" = --check ] && exit 0

install() {
    said=$(DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
        -o DPkg::Lock::Timeout=600 "$@" 2>&1)
}

echo "installing $* (apt-get; LOGHUB_INSTALL=no declines)" >&2
# The package lists of a new machine are empty, those of an old one name files that are gone.
install "$@" || { said=$(apt-get update -q 2>&1) && install "$@"; } ||
    refuse "apt-get could not install $*: $(echo "$said" | tail -n 1)"
