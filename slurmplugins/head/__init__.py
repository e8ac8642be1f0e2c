"""The head node's own work: assemble the engine, run the playbook, report, end MLflow runs.

Here: code that only the head runs, besides power saving and reconciling.
Not here: decisions about nodes (see `power_save` and `reconciler`).
"""
