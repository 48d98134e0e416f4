"""Pages of a process, asked over HTTP."""

import http.client

from tests.support.waiting import PATIENCE_S


def asked(address, path, method="GET"):
    """Return the status and the text of a page."""
    connection = http.client.HTTPConnection(address.host, address.port, PATIENCE_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()
