"""Callbacks: tell a submitter's own server that a job has ended (Standard Webhooks).

A trigger of the table `jobs` makes the job that does it in the commit of the final state, whoever
writes that state; a worker posts it.
"""
