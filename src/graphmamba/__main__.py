"""`python -m graphmamba` is the command `graphmamba`."""

from graphmamba.cli import main

if __name__ == "__main__":
    main()
