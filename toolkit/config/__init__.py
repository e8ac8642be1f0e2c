"""The file cluster.yaml: the one file an admin keeps.

Belongs here: its model, its checks and its schema.
Does not: files made from it (`toolkit.render`) and changes of a cluster
(`toolkit.deploy`).

`load(path)` returns a frozen `ClusterConfig`, or raises `ConfigInvalid` with every
problem at once.
"""

from toolkit.config.load import load, load_dated, parse
from toolkit.config.model import ClusterConfig
from toolkit.config.schema import json_schema

__all__ = ["ClusterConfig", "json_schema", "load", "load_dated", "parse"]
