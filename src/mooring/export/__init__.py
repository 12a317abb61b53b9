"""Telling others about Mooring: the configuration files of clients."""
