"""The wings that come with jouletrace: each folder here is one, and can be deleted (see ``jouletrace.wing``)."""
