"""Datasets by the hash of their content, cached once a node.

In a training script::

    path = toolkit.training.dataset("sha256:…")   # or "digits@3"; a read-only folder on this node

As a job step, one task a node, before the training or as a job of its own (standard library only,
and boto3 where the store is s3://)::

    PYTHONPATH=/shared/lib python3 -m toolkit.datasets warm REF [REF …]

which exits 0 when all of it is cached, 85 when it was asked to stop (what is fetched is kept, the
next attempt goes on there), 93 when it can't work as submitted (no such dataset, no store, too
large for the cache) and 1 for what another try may mend. `… stats` prints the cache's counts.

Where things are: `toolkit.datasets.settings`. People use `toolkit data`.
"""
