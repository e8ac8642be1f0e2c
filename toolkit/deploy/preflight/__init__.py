"""The preflight: asks AWS whether the account can have this cluster, and changes nothing.

Belongs here: what is asked, the facts that AWS answers, and the checks of them.
Does not: checks of the file alone (`toolkit.config`) and of this computer
(`toolkit.local.machines`).

`preflight(...)` returns every finding at once. A question that the caller may not ask
becomes a note.
"""

from toolkit.deploy.preflight.account_check import AccountCheck
from toolkit.deploy.preflight.findings import Preflight
from toolkit.deploy.preflight.run import preflight

__all__ = ["AccountCheck", "Preflight", "preflight"]
