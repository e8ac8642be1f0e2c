"""Datasets named by the hash of their content, cached once on each node.

Belongs here: the store, the node cache, derived datasets, and the program that jobs
run.
Does not: the people's commands (`toolkit data`, in `toolkit.commands`) and a run's
checkpoints (`toolkit.training`).

A training script calls `toolkit.training.dataset`. The argument is `sha256:…` or
`digits@3`, and the result is a read-only folder on this node::

    path = toolkit.training.dataset("digits@3")

A job step starts the program, with one task per node, before the training or as a job
of its own. It needs the standard library only, and boto3 if the store is s3://.

    PYTHONPATH=/shared/lib python3 -m toolkit.datasets warm REF [REF …]

- Exit code 0: every dataset is cached.
- Exit code 85: a stop was requested. The fetched files are kept, and the next attempt continues.
- Exit code 93: it can't work as submitted (no such dataset, no store, too large for the cache).
- Exit code 1: another failure.

`… stats` prints the cache's counts. `toolkit.datasets.settings` names the variables
that place the store and the caches.
"""
