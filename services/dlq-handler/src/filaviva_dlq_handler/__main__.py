"""The dlq-handler process."""

from filaviva import service
from filaviva_dlq_handler.assembly import look_after


def main() -> None:
    """Run the dlq-handler service."""
    service.run("dlq-handler", look_after)


if __name__ == "__main__":
    main()
