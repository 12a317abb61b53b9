"""What the official conformance suite needs: a server that has everything it calls for, and the suite itself.

    python -m mooring.testing.conformance [--http PORT] [--era legacy|modern|dual]

The server is raw: standard library only, no SDK, nothing of the product's wire, so that it is a second opinion.
"""
