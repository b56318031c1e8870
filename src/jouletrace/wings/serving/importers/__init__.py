"""Files of load generators: results of servers under load."""
