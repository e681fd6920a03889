"""`python -m filaviva.cli`: the same as `filaviva`."""

from filaviva.cli import main

if __name__ == "__main__":
    main()
