"""`python -m deeplda`."""

from deeplda.cli import main

if __name__ == "__main__":
    main()
