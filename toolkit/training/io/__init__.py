"""Durable files, S3 clients, and the facts that the cluster tells a job.

Atomic writes, second reads and timeouts belong here: code that survives a short failure of a
server. Nothing here knows of runs, attempts or checkpoints.
"""
