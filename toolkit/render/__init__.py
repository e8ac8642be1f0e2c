"""Renders the head node's files from cluster.yaml. Pure: values in, text out.

Belongs here: slurm.conf, burst.json, the playbooks' variables, and the options of each
Slurm version (`options`).
Does not: reading cluster.yaml (`toolkit.config`) and uploading the files
(`toolkit.deploy`).

`bundle_files` renders everything below `rendered/` of the bundle; `image_vars` renders
the variables of an image build.
"""

from __future__ import annotations

from toolkit.render.files import bundle_files, image_vars
from toolkit.render.prices import Prices, PriceTable
from toolkit.render.stack import StackFacts

__all__ = ["PriceTable", "Prices", "StackFacts", "bundle_files", "image_vars"]
