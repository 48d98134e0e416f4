"""`dledger delay`, `recall`, `dlq` and `transaction`: messages that wait, and those that were given up.

Sending with a delay is in `cluster.cli.messages.produce`.
"""
