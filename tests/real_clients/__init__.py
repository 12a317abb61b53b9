"""Agents and tools that other people wrote, run as clients in tests: where they are, and how each is kept to itself.

Each has its own small module, which knows the program's configuration files, flags and output, and nothing of Mooring
but how to reach it. ``make clients`` installs the versions of ``package.json``."""
