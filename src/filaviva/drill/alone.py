"""An app without any handler: its workers serve drills alone."""

from filaviva.app import App

app = App("drill")
