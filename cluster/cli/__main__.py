"""`python -m cluster.cli`: the command `dledger`."""

from cluster.cli.app import main

main()
