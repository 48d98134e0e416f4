"""`dledger spark`: the commands of the pipeline."""
