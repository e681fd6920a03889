#!/usr/bin/env bash
# Makes .venv with everything installed from pinned, hashed requirements. `make setup` calls it.
set -euo pipefail
cd "$(dirname "$0")/../.."

python=$(command -v "${PYTHON:-python3}") || { echo "setup: python3 is not installed" >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "setup: found $("$python" --version), expected Python 3.11 or newer (choose with PYTHON=)" >&2
    exit 1
}

make_venv() { "$python" -m venv --clear .venv >/dev/null 2>&1; }

# Debian's python3 has no ensurepip until its package python3-venv is there.
make_venv_with_package() {
    make_venv && return
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "setup: \`python3 -m venv\` fails: run \`sudo apt-get install python3-venv\`, or install uv" >&2
        exit 1
    fi
    echo "setup: installing python3-venv" >&2
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 python3-venv >/dev/null
    make_venv
}

if uv --version >/dev/null 2>&1; then
    .venv/bin/python --version >/dev/null 2>&1 || uv venv --quiet --clear --python "$python" .venv
    install() { uv pip install --quiet --python .venv/bin/python "$@"; }
else
    .venv/bin/python -m pip --version >/dev/null 2>&1 || make_venv_with_package
    install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check \
        --root-user-action=ignore "$@"; }
fi

ours=()
for member in . contracts services/* examples/invoices; do
    ours+=(-e "$member")
done
install --require-hashes -r requirements/all.txt
install --no-deps --no-build-isolation "${ours[@]}"

# Compiled once and not at every start of a process, also where Python may not write that down itself.
# Some packages carry files for other Pythons that this one cannot compile: that stops nothing.
.venv/bin/python -m compileall -q -j 0 .venv/lib src contracts/src services/*/src examples/*/src >/dev/null || true
