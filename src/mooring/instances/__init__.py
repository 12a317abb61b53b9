"""What is running, and for whom."""
