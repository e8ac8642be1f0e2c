"""Figures of the code: rooms, import circles, docstrings.

They also count the modules that one launch reads.
"""
