"""How one server starts and ends."""
