"""The values that pass between rooms: frozen, with no behaviour beyond naming what they say.

Here: what several rooms speak of. Not here: input, output, decisions, a value of one room alone.
"""
