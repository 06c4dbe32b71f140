"""Version 1 of the contracts. The modules beside this one are written by proto/generate.py."""
