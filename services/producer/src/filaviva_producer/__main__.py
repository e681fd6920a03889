"""The producer process."""

from filaviva import service
from filaviva_producer.assembly import produce


def main() -> None:
    """Run the producer service."""
    service.run("producer", produce)


if __name__ == "__main__":
    main()
