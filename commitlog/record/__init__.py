"""The bytes of message records: layout, encoding, decoding one by one and in columns.

Pure functions on bytes; no file is opened here. It includes properties, tags codes, compression and the records that
leaders write. Everything above may import it.
"""
