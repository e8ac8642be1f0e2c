"""Renders everything below `rendered/` in the bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.render.burst import burst_json
from toolkit.render.context import slurm_context
from toolkit.render.playbook_vars import image_vars, site_vars
from toolkit.render.slurm import slurm_files

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.config.model import ClusterConfig
    from toolkit.render.prices import Prices
    from toolkit.render.stack import StackFacts

__all__ = ["bundle_files", "image_vars"]


def bundle_files(
    config: ClusterConfig, facts: StackFacts, prices: Prices, *, templates: Path
) -> dict[str, str]:
    """Return the text of each file, by name.

    The same input gives the same bytes, so the bundle's hash is stable. `templates` is
    the directory that holds `slurm/`. Raises RenderError if the configuration and the
    stack don't fit together.
    """
    context = slurm_context(config, prices)
    return slurm_files(context, templates) | {
        "burst.json": burst_json(config, facts, prices),
        "vars.json": site_vars(config, facts),
    }
