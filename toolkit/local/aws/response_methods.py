"""The calls that a service of moto's answers, looked up once for each service.

moto goes through all members of a class for each request, which is a twentieth of a deploy here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from moto.core import responses

if TYPE_CHECKING:
    from toolkit.local.aws.moto_patches import Patches


def install(patches: Patches) -> None:
    """Have moto look once at each class, after all other replacements."""
    looked = functools.cache(responses.method_names_from_class)
    patches.replace(responses, "method_names_from_class", looked)
