"""Files in and out: one reader a kind of file, one cube convention, and writers that never leave half a file.

`open_cube` lives in `open.py`, `save_maps` in `writers.py`; both are public names of the package.
"""
