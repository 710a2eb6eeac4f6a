#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A store of the job's data: server.py serial|open MS. Prints its port.

`serial` serves one connection in turn; `open` as many as come."""
import http.server
import sys
import time

MS = float(sys.argv[2])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1" if sys.argv[1] == "open" else "HTTP/1.0"

    def do_GET(self):
        time.sleep(MS / 1e3)
        self.send_response(200)
        self.send_header("Content-Length", "4096")
        self.end_headers()
        self.wfile.write(bytes(4096))

    def log_message(self, *_):
        pass


kind = http.server.HTTPServer if sys.argv[1] == "serial" else \
    http.server.ThreadingHTTPServer
server = kind(("127.0.0.1", 0), Handler)
server.socket.listen(64)
print(server.server_port, flush=True)
server.serve_forever()
