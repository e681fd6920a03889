"""Metrics, logs and the health endpoint; the journey itself only states facts."""
