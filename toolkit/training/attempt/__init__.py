"""One start of one job: its identity, its fence, its stop request and its verdict.

Here is what a process must know about itself: `current()`, stop files, SIGTERM, the job's log.
Records of earlier attempts are in `run_folder`; what becomes of the job is in `requeue`.
"""
