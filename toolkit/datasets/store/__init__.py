"""Where datasets are kept: the catalog, manifests, uploads and garbage collection.

`port` is the protocol; `folder_store` and `s3_store` implement it; `open_store` chooses one.
"""
