"""``python -m specinvert`` is the command line."""

from .cli import main

if __name__ == "__main__":
    try:
        main(prog_name="specinvert")
    finally:
        # Python remembers an interrupt that came in an exec, though it was handled, and would end by the signal
        exec("")
