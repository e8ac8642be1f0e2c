"""Durable files, uploads to S3, work in threads, and the facts that the cluster tells a job.

Checkpoints and datasets share it: atomic writes, second reads, uploads that go on after a kill.
Nothing here knows of runs, attempts, checkpoints or datasets.
"""
