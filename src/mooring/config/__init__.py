"""What people write, and what it means."""
