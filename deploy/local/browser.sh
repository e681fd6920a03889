#!/usr/bin/env bash
# Installs the Chromium that the tests marked `browser` drive. `make test-all` calls it.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null && exit 0
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "browser: no Chromium found: run \`sudo apt-get install chromium\`" >&2
    exit 1
fi
echo "browser: installing chromium" >&2
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
    -o DPkg::Lock::Timeout=300 chromium >/dev/null
