"""The files of one run folder, a module for each format, and the values that they hold.

Reading and writing only. What the records mean is for `recording`, `requeue` and `reproduce`.
"""
