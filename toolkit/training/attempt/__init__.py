"""A start of a job: its identity, its fence, its stop request and its verdict.

Modules that tell a process about itself belong here: `current()`, stop files, SIGTERM, the job's
log. Records of earlier attempts belong in `run_folder`, decisions about the job in `requeue`.
"""
