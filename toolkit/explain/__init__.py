"""Explains the state of a job or a node, from the head node's facts.

Belongs here: pure functions from the head's report to answers and tables.
Does not: collecting the facts (`slurmplugins.head`) and printing (`toolkit.commands`).
"""
