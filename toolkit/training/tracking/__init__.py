"""The tracking server: a queue of records on disk, and the MLflow client that empties it.

What is worth recording is decided in `recording`.
"""
