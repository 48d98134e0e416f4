"""A small certificate authority: `dledger certs`.

`making` creates authorities and certificates in memory, `files` writes and reads them, `folder` manages an authority
with all its certificates, and replaces an authority in three steps without downtime. Only this package imports
`cryptography`: servers and clients use the files with `ssl` and gRPC (`dledger.security`).
"""
