"""The jobs that we do ourselves, beside those of any app: callbacks and drills."""

from filaviva.app import App
from filaviva.callbacks import serving as callbacks
from filaviva.drill import serving as drill
from filaviva.settings import CallbackSettings, DrillSettings


def built_in() -> App:
    """Give the app that their contracts are published for, whatever a worker serves."""
    app = App("filaviva")
    app.add(callbacks.handler(CallbackSettings()))
    app.add(drill.handler(DrillSettings()))
    return app


def with_built_in(app: App, called: CallbackSettings, drilled: DrillSettings) -> App:
    """Give an app with our handlers beside its own: those that are set up here."""
    if called.secret is not None:
        app = app.widened(callbacks.handler(called))
    if drilled.provider_url:
        app = app.widened(drill.handler(drilled))
    return app
