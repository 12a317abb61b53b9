"""The daemon, put together."""
