"""Commands that start tools of others, or write what these read."""
