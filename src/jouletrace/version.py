"""The version of the package, stated here alone, and the folder that it is imported from."""

from os.path import abspath, dirname

__version__ = "0.1.0"

HOME = dirname(dirname(abspath(__file__)))
"""What ``sys.path`` must hold for a child process to import the same package."""
