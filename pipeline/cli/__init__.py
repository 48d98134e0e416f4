"""`dledger spark`: the commands of the pipeline.

One module for each group of commands, with its options and output; the work is in the other packages. Only the command
line `dledger` imports it, when such a command is called.
"""
