"""Render the page: our templates with everything escaped, and headers that let nothing else in."""

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response

from filaviva_producer.page.words import LANGUAGES, Words

_KINDS: Final = {
    "status.css": "text/css; charset=utf-8",
    "status.js": "text/javascript; charset=utf-8",
    "status.svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-store",
    # The address is the key: it must not travel to other sites.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Robots-Tag": "noindex, nofollow",
    "Vary": "Accept-Language",
}
FOREVER: Final = "public, max-age=31536000, immutable"


def templates(package: str) -> Environment:
    """Read a package's templates, everything escaped."""
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


class Rendering:
    """Templates and files of the page, read once."""

    def __init__(self) -> None:
        self._templates = templates("filaviva_producer.page")
        folder = files("filaviva_producer.page") / "assets"
        self._assets = {name: (folder / name).read_bytes() for name in _KINDS}

    def asset(self, name: str) -> Response | None:
        """Give a file of the page; None if there is none of that name."""
        if name not in self._assets:
            return None
        headers = {"Cache-Control": FOREVER, "Cross-Origin-Resource-Policy": "same-origin"}
        return Response(self._assets[name], headers=headers, media_type=_KINDS[name])

    def page(
        self, name: str, words: Words, *, status: int = 200, depth: int = 0, **shown: Any
    ) -> Response:
        """Render a template; `depth`: how many steps below the page its address is."""
        template = self._templates.get_template(name)
        text = template.render(
            words=words,
            languages=tuple(LANGUAGES.values()),
            assets=self._addresses("../" * depth),
            **shown,
        )
        headers = {**HEADERS, "Content-Language": words.code}
        return Response(text, status, headers, media_type="text/html")

    def _addresses(self, up: str) -> Mapping[str, str]:
        # Relative, so that a proxy may put us below a path; with a hash, so that they may be kept.
        return {
            name: f"{up}assets/{name}?{hashlib.sha256(content).hexdigest()[:12]}"
            for name, content in self._assets.items()
        }
