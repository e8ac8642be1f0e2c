"""The files of one run folder: a module for each format, with its values.

Reading and writing belong here. The meaning of the records belongs in `recording`, `requeue` and
`reproduce`.
"""
