"""The store of datasets: the catalog, manifests, uploads and garbage collection.

Belongs here: everything that reads or changes a store. `port` is the protocol,
`folder_store` and `s3_store` implement it, `open_store` chooses one.
Does not: copies on a node (`cache`).
"""
