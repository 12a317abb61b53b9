"""What the same work costs without a product around it. Started as scripts, never imported."""
