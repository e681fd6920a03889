"""Where all our tables are."""

from sqlalchemy import MetaData

metadata = MetaData(schema="filaviva")
