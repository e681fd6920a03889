"""Install what the embedded stack needs on this machine: `python -m filaviva.dev.prepare`."""

import os
import sys

from filaviva.dev import broker43, distribution, postgres
from filaviva.dev.packages import Missing, require


def main() -> int:
    """Prepare PostgreSQL, both RabbitMQ versions and Prometheus.

    A missing 4.3 or Prometheus is an error in CI only.
    """
    try:
        postgres.binaries()
        distribution.system_package()
    except Missing as missing:
        return _refused(missing)
    try:
        require("prometheus", present="promtool")
        require("prometheus-alertmanager", present="prometheus-alertmanager")
    except Missing as missing:  # only the tests of the rules and dashboards ask for it
        if os.environ.get("CI"):
            return _refused(missing)
    system = distribution.system_version() or ""
    try:
        if not system.startswith(broker43.VERSION):
            broker43.debian_root()
    except Missing as missing:
        return _refused(missing) if os.environ.get("CI") else 0
    return 0


def _refused(missing: Missing) -> int:
    sys.stderr.write(f"{missing}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
