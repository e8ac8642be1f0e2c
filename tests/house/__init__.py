"""Figures of the house: rooms, circles, docstrings, and how much one launch reads."""
