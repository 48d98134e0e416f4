"""A Raft-replicated log of bytes in the manner of DLedger; usable without a broker."""
