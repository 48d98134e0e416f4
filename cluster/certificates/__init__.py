"""A small certificate authority of one's own: `dledger certs`.

`making` makes authorities and certificates in memory, `files` writes and reads them, `folder` keeps an authority with
all its certificates, and replaces an authority in three steps without downtime. The only package that imports
`cryptography`: servers and clients only use what was made, and do so with `ssl` and gRPC (`dledger.security`).
"""
