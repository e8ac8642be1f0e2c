"""The section of cluster.yaml with the targets that the HTML report shows."""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

from typing import Annotated

from pydantic import Field

from toolkit.config.section import Section

Percent = Annotated[float, Field(ge=0, le=100)]


class Targets(Section):
    """The targets of `toolkit report --html`. Nothing enforces them."""

    utilisation_percent: Percent = 70.0
    """Hours of nodes with work, of all that were paid."""
    success_percent: Percent = 95.0
    """Jobs that completed, of those that completed or failed."""
    spot_share_percent: Percent = 50.0
    """Hours of spot, of all hours of nodes."""
    wait_minutes: Annotated[float, Field(ge=0, le=1_000_000)] = 30.0
    """The median wait of attempts, from submission to start."""
    checkpoint_percent: Percent = 95.0
    """Attempts that had saved, of those that were interrupted or asked for a requeue."""
