"""Words of codes, units of figures and text on its way out: what all that prints has in common, without any layout."""
