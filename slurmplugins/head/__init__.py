"""Head node only: puts the engine together, runs the playbook, reports to people, ends MLflow runs.

Here: what only the head runs, besides power saving and reconciling.
Not here: decisions about nodes.
"""
