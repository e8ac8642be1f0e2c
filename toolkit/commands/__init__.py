"""People's commands: their arguments, their refusals and what they print.

Each module that `toolkit.cli` lists has a click command named `command`. The other modules hold
shared options and subcommands.
"""
