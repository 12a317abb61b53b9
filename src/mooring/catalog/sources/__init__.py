"""Where entries come from: the kinds of sources that Mooring brings itself."""
