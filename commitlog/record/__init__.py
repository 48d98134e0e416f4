"""The bytes of message records: layout, encoding, decoding one by one and in columns.

Pure functions on bytes; no file is opened here. Properties, tags codes, compression and the records that leaders
write belong to it. Everything above may import it.
"""
