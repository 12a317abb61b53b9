"""Servers, sources and launchers from outside."""
