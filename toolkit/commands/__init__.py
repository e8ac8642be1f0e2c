"""Parsers of arguments: one module a command, each with a click command named `command`."""
