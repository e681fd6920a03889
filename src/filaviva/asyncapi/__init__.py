"""The contracts as an AsyncAPI document, for every language."""

from filaviva.asyncapi.document import document
from filaviva.asyncapi.told import Told, of_app, of_contract, of_registry

__all__ = ["Told", "document", "of_app", "of_contract", "of_registry"]
