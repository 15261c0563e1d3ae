"""``python -m startup_model``: the command line."""

from startup_model.cli import main

if __name__ == "__main__":
    main()
