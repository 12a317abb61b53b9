"""One event vocabulary; logs, metrics, traces and audit read it."""
