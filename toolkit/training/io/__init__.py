"""Files and S3 clients that survive a bad moment: atomic writes, second reads, timeouts.

Nothing here knows of runs, attempts or checkpoints.
"""
