"""AWS behaviour that moto leaves out, laid over moto's tables (`local.cloud` assembles it).

Belongs here: EC2, FSx, SSM, CloudFormation and Secrets Manager as the toolkit uses
them.
Does not: the machines behind instances (`local.machines`).
"""

import sys

# moto imports jsonschema. Where Jupyter is installed, jsonschema imports this package, which builds
# grammars of addresses: 4 s of CPU, and nothing here checks one. With None it is as if absent.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # typeshed knows no None
