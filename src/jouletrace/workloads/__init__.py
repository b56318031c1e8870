"""What to run: built-in models, user models, any callable. torch is imported only when one is built."""
