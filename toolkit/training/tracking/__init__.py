"""The tracking server: a queue of records on disk, and the MLflow client that empties it.

Code that knows MLflow, or that a slow server may hold up, belongs here. Decisions on what to record
belong in `recording`.
"""
