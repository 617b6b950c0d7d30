#!/bin/sh
# Makes sure that there is a cargo new enough to build xtask; xtask installs the rest.
# A cargo from rustup is taken as it is; a Debian machine without one gets Debian's own.
set -eu

PATH="${HOME:-/root}/.cargo/bin:$PATH"
needed=91 # the minor part of rust-version in Cargo.toml

minor() {
    cargo --version 2>/dev/null | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p'
}

# Cargo links what it builds with the C compiler, rustup's too.
packages=
have=$(minor)
if [ "${have:-0}" -lt "$needed" ]; then
    case $(command -v cargo || true) in
    */.cargo/bin/*)
        if command -v rustup >/dev/null; then
            echo "setup: cargo 1.${have:-?} is too old, wireboot needs 1.$needed: run 'rustup update stable' and come back" >&2
            exit 1
        fi ;;
    esac
    packages="cargo-web rustc-web"
fi
command -v cc >/dev/null || packages="$packages gcc libc6-dev"
[ -n "$packages" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "setup: needs cargo 1.$needed or newer and a C compiler; install them (https://rustup.rs) and come back" >&2
    exit 1
fi
root=
if [ "$(id -u)" != 0 ]; then
    root=sudo
    command -v sudo >/dev/null || { echo "setup: cannot install $packages: needs root, or sudo" >&2; exit 1; }
fi
echo "setup: installing $packages"
# One source of several that fails does not matter if the others have what is needed.
$root apt-get update -q || echo "setup: apt-get update has failed; trying with what apt knows" >&2
# shellcheck disable=SC2086 # a list of words
$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 \
    $packages ca-certificates

have=$(minor)
if [ "${have:-0}" -lt "$needed" ]; then
    echo "setup: the newest cargo that apt has is 1.${have:-?}, wireboot needs 1.$needed; enable bookworm-security or use https://rustup.rs" >&2
    exit 1
fi
