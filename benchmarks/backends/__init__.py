"""MCP servers to put behind a gateway."""
