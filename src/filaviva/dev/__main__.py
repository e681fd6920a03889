"""`python -m filaviva.dev`: the same as `filaviva dev`."""

from filaviva.dev.command import app

if __name__ == "__main__":
    app(prog_name="filaviva dev")
