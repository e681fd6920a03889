"""What a tenant may be called: the same wherever one is named, so that a limit can name it too."""

import re
from typing import Final

EXPECTED: Final = "1 to 100 letters, digits, '.', '_' or '-', a letter or digit first"

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}", re.ASCII)


def is_tenant(found: object) -> bool:
    """Tell whether a tenant may be called so."""
    return isinstance(found, str) and _NAME.fullmatch(found) is not None
