"""``python -m startup_model.cli``."""

from startup_model.cli import main

if __name__ == "__main__":
    main()
