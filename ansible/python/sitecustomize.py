"""Let Ansible's modules run from bytecode: Python imports this at its start.

Ansible sends each module with all that it imports, as a zip of source, and Python compiles that
anew each time: a third of the module's time. The same files are installed here, with bytecode. They
are taken from there once `ansible` itself is imported.
"""

import contextlib

with contextlib.suppress(ImportError):  # a Python of another environment, such as MLflow's
    import ansible  # noqa: F401
