"""The status page: what an end user sees of one job, by a signed link, without an API key."""
