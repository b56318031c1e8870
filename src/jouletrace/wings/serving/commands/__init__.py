"""Commands of loads on servers."""
