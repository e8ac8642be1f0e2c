"""cluster.yaml → the files a head node runs on. Pure: values in, text out.

`bundle_files` renders everything below `rendered/` of the bundle; `image_vars` what an image build
is told. Knows which Slurm version has which option (`options`).
"""

from __future__ import annotations

from toolkit.render.files import bundle_files, image_vars
from toolkit.render.prices import Prices, PriceTable
from toolkit.render.stack import StackFacts

__all__ = ["PriceTable", "Prices", "StackFacts", "bundle_files", "image_vars"]
