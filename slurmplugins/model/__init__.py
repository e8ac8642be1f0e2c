"""Frozen values that pass between rooms: nodes, jobs, instances, offerings, launches, actions.

Here: values that several rooms share, and reading and writing them as text.
Not here: input and output, decisions, a value that only one room uses.
"""
