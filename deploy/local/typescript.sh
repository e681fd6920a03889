#!/usr/bin/env bash
# Builds examples/typescript, and with `parser` installs @asyncapi/parser for the tests that use it.
# Packages are pinned with their hashes; no index is named.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v npm >/dev/null; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "typescript: no npm found: run \`sudo apt-get install nodejs npm\`" >&2
        exit 1
    fi
    echo "typescript: installing nodejs and npm" >&2
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 nodejs npm >/dev/null
fi

# Some packages run programs of their own when they are installed; none of ours needs that.
install() {
    local stamp=$1/node_modules/.installed
    [ "$stamp" -nt "$1/package-lock.json" ] && return
    npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund --loglevel=error >&2
    touch "$stamp"
}

exec 9>"${TMPDIR:-/tmp}/filaviva-typescript-$(id -u).lock"
flock 9
if [ "${1:-}" = parser ]; then
    install tests/asyncapi
else
    install examples/typescript
    (cd examples/typescript && npm run --silent build)
fi
