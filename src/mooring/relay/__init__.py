"""One message's way there and back."""
