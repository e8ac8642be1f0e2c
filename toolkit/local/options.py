"""The settings of one local cloud: its paths, its behaviour, its delays."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

DEFAULT_STATE = Path("/var/lib/toolkit-local")
STATE_VARIABLE = "TOOLKIT_LOCAL_DIR"
DEFAULT_PORT = 4566
ACCOUNT = "123456789012"  # the one account there is; moto's own default
ADMIN_KEY = "AKIALOCALCLOUD000000"  # the access key of the account's owner, who may do everything
DRIVERS = ("nspawn", "none")


@dataclass(frozen=True, slots=True)
class Options:
    """A local cloud's settings; the daemon is started with exactly these."""

    state: Path = DEFAULT_STATE
    port: int = DEFAULT_PORT
    driver: str = "nspawn"
    region: str = "us-east-1"
    boot_delay: float = 0.0
    """Seconds added to a machine's own from pending to running."""
    shutdown_grace: float = 3.0
    """Seconds that a terminated machine may take to power off."""
    visible_after: float = 0.0
    """EC2's eventual consistency: seconds that Describe calls lack a new instance."""
    throttle: bool = True
    """Applies EC2's published request rates."""
    forget_after: float = 3600.0
    """Seconds that a terminated instance is listed."""

    def to_json(self) -> str:
        """Return the settings as the daemon's argument."""
        return json.dumps({**asdict(self), "state": str(self.state)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Options:
        """Parse `to_json`'s output; unknown keys of newer toolkits are ignored."""
        field_names = {field.name for field in fields(cls)}
        data = {key: value for key, value in json.loads(text).items() if key in field_names}
        data["state"] = Path(data["state"])
        return cls(**data)


def state_dir(directory: Path | None = None) -> Path:
    """Return the given state directory, the environment's, or the default."""
    if directory is not None:
        return directory
    return Path(os.environ.get(STATE_VARIABLE) or DEFAULT_STATE)
