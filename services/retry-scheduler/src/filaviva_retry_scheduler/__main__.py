"""The retry-scheduler process."""

from filaviva import service
from filaviva_retry_scheduler.assembly import schedule


def main() -> None:
    """Run the retry-scheduler service."""
    service.run("retry-scheduler", schedule)


if __name__ == "__main__":
    main()
