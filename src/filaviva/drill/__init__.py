"""The drill's own job: it calls a provider that exists only to be cut.

`filaviva drill` serves that provider and cuts it, so that nobody's own handlers are touched; the
job goes the way of all jobs.
"""
