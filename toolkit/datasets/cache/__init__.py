"""The cache of a node: fill it from a store, verify what is there, evict what is not used.

Stores are in `store`; which dataset a job asks for is in `dataset`.
"""
