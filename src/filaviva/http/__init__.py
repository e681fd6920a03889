"""What every HTTP service shares: who asks, what may come in, how errors look, how it ends."""

from filaviva.http.application import Application
from filaviva.http.auth import allowed
from filaviva.http.bodies import BodyLimits, json_body, optional_json_body
from filaviva.http.problems import documented, problem
from filaviva.http.rendering import ExactResponse
from filaviva.http.server import HttpServer

__all__ = [
    "Application",
    "BodyLimits",
    "ExactResponse",
    "HttpServer",
    "allowed",
    "documented",
    "json_body",
    "optional_json_body",
    "problem",
]
