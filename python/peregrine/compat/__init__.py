"""Other libraries' interfaces, for programs that are written for them."""
