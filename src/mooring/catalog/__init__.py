"""What could be run: entries, where they come from, and how they are found."""
