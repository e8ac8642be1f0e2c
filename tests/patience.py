"""Bound the wait for programs and answers that an idle machine gives within seconds."""

from typing import Final

PROGRAM_SECONDS: Final = 200.0
"""Seconds after which a program or an answer counts as hanging.

Beside another test run on two cores, a minute passed before torch was imported.
"""
