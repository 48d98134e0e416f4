"""The bytes of entries: layout, encoding, decoding, scanning consecutive entries.

No file is opened here, so clients and tools may use it as well as the store. It imports `dledger.types` and the text
form of a membership.
"""
