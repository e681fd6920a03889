"""Dashboards and objectives as code: what `deploy/grafana` and `deploy/prometheus` are made of.

`python -m filaviva.cli.reference` writes the files; a test compares, and another one asks a real
Prometheus every query.
"""
