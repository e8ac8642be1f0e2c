"""How one local cloud is to run: where it keeps things, what it pretends, how fast it is."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

DEFAULT_STATE = Path("/var/lib/toolkit-local")
STATE_VARIABLE = "TOOLKIT_LOCAL_DIR"
DEFAULT_PORT = 4566
ACCOUNT = "123456789012"  # the one account there is; moto's own default
DRIVERS = ("nspawn", "none")


@dataclass(frozen=True, slots=True)
class Options:
    """One local cloud's settings; the daemon is started with exactly these.

    `boot_delay` is added to what the machine itself needs from pending to
    running; `shutdown_grace` is how long a terminated machine may take to power
    off; `visible_after` is EC2's eventual consistency: for so long a new
    instance is missing from Describe calls. `throttle` applies EC2's published
    request rates. `forget_after` is how long a terminated instance is listed.
    """

    state: Path = DEFAULT_STATE
    port: int = DEFAULT_PORT
    driver: str = "nspawn"
    region: str = "us-east-1"
    boot_delay: float = 0.0
    shutdown_grace: float = 3.0
    visible_after: float = 0.0
    throttle: bool = True
    forget_after: float = 3600.0

    def to_json(self) -> str:
        """Return the settings as the daemon's argument."""
        return json.dumps({**asdict(self), "state": str(self.state)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Options:
        """Read what `to_json` wrote; unknown keys of a newer toolkit are left out."""
        known = {field.name for field in fields(cls)}
        data = {key: value for key, value in json.loads(text).items() if key in known}
        data["state"] = Path(data["state"])
        return cls(**data)


def state_dir(given: Path | None = None) -> Path:
    """Return the state directory: as given, else from the environment, else the default."""
    if given is not None:
        return given
    return Path(os.environ.get(STATE_VARIABLE) or DEFAULT_STATE)
