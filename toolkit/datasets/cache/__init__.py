"""The cache of a node: fills it from a store, verifies entries, evicts unused ones.

Belongs here: everything that changes the cache folder.
Does not: stores (`store`), and which dataset a job asks for (`dataset`).
"""
