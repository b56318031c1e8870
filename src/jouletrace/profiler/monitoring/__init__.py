"""What ``monitor`` does: watching a board beside a program, and its joules per unit of real work."""
