"""Bound the wait for programs and answers that an idle machine gives within seconds."""

from typing import Final

PROGRAM_SECONDS: Final = 900.0
"""Seconds after which a program or an answer counts as hanging.

Beside another test run on two cores, a minute passed before torch was imported. At load 20 one rank
of Lightning took three minutes to start and stop. At load 28 on a throttled host, two ranks needed
more than five to meet.
"""
