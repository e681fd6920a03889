"""Loopback HTTP, as far as the stack needs it."""

import base64
import json
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from filaviva.dev.ports import LOOPBACK


def answers_ok(port: int, path: str, *, login: str | None = None) -> bool:
    """Tell whether a GET is answered with 200."""
    headers = {} if login is None else {"Authorization": _basic(login)}
    connection = HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def call(base: str, method: str, path: str, body: object = None) -> Any:
    """Call a JSON API whose user and password are in its URL; OSError when it refuses."""
    parts = urlsplit(base)
    headers = {
        "Authorization": _basic(f"{parts.username}:{parts.password}"),
        "Content-Type": "application/json",
    }
    connection = HTTPConnection(parts.hostname or LOOPBACK, parts.port, timeout=30)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, body=content, headers=headers)
        answer = connection.getresponse()
        text = answer.read()
    except HTTPException as broken:
        raise ConnectionError(f"{method} {path}: {broken!r}") from broken
    finally:
        connection.close()
    if answer.status >= HTTPStatus.BAD_REQUEST:
        raise ConnectionError(f"{method} {path}: {answer.status} {text.decode()[:300]}")
    return json.loads(text) if text else None


def _basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"
