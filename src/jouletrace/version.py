"""The version of the package, stated here alone, and the folder that it is imported from."""

from os.path import abspath, dirname

__version__ = "0.4.0"

HOME = dirname(dirname(abspath(__file__)))
"""The entry of ``sys.path`` with which a child process imports the same package."""
