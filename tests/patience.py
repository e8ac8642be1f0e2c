"""How long tests wait for what needs a second on an idle machine."""

from typing import Final

PROGRAM_SECONDS: Final = 200.0
"""Seconds after which a program or an answer counts as hanging.

Beside another test run on two cores, a minute passed before torch was imported.
"""
